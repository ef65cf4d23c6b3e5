"""The exchange and the queues that faults happen to."""

from __future__ import annotations

from delivery_checker import History

from rabbit_chx.routing import HashRing, Release

EXCHANGE = "fire"
BINDINGS = (("n2", 3), ("n10", 1), ("n1", 2), ("n7", 1))
QUEUES = tuple(queue for queue, _ in BINDINGS)


def ring_of(release: str) -> HashRing:
    """Return the ring of the exchange as `Site.declare` has made it."""
    return HashRing.from_bindings(BINDINGS, release=Release(release))


def moved(history: History, ring: HashRing) -> int:
    """Return how many copies are in another queue than a ring names."""
    expected = {row.id: ring.destination_for(row.key) for row in history.attempted}
    return sum(expected[row] != queue for queue, rows in history.found.items() for row in rows)

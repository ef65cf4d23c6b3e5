"""The ring of an exchange on two releases, and what an upgrade does to it beside the rules of hashing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.rules import (
    DUPLICATES_APPEND,
    RESTART_EMPTIES,
    RESTART_KEEPS,
    RESTART_SHUFFLES,
    RESTART_SORTS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import Binding, Place, Release
    from rabbit_chx.routing.release import Rule

__all__ = ["RingOrder", "UpgradedRings", "heavy_bindings", "merged_ring", "ring_on", "upgraded_rings"]

#: What an upgrade in place does to the order of a ring. An exchange without an order has ``none``.
RingOrder: TypeAlias = Literal["kept", "lost", "none"]
_RESTARTS = (RESTART_SHUFFLES, RESTART_EMPTIES, RESTART_SORTS, RESTART_KEEPS)


@dataclass(frozen=True, slots=True)
class UpgradedRings:
    """The ring of an exchange before and after an upgrade.

    Attributes:
        before: the ring on the release before.
        after: the ring on the release after, with its bindings in the same order.
        order: what an upgrade in place does to that order.
        restart: the rule that a full restart of the release follows that decides about `order`.
        decided_by: that release.
        as_bound: whether the ring before is what its bindings make; False where it was read with ghost buckets or holes.
    """

    before: HashRing
    after: HashRing
    order: RingOrder
    restart: Rule
    decided_by: Release
    as_bound: bool = True


def upgraded_rings(
    bindings: Sequence[Binding], live: HashRing | None, before: Release, after: Release
) -> UpgradedRings:
    """Return the ring of an exchange before and after an upgrade.

    Args:
        bindings: destinations and binding keys, in the order of the ring.
        live: the ring as it was read from a broker; None where it was not.
        before: the release before.
        after: the release after.
    """
    provenance: Literal["replayed", "assumed"] = (
        "assumed" if live is not None and live.provenance == "assumed" else "replayed"
    )
    old, new = (ring_on(bindings, release, provenance) for release in (before, after))
    keeps = before.follows(RESTART_KEEPS) and after.follows(RESTART_KEEPS)
    as_bound = True
    if live is not None and live.provenance == "read":
        as_bound = live.buckets == old.buckets
        old = live if live.release == before else live.with_release(before)
        if not as_bound and keeps:
            new = live.with_release(
                after
            )  # Khepri keeps ghosts and holes; Mnesia makes the ring of its bindings again
    decided_by = before if not before.follows(RESTART_KEEPS) else after
    order: RingOrder = "kept" if keeps else "lost"
    if len(set(new.destinations) | set(old.destinations)) < 2:  # one destination has only one order
        order = "none"
    restart = next(rule for rule in _RESTARTS if decided_by.follows(rule))
    return UpgradedRings(old, new, order, restart, decided_by, as_bound)


def ring_on(
    bindings: Sequence[Binding],
    release: Release,
    provenance: Literal["replayed", "assumed"] = "replayed",
) -> HashRing:
    """Return the ring that bindings make in this order, also those that the release would not take any more.

    A broker keeps a binding that is older than the rule that refuses its weight.

    Args:
        bindings: destinations and binding keys.
        release: the release.
        provenance: ``replayed`` if the order is known to be the true one, else ``assumed``.

    Raises:
        InputError: no release takes one of the binding keys.
    """
    try:
        return HashRing.from_bindings(bindings, release, provenance)
    except InputError:
        buckets: list[Place] = []
        distinct = tuple(dict.fromkeys(bindings))
        for destination, key in distinct:
            weight = weight_of(destination, key)
            if release.follows(DUPLICATES_APPEND) or destination not in buckets:
                buckets += [destination] * weight
        return HashRing(tuple(buckets), release, "assumed", distinct)


def heavy_bindings(bindings: Sequence[Binding], release: Release) -> tuple[Binding, ...]:
    """Return the bindings whose weight a release refuses, if they are made anew.

    Args:
        bindings: destinations and binding keys.
        release: the release.
    """

    def is_refused(binding: Binding) -> bool:
        try:
            weight_of(*binding, release)
        except InputError:
            return True
        return False

    return tuple(binding for binding in bindings if is_refused(binding))


def merged_ring(ring: HashRing) -> HashRing:
    """Return the ring in which each destination has one binding with all its buckets, in the order of their first ones.

    Args:
        ring: a ring whose destinations may be bound more than once.
    """
    counts = [(place, ring.buckets.count(place)) for place in ring.destinations]
    return ring_on([(place, str(count)) for place, count in counts], ring.release)

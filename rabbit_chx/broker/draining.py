"""Appends in order: what makes them impossible, and the wait until each old queue has been empty once since the bind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from rabbit_chx.broker.live_broker import LiveBroker, QueueCounts, try_count
from rabbit_chx.broker.reading import with_totals
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.ring_plan import Append
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.words import listed, plural

#: The time in seconds for which `wait_drained` waits by default.
WAIT_S = 600.0
#: The totals of queues are up to five seconds old, by the default of `collect_statistics_interval` and of quorum queues (measured on 3.10.8
#: and 4.3.6; other statistics are up to ten).
STALE_S = 7.0
_POLL_S = 1.0
_NOTE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Drained:
    """The end of a wait for old queues.

    Attributes:
        after_s: how long it took, in seconds.
        never_empty: the queues that were never empty, with their last counts; None for one that nobody can count.
        early: the new queues that had consumers before each old queue had been empty.
    """

    after_s: float
    never_empty: dict[str, QueueCounts | None] = field(default_factory=dict)
    early: tuple[str, ...] = ()

    @property
    def is_in_order(self) -> bool:
        """True if each old queue has been empty once, and nobody consumed from a new one before."""
        return not self.never_empty and not self.early


def append_of(plan: Plan) -> Append | None:
    """Return the appends of a plan to its rings as one, without queues that it deletes; None if there is none."""
    deleted = {change.name for change in plan.changes if (change.action, change.kind) == ("delete", "queue")}
    appends = [append for ring in plan.rings.values() if (append := ring.append) is not None]
    old = dict.fromkeys(place for append in appends for place in append.old if place not in deleted)
    new = dict.fromkeys(place for append in appends for place in append.new)
    return Append(tuple(old), tuple(new)) if appends else None


def why_not_in_order(plan: Plan) -> Iterator[str]:
    """Yield why keys that a plan moves do not stay in order, whatever anybody waits for."""
    for name, ring in plan.rings.items():
        if ring.moved_at_worst and ring.append is None:
            yield f"the plan moves keys of {name} otherwise than by an append, which puts new queues behind the others"
        yield from ring.obstacles


def with_obstacles(plan: Plan, broker: LiveBroker) -> Plan:
    """Return a plan whose appends have what makes their order impossible now."""
    rings = {}
    for name, ring in plan.rings.items():
        append = ring.append
        obstacles = () if append is None else tuple(_obstacles(name, append, broker))
        rings[name] = replace(ring, obstacles=obstacles) if obstacles else ring
    return replace(plan, rings=rings)


def _obstacles(exchange: str, append: Append, broker: LiveBroker) -> Iterator[str]:
    """Yield what makes the order of an append impossible. A passive declaration counts at once, and for each user."""
    prefix = f"the order of keys that move in {exchange} is not kept"
    for place in append.new:
        counts = _count(place, broker)
        if counts is not None and counts.consumers:
            yield (
                f"{prefix}: {place} has {plural(counts.consumers, 'consumer')} already, which would handle new messages before the old queues "
                "have passed older ones; stop them first"
            )
    for place in append.old:
        if isinstance(place, ExchangeRef):
            yield f"{prefix}: keys leave the exchange {place.name}, and which messages wait behind it is not known"
            continue
        counts = _count(place, broker)
        if counts is not None and counts.messages and not counts.consumers:
            yield (
                f"{prefix}: {place} has {plural(counts.messages, 'message')} and no consumer, so it is never empty; start a consumer of it "
                "first"
            )


def _count(place: Destination, broker: LiveBroker) -> QueueCounts | None:
    return try_count(broker.amqp, place) if isinstance(place, str) else None


def wait_drained(
    append: Append,
    broker: LiveBroker,
    longest_s: float,
    waiting: Callable[[str], None],
) -> Drained:
    """Wait until each old queue has been empty once: no ready and no unacknowledged messages.

    The totals of the broker are some seconds old, so that a queue which they call empty may have been so before the bind. So only what they
    say `STALE_S` after the begin counts.
    """
    begin = time.monotonic()
    slept_s = 0.0
    next_note_s = 0.0
    left: dict[str, QueueCounts | None] = {place: None for place in append.old if isinstance(place, str)}
    early: dict[str, None] = {}
    while True:
        elapsed_s = max(slept_s, time.monotonic() - begin)
        left = _read_counts(left, broker)
        if elapsed_s >= STALE_S:
            left = {name: counts for name, counts in left.items() if counts is None or counts.messages}
        if not left:
            return Drained(elapsed_s, early=tuple(early))
        early |= dict.fromkeys(_consumed(append.new, broker))
        if elapsed_s >= longest_s:
            return Drained(elapsed_s, left, tuple(early))
        if elapsed_s >= next_note_s:
            waiting(
                f"waiting for {describe_queues(left)} to have been empty once: {elapsed_s:.0f} of {longest_s:g} s"
            )
            next_note_s = elapsed_s + _NOTE_EVERY_S
        broker.sleep(_POLL_S)
        slept_s += _POLL_S


def _read_counts(names: Iterable[str], broker: LiveBroker) -> dict[str, QueueCounts | None]:
    """Return the messages of queues, with those that are not acknowledged, and their consumers; None for one that nobody can count."""
    found: dict[str, QueueCounts | None] = {}
    for entry in with_totals(broker.api, broker.vhost, [{"name": name} for name in names]):
        name = entry["name"]
        unsettled = entry.get("messages")
        counts = try_count(broker.amqp, name)
        if counts is None or not isinstance(unsettled, int):
            found[name] = None
        else:
            found[name] = replace(counts, messages=max(counts.messages, unsettled))
    return found


def _consumed(places: Iterable[Destination], broker: LiveBroker) -> Iterator[str]:
    """Yield the queues that have consumers."""
    for place in places:
        counts = _count(place, broker)
        if isinstance(place, str) and counts is not None and counts.consumers:
            yield place


def describe_queues(queues: dict[str, QueueCounts | None]) -> str:
    """Return queues with the number of their messages, and whether nobody consumes from them."""
    return listed([_describe_queue(name, counts) for name, counts in queues.items()])


def _describe_queue(name: str, counts: QueueCounts | None) -> str:
    if counts is None:
        return f"{name} (its messages cannot be counted)"
    messages = plural(counts.messages, "message")
    return f"{name} ({messages})" if counts.consumers else f"{name} ({messages}, no consumer)"

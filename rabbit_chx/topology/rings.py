"""The plans of all rings, from what is there to what is wanted, and why one may be refused.

These are the rings of hash exchanges that are wanted, and of those that lose a member by what else is planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HASH_ARGUMENTS, NEWEST, Destination, HashRing, Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember
from rabbit_chx.topology.refusals import (
    PlanRefusal,
    different_external_ring,
    impossible_ring,
    too_much_moved,
    unknown_order,
)
from rabbit_chx.topology.ring_figures import RingFigures, best_walk
from rabbit_chx.topology.ring_plan import RingPlan
from rabbit_chx.topology.ring_steps import RingStep, buckets_as_members, wanted_ring_of
from rabbit_chx.topology.slot_plan import SlotHands, slot_hands

if TYPE_CHECKING:
    from rabbit_chx.topology.changes import PlannedChange
    from rabbit_chx.topology.diff import ObjectDifferences
    from rabbit_chx.topology.model import Topology

__all__ = ["RingWork", "live_ring_of", "ring_differences"]


def ring_differences(
    wanted: Topology, live: Topology, objects: ObjectDifferences, bindings: Sequence[PlannedChange] = ()
) -> dict[str, RingWork]:
    """Return the plan of each ring, by the name of its exchange, in the order of names.

    Args:
        wanted: what should be there.
        live: what is there.
        objects: what differs between their exchanges and queues.
        bindings: the binds and unbinds of other exchanges, in order: slots change hands by them.
    """
    rings = _Rings(wanted, live, objects, bindings)
    return dict(sorted(rings.all()))


class _Rings:
    def __init__(
        self,
        wanted: Topology,
        live: Topology,
        objects: ObjectDifferences,
        bindings: Sequence[PlannedChange],
    ) -> None:
        self._live, self._wanted, self._bindings = live, wanted, bindings
        self._ours = {exchange.name: exchange for exchange in wanted.exchanges}
        self._theirs = {exchange.name: exchange for exchange in live.exchanges}
        self._limit = wanted.max_share_moved
        self._gone, self._again = objects.gone, objects.again
        self._deleted = {named.name for named in objects.deleted if isinstance(named, ExchangeDefinition)}
        self._replaced = {
            named.name for named, _ in objects.replaced if isinstance(named, ExchangeDefinition)
        }

    def all(self) -> Iterator[tuple[str, RingWork]]:
        for name in {**self._ours, **self._theirs}:
            ours, theirs = self._ours.get(name), self._theirs.get(name)
            if any(exchange is not None and exchange.type == HASH_EXCHANGE for exchange in (ours, theirs)):
                work = self._of(name, ours, theirs)
                if work is not None:
                    yield name, work

    def _of(
        self, name: str, ours: ExchangeDefinition | None, theirs: ExchangeDefinition | None
    ) -> RingWork | None:
        live = live_ring_of(self._live, theirs, name)
        members = None if ours is None else ours.ring
        if name in self._deleted:
            return work_of_deleted_ring(name, live, self._again)
        if ours is not None and ours.owner == "external":
            differs = theirs is not None and members is not None and not same_ring(live, members)
            plan = RingPlan(name, live.ring, live.ring)
            return RingWork(plan, 0, (different_external_ring(name),)) if differs else None
        if theirs is None:
            return None if members is None else work_of_new_ring(name, members, self._live.release or NEWEST)
        limit = self._limit if ours is None or ours.max_share_moved is None else ours.max_share_moved
        if ours is not None and name in self._replaced:
            return self._of_replaced(name, ours, theirs, limit)
        members = self._left_of(live.bound) if members is None else members
        return None if members is None else self._of_staying(theirs, live, members, limit)

    def _of_staying(
        self, theirs: ExchangeDefinition, live: LiveRing, members: tuple[RingMember, ...], limit: float | None
    ) -> RingWork:
        return ring_work(theirs.name, live, members, self._again, limit, hands=self._hands(live, members))

    def _hands(self, live: LiveRing, members: Sequence[RingMember]) -> SlotHands | None:
        places = [member.destination for member in members]
        return slot_hands(live.ring, places, self._wanted, self._live, self._bindings)

    def _of_replaced(
        self, name: str, ours: ExchangeDefinition, theirs: ExchangeDefinition, limit: float | None
    ) -> RingWork:
        live = live_ring_of(self._live, theirs, name)
        members = live.bound if ours.ring is None else ours.ring
        if ours.type != HASH_EXCHANGE:
            members = ()
        alike = all(
            theirs.arguments.get(argument) == ours.arguments.get(argument) for argument in HASH_ARGUMENTS
        )
        hands = self._hands(live, members)
        return work_of_replaced_ring(name, live, members, limit, hands=hands, hashed_alike=alike)

    def _left_of(self, bound: tuple[RingMember, ...]) -> tuple[RingMember, ...] | None:
        """Return the members that are left of a ring that the topology does not say; None if it stays as it is."""
        if not any(member.destination in self._gone | self._again for member in bound):
            return None
        return tuple(member for member in bound if member.destination not in self._gone)


class LiveRing(NamedTuple):
    """The ring of an exchange as it is there.

    Attributes:
        ring: its buckets.
        bound: all its bindings, in the order of the ring as far as that is known.
    """

    ring: HashRing
    bound: tuple[RingMember, ...]


class RingWork(NamedTuple):
    """The plan of one ring.

    Attributes:
        plan: the plan.
        first: how many of its steps come before objects are replaced.
        refusals: why it may be refused.
        impossible: whether no binds and unbinds make the wanted ring, so that the exchange has to be declared again.
    """

    plan: RingPlan
    first: int = 0
    refusals: tuple[PlanRefusal, ...] = ()
    impossible: bool = False


def live_ring_of(live: Topology, exchange: ExchangeDefinition | None, name: str) -> LiveRing:
    """Return the ring of an exchange as it is there: empty if there is none.

    Args:
        live: what is there.
        exchange: the exchange in it, if it is there.
        name: its name.
    """
    release = live.release or NEWEST
    if exchange is None or exchange.type != HASH_EXCHANGE:
        return LiveRing(HashRing.from_bindings([], release), ())
    ring = live.rings.get(name)
    if exchange.ring is not None:
        bound = exchange.ring
    elif ring is None:
        bound = ()
    elif ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    else:
        bound = buckets_as_members(ring.buckets)
    if ring is None:
        ring = _assumed(bound, release)
    return LiveRing(ring, bound)


def _assumed(bound: tuple[RingMember, ...], release: Release) -> HashRing:
    bindings = [member.binding for member in bound]
    try:
        return HashRing.from_bindings(bindings, release, "assumed")
    except InputError:  # a weight that this release refuses, on a binding that is older than the rule
        buckets = tuple(place for place, key in bindings for _ in range(weight_of(place, key)))
        return HashRing(buckets, release, "assumed", tuple(bindings))


def same_ring(live: LiveRing, wanted: tuple[RingMember, ...]) -> bool:
    """Return whether a ring and its bindings are as they are wanted."""
    if Counter(live.bound) != Counter(wanted):
        return False
    try:
        return wanted_ring_of(wanted, live.ring.release).buckets == live.ring.buckets
    except InputError:  # a weight that this release refuses, on a binding that is older than the rule
        return live.bound == wanted


def ring_work(
    name: str,
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    replaced: Collection[Destination],
    limit: float | None,
    *,
    hands: SlotHands | None = None,
) -> RingWork:
    """Return the plan of a ring whose exchange stays.

    Args:
        name: the exchange.
        live: the ring as it is there.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again.
        limit: the share of keys that may move; None: any.
        hands: in whose hands its slots are; None if it has none.
    """
    ring, bound = live
    touched = any(member.destination in replaced for member in (*wanted, *bound))
    if not touched and same_ring(live, wanted):
        return _work_of_same_ring(name, ring, limit, hands)
    figures = RingFigures(ring) if hands is None else RingFigures(ring, hands.before, hands.after)
    try:
        target = wanted_ring_of(wanted, ring.release)
        best = best_walk(ring, bound, wanted, replaced, figures)
    except InputError as error:
        return RingWork(RingPlan(name, ring, ring), 0, (impossible_ring(name, str(error)),))
    if best is None:
        return RingWork(RingPlan(name, ring, target), 0, (), impossible=True)
    walk, (moved, at_worst, lost) = best
    after = HashRing(*walk.rings[-1]) if walk.rings else ring
    plan = RingPlan(name, ring, after, walk.steps, moved, at_worst, lost, hands)
    if hands is not None:
        plan = replace(
            plan,
            moved=moved if walk.rings else figures.moved(ring.buckets),
            moved_at_worst=max(at_worst, hands.moved_at_worst),
            lost_at_worst=max(lost, hands.lost_at_worst),
        )
    if ring.provenance != "read":
        return RingWork(plan, walk.first, (unknown_order(name, ring), *_too_much(plan, limit)))
    once = len({member.destination for member in wanted}) == len(wanted)
    # Slots alone are in the order of their numbers. In a mixed ring an internal exchange is one member among others.
    ends = ring.destinations, tuple(member.destination for member in wanted)
    slots_alone = hands is not None and any(hands.after.keys() >= {*end} for end in ends)
    if at_worst and ring.buckets and wanted and once and not touched and not slots_alone:
        plan = replace(plan, reordered=(bound, wanted))
    return RingWork(plan, walk.first, _too_much(plan, limit))


def _work_of_same_ring(name: str, ring: HashRing, limit: float | None, hands: SlotHands | None) -> RingWork:
    """Return the plan of a ring that stays as it is. Slots may change hands behind it."""
    if hands is None:
        return RingWork(RingPlan(name, ring, ring))
    moved = hands.ring_before(ring).share_moved(hands.ring_after(ring)) if hands.handed_over else 0.0
    plan = RingPlan(name, ring, ring, (), moved, hands.moved_at_worst, hands.lost_at_worst, hands)
    unknown = (unknown_order(name, ring),) if hands.handed_over and ring.provenance != "read" else ()
    return RingWork(plan, 0, (*unknown, *_too_much(plan, limit)))


def _too_much(plan: RingPlan, limit: float | None) -> tuple[PlanRefusal, ...]:
    """Return the refusal of a plan that moves more keys than it may. Where no key had a destination, none moves."""
    if limit is None or plan.moved_at_worst <= limit or not plan.before.bucket_count:
        return ()
    return (too_much_moved(plan, limit),)


def work_of_new_ring(name: str, members: tuple[RingMember, ...], release: Release) -> RingWork:
    """Return the plan of a ring whose exchange is new."""
    before = HashRing.from_bindings([], release)
    try:
        after = wanted_ring_of(members, release)
    except InputError as error:
        return RingWork(RingPlan(name, before, before), 0, (impossible_ring(name, str(error)),))
    moved = 1.0 if after.bucket_count else 0.0
    steps = tuple(RingStep("bind", member) for member in members)
    return RingWork(RingPlan(name, before, after, steps, moved, moved))


def work_of_replaced_ring(
    name: str,
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    limit: float | None,
    *,
    hands: SlotHands | None = None,
    hashed_alike: bool,
) -> RingWork:
    """Return the plan of a ring whose exchange is deleted and declared again.

    Args:
        name: the exchange.
        live: the ring as it is there.
        wanted: the wanted members, in order.
        limit: the share of keys that may move; None: any.
        hands: in whose hands its slots are; None if it has none.
        hashed_alike: whether the exchange hashes the same of a message afterwards.
    """
    work = work_of_new_ring(name, wanted, live.ring.release)
    unbinds = _unbinds(live)
    lost = 1.0 if live.ring.bucket_count else 0.0
    before, after = live.ring, work.plan.after
    if hands is not None:
        before, after = hands.ring_before(before), hands.ring_after(after)
    moved = before.share_moved(after) if hashed_alike or not lost else 1.0
    steps = (*unbinds, *work.plan.steps)
    plan = RingPlan(name, live.ring, work.plan.after, steps, moved, max(moved, lost), lost, hands)
    return RingWork(plan, len(unbinds), (*work.refusals, *_too_much(plan, limit)))


def work_of_deleted_ring(name: str, live: LiveRing, replaced: Collection[Destination]) -> RingWork:
    """Return the plan of a ring whose exchange is deleted.

    Args:
        name: the exchange.
        live: the ring as it is there.
        replaced: destinations that are deleted and declared again.
    """
    lost = 1.0 if live.ring.bucket_count else 0.0
    after = HashRing.from_bindings([], live.ring.release)
    steps = _unbinds(live)
    touched = any(member.destination in replaced for member in live.bound)
    return RingWork(RingPlan(name, live.ring, after, steps, lost, lost, lost), len(steps) if touched else 0)


def _unbinds(live: LiveRing) -> tuple[RingStep, ...]:
    """Return the unbinding of all members, from the end of the ring."""
    place = {destination: n for n, destination in enumerate(live.ring.destinations)}
    members = sorted(live.bound, key=lambda member: -place.get(member.destination, len(place)))
    return tuple(RingStep("unbind", member) for member in members)

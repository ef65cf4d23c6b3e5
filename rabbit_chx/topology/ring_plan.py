"""The plan of the ring of one ``x-consistent-hash`` exchange: its rings, its steps, and the exact shares of keys that move.

Rings are planned for hash exchanges that are wanted, and for those that lose a member by what else is planned.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HASH_ARGUMENTS, Destination, ExchangeRef, HashRing
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.differences import ObjectDifferences
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.movement import RingFigures, SlotHands, SlotsThere, slot_hands
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember, order_of_place
from rabbit_chx.topology.proposals import RingProposal, conversions_of, proposals_of, slots_as_written
from rabbit_chx.topology.refusals import (
    PlanRefusal,
    allow_moved,
    different_external_ring,
    impossible_ring,
    unknown_order,
)
from rabbit_chx.topology.ring_steps import (
    LiveRing,
    best_steps,
    bucket_counts,
    changed_ring,
    live_ring_of,
    ring_of,
    ring_step,
    state_of,
)

_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class RingPlan:
    """What a plan does to the ring of one exchange.

    Attributes:
        exchange: the exchange's name.
        before: the ring that is there; empty for an exchange that is new.
        after: the ring that is wanted.
        steps: the binds and unbinds between them, in order.
        moved: the exact share of keys whose destination is another one in the end, as `HashRing.share_moved` counts. It is
            1.0 where the exchange hashes something else afterwards: then a key keeps its place only by chance.
        moved_at_worst: the largest share of keys whose destination is not that of before, at any moment. Keys that have
            no destination between two steps count.
        lost_at_worst: the largest share of keys that have no destination, at any moment: their messages are unroutable.
        hands: of an exchange with slots, who has them before and after. The shares are counted by queue then. Else None.
        sharing: where a ring that was read becomes slots, all bindings that are there, and the queues that share them; else None.
        reordered: all bindings that are there, and the wanted members in order, if there are `proposals`; else None.
    """

    exchange: str
    before: HashRing
    after: HashRing
    steps: tuple[PlannedChange, ...] = ()
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    hands: SlotHands | None = field(default=None, repr=False)
    sharing: tuple[tuple[RingMember, ...], tuple[RingMember, ...]] | None = field(default=None, repr=False)
    reordered: tuple[tuple[RingMember, ...], tuple[RingMember, ...]] | None = field(default=None, repr=False)
    _proposals: tuple[RingProposal, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def proposals(self) -> tuple[RingProposal, ...]:
        """Other ways to the same members, with their figures; the first is the plan as written.

        Empty where nothing moves, or where the live ring is not known. Where slots change hands there is no other way, as their
        order is that of their numbers. They are searched when they are asked for, and kept.
        """
        if self._proposals is None:
            proposals: tuple[RingProposal, ...] = ()
            figures = self.moved, self.moved_at_worst
            if self.sharing is not None and self.moved_at_worst:
                bound, queues = self.sharing
                live = LiveRing(self.exchange, self.before, bound)
                proposals = conversions_of(live, self.after, queues, figures=figures)
            elif self.hands is not None and self.moved and {*self.after.destinations} <= {*self.hands.after}:
                proposals = (slots_as_written(self.after, figures=figures),)
            elif self.reordered is not None:
                bound, wanted = self.reordered
                proposals = proposals_of(LiveRing(self.exchange, self.before, bound), wanted, figures=figures)
            # dataclass(frozen=True) leaves no other way to set an attribute.
            object.__setattr__(self, "_proposals", proposals)
            return proposals
        return self._proposals

    def is_counted_by(self, matrix: MovementMatrix) -> bool:
        """Return whether the keys that move are those of a matrix; they are not where the exchange hashes something else afterwards.

        Args:
            matrix: the `matrix` of this plan.
        """
        return abs(matrix.moved - self.moved) < _SAME

    def matrix(self) -> MovementMatrix:
        """Return from which destination to which the keys go, as exact shares.

        Destinations are in the order of the ring. With slots it is from which queue to which, in the order of names.
        """
        from rabbit_chx.analysis.matrix import movement_matrix

        if self.hands is not None:
            before, after = self.hands.ring_before(self.before), self.hands.ring_after(self.after)
            return movement_matrix(before, after).sorted_by(order_of_place)
        return movement_matrix(self.before, self.after)


class RingWork(NamedTuple):
    """The plan of a ring, and what the plan of all has to know of it.

    Attributes:
        plan: the plan of the ring.
        first: how many of its steps come before objects are replaced.
        refusals: why it may be refused, whatever moves.
        impossible: whether no binds and unbinds make the wanted ring, so that the exchange has to be declared again.
        limit: the share of keys that may move; None: any.
        figures: the figures of rings beside the live one, if they were needed.
    """

    plan: RingPlan
    first: int = 0
    refusals: tuple[PlanRefusal, ...] = ()
    impossible: bool = False
    limit: float | None = None
    figures: RingFigures | None = None

    def into_slots(self, queues: tuple[RingMember, ...], live: Topology) -> RingWork:
        """Return this with the queues that share the slots, where a ring that was read becomes slots.

        Args:
            queues: the queues.
            live: what is there.
        """
        name, before, hands = self.plan.exchange, self.plan.before, self.plan.hands
        has_slots = hands is not None and hands.before.keys() & {*before.destinations}
        if has_slots or not before.bucket_count or before.provenance != "read":
            return self
        bound = live_ring_of(live, live.exchange(name), name).bound
        return self._replace(plan=replace(self.plan, sharing=(bound, queues)))

    def as_done(self, changes: Sequence[PlannedChange], wanted: Topology, live: Topology) -> RingWork:
        """Return this with the shares of each moment as all changes are done in order: slots change hands meanwhile.

        Args:
            changes: all changes of the plan, in order.
            wanted: what should be there.
            live: what is there.
        """
        name, before = self.plan.exchange, self.plan.before
        hands = slot_hands(before, self.plan.after.destinations, wanted, live, changes)
        if hands is None:
            return self
        figures = self.figures or RingFigures(before.buckets, hands.before)
        figures.prepare(bucket_counts(before, self.plan.steps))
        slots = SlotsThere(hands.before, live)
        ring, moments = state_of(live_ring_of(live, live.exchange(name), name)), [(0.0, 0.0)]
        numbers = figures.numbers(ring.buckets)
        for change in changes:
            if change.ring and change.binding.source == name:
                ring = changed_ring(ring, change)
                numbers = figures.changed(numbers, change.binding.destination, len(ring.buckets))
            elif not slots.change(change):
                continue
            moments.append(figures.moved_and_lost(numbers, slots.names, slots.lost))
        moved, lost = zip(*moments, strict=True)
        plan = replace(
            self.plan, moved=moved[-1], moved_at_worst=max(moved), lost_at_worst=max(lost), hands=hands
        )
        return self._replace(plan=plan)


def planned_rings(
    wanted: Topology, live: Topology, objects: ObjectDifferences, bindings: Sequence[PlannedChange]
) -> dict[str, RingWork]:
    """Return the plan of each ring, by the name of its exchange, in the order of names.

    Args:
        wanted: what should be there.
        live: what is there.
        objects: what differs between their exchanges and queues.
        bindings: the binds and unbinds of other exchanges before and while rings change: slots change hands by them.
    """
    wanted_exchanges, live_exchanges = (
        {exchange.name: exchange for exchange in side.exchanges} for side in (wanted, live)
    )
    works = {}
    for name in sorted(wanted_exchanges.keys() | live_exchanges.keys()):
        exchange, live_exchange = wanted_exchanges.get(name), live_exchanges.get(name)
        if any(side is not None and side.type == HASH_EXCHANGE for side in (exchange, live_exchange)):
            work = _planned_ring(
                name, exchange, live_exchange, wanted=wanted, live=live, objects=objects, bindings=bindings
            )
            if work is not None:
                works[name] = work
    return works


def _planned_ring(
    name: str,
    exchange: ExchangeDefinition | None,
    live_exchange: ExchangeDefinition | None,
    *,
    wanted: Topology,
    live: Topology,
    objects: ObjectDifferences,
    bindings: Sequence[PlannedChange],
) -> RingWork | None:
    """Return the plan of the ring of an exchange, as it is wanted and as it is there; None if it is no part of the plan."""
    old, itself = live_ring_of(live, live_exchange, name), ExchangeRef(name)
    if itself in objects.gone:
        return _work_of_deleted(old, objects.again)
    if exchange is not None and exchange.owner == "external":
        if live_exchange is None or exchange.ring is None or old.is_made_by(exchange.ring):
            return None
        return RingWork(RingPlan(name, old.ring, old.ring), refusals=(different_external_ring(name),))
    members = None if exchange is None else exchange.ring
    if live_exchange is None:
        return None if members is None else _work_of_new(old, members)
    replaced = exchange is not None and itself in objects.again
    if members is None:
        gone = objects.gone
        if not replaced and not any(member.destination in gone | objects.again for member in old.bound):
            return None
        members = tuple(member for member in old.bound if replaced or member.destination not in gone)
    if exchange is not None and exchange.type != HASH_EXCHANGE:
        members = ()
    hands = slot_hands(old.ring, [member.destination for member in members], wanted, live, bindings)
    if exchange is None or not replaced:
        work = _work_of_staying(old, members, objects.again, hands)
    else:
        alike = all(
            live_exchange.arguments.get(hashed) == exchange.arguments.get(hashed) for hashed in HASH_ARGUMENTS
        )
        work = _work_of_replaced(old, members, hands, hashed_alike=alike)
    limit = None if exchange is None else exchange.max_share_moved
    return work._replace(limit=wanted.max_share_moved if limit is None else limit)


def _work_of_staying(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    replaced: Collection[Destination],
    hands: SlotHands | None,
) -> RingWork:
    """Return the plan of a ring whose exchange stays, though destinations of it may be replaced."""
    name, ring, bound = live
    touched = any(member.destination in replaced for member in (*wanted, *bound))
    if not touched and live.is_made_by(wanted):
        unknown = hands is not None and hands.handed_over and ring.provenance != "read"
        return RingWork(
            RingPlan(name, ring, ring, hands=hands), refusals=(unknown_order(name, ring),) if unknown else ()
        )
    before, after = ({}, {}) if hands is None else (hands.before, hands.after)
    figures = RingFigures(ring.buckets, before)
    try:
        steps = best_steps(live, wanted, replaced, figures, after)
        target = ring_of(wanted, ring.release)
    except InputError as error:
        return RingWork(RingPlan(name, ring, ring), refusals=(impossible_ring(name, str(error)),))
    if steps is None:
        return RingWork(RingPlan(name, ring, target), impossible=True)
    plan = RingPlan(
        name, ring, steps.after, steps.steps, steps.moved, steps.moved_at_worst, steps.lost_at_worst, hands
    )
    if ring.provenance != "read":
        return RingWork(plan, steps.first, (unknown_order(name, ring),), figures=figures)
    destinations = {member.destination for member in wanted}
    # Slots alone are in the order of their numbers. In a mixed ring an internal exchange is one member among others.
    slots_alone = any(after.keys() >= side for side in ({*ring.destinations}, destinations) if hands)
    once = len(destinations) == len(wanted)
    if plan.moved_at_worst and ring.buckets and wanted and once and not touched and not slots_alone:
        plan = replace(plan, reordered=(bound, wanted))
    return RingWork(plan, steps.first, figures=figures)


def _work_of_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> RingWork:
    """Return the plan of a ring whose exchange is new. `live` is empty."""
    nothing = ring_of((), live.ring.release)
    try:
        after = ring_of(wanted, live.ring.release)
    except InputError as error:
        return RingWork(
            RingPlan(live.exchange, nothing, nothing), refusals=(impossible_ring(live.exchange, str(error)),)
        )
    moved = 1.0 if after.bucket_count else 0.0
    steps = tuple(ring_step("bind", live.exchange, member) for member in wanted)
    return RingWork(RingPlan(live.exchange, nothing, after, steps, moved, moved))


def _work_of_replaced(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    hands: SlotHands | None,
    *,
    hashed_alike: bool,
) -> RingWork:
    """Return the plan of a ring whose exchange is deleted and declared again, and may hash something else then."""
    new, refusals = (work := _work_of_new(live, wanted)).plan, work.refusals
    before, after = live.ring, new.after
    if hands is not None:
        before, after = hands.ring_before(before), hands.ring_after(after)
    lost = 1.0 if live.ring.bucket_count else 0.0
    moved = before.share_moved(after) if hashed_alike or not lost else 1.0
    unbinds = _unbinds(live)
    plan = RingPlan(
        live.exchange, live.ring, new.after, (*unbinds, *new.steps), moved, max(moved, lost), lost, hands
    )
    return RingWork(plan, len(unbinds), refusals)


def _work_of_deleted(live: LiveRing, replaced: Collection[Destination]) -> RingWork:
    """Return the plan of a ring whose exchange is deleted."""
    lost = 1.0 if live.ring.bucket_count else 0.0
    steps = _unbinds(live)
    touched = any(member.destination in replaced for member in live.bound)
    plan = RingPlan(live.exchange, live.ring, ring_of((), live.ring.release), steps, lost, lost, lost)
    return RingWork(plan, len(steps) if touched else 0)


def _unbinds(live: LiveRing) -> tuple[PlannedChange, ...]:
    """Return the unbinding of all members, from the end of the ring."""
    position = {destination: n for n, destination in enumerate(live.ring.destinations)}
    members = sorted(live.bound, key=lambda member: -position.get(member.destination, len(position)))
    return tuple(ring_step("unbind", live.exchange, member) for member in members)


def too_much_moved(ring: RingPlan, limit: float) -> PlanRefusal:
    """Return the refusal of a ring plan that moves more keys than it may.

    Args:
        ring: the ring plan.
        limit: the share that may move.
    """
    flag = allow_moved(ring.moved_at_worst)
    ways = {proposal.strategy: proposal for proposal in ring.proposals}
    orders = [ways[strategy] for strategy in ("least-moving-order", "fewest-steps") if strategy in ways]
    order, beside = min(orders, key=lambda way: way.moved_at_worst, default=None), ways.get("new-exchange")
    better = ""
    if order is not None and order.moved_at_worst < ring.moved_at_worst:
        figures = f"{_percent(order.moved)} in the end, {_percent(order.moved_at_worst)} at the worst moment"
        better = f"write the members in the order of the proposal {order.strategy} ({figures}), "
    elif beside is not None and beside.moved_at_worst <= limit:
        share = f"{_percent(beside.moved)} at any moment"
        better = f"go by a new exchange, as the proposal new-exchange says ({share}), "
    return PlanRefusal(
        f"{_what_moves(ring)} in the end, {_percent(ring.moved_at_worst)} at the worst moment, and max_share_moved is {limit:g}: {better}raise "
        f"max_share_moved, or allow it once with {flag}",
        flag,
        ring.moved_at_worst,
    )


def _what_moves(ring: RingPlan) -> str:
    share = f"{_percent(ring.moved)} of the keys"
    over = () if ring.hands is None else ring.hands.handed_over
    if over:
        what = "slot changes" if len(over) == 1 else "slots change"
        return f"{len(over)} {what} hands in {ring.exchange}: {share} have another queue"
    return f"{share} of {ring.exchange} have another {'destination' if ring.hands is None else 'queue'}"


def _percent(share: float) -> str:
    text = f"{share:.1%}"
    return "less than 0.1%" if share and text == "0.0%" else text

"""The plan of the ring of one ``x-consistent-hash`` exchange: its rings, its steps, and the exact shares of keys that move.

Rings are planned for wanted hash exchanges, and for those that lose a member by another part of the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.comparison import Comparison
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.movement import (
    MovementCounter,
    OwnersDuringPlan,
    SlotHandOver,
    SlotOwnership,
    find_slot_ownership,
)
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember, order_of_place
from rabbit_chx.topology.proposals import RingProposal, conversions_of, proposals_of, slots_as_written
from rabbit_chx.topology.refusals import allow_moved, invalid_ring, unknown_order
from rabbit_chx.topology.ring_steps import (
    LiveRing,
    apply_step,
    bucket_counts,
    find_best_steps,
    find_live_ring,
    make_ring,
    make_step,
)

_ROUNDING = 1e-9
#: The largest share that may move in a ring whose wanted order is assumed, if the topology has no limit.
_ASSUMED_LIMIT = 0.3


@dataclass(frozen=True, slots=True)
class RingPlan:
    """The plan of the ring of one exchange.

    Attributes:
        before: the live ring; empty for a new exchange.
        after: the wanted ring.
        steps: the binds and unbinds between them, in order.
        moved: the exact share of keys with another destination at the end, as in `HashRing.share_moved`. It is 1.0 if the exchange hashes
            something else afterwards: then a key keeps its destination only by chance.
        moved_at_worst: the largest share of keys whose destination differs from `before` at any moment. Keys without a destination between
            two steps count.
        lost_at_worst: the largest share of keys without a destination at any moment: their messages are unroutable.
        ownership: the owners of the slots before and after the plan; None without slots. With slots, shares are counted by queue.
        proposals: alternatives with the same members, with their shares; the first is the plan as written. Empty if nothing moves or the
            live ring is not known.
    """

    exchange: str
    before: HashRing
    after: HashRing
    steps: tuple[PlannedChange, ...] = ()
    moved: float = 0.0
    moved_at_worst: float = 0.0
    lost_at_worst: float = 0.0
    ownership: SlotOwnership | None = field(default=None, repr=False)
    proposals: tuple[RingProposal, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_moving(self) -> bool:
        """True if its ring changes, or keys of it move."""
        return bool(self.steps or self.moved or self.moved_at_worst)

    @property
    def handed_over(self) -> tuple[SlotHandOver, ...]:
        """The slots whose queue changes, in ring order."""
        return () if self.ownership is None else self.ownership.handed_over

    def is_explained_by(self, matrix: MovementMatrix) -> bool:
        """Return True if a `matrix` has the share `moved`. It has another one if the exchange hashes something else afterwards."""
        return abs(matrix.moved - self.moved) < _ROUNDING

    def matrix(self) -> MovementMatrix:
        """Return the exact share of keys that move from each destination to each other one.

        Destinations are in ring order. With slots, the destinations are queues, in the order of names.
        """
        from rabbit_chx.analysis.matrix import movement

        if self.ownership is not None:
            before, after = self.ownership.ring_before(self.before), self.ownership.ring_after(self.after)
            return movement(before, after).sorted_by(order_of_place)
        return movement(self.before, self.after)


class RingWork(NamedTuple):
    """The plan of a ring while the plan of the topology is made.

    Attributes:
        early_step_count: the number of its steps before the replacement of objects.
        refusals: the reasons to refuse it, except the share that moves.
        impossible: True if no binds and unbinds make the wanted ring, so that the exchange must be replaced.
        limit: the share of keys that may move; None: any.
        counter: counts the keys that move away from the live ring; None if nothing was counted.
        reorderable: the wanted members if another order may be proposed, else empty.
        is_default: True if the topology has no limit, and its order is assumed.
    """

    plan: RingPlan
    early_step_count: int = 0
    refusals: tuple[Finding, ...] = ()
    impossible: bool = False
    limit: float | None = None
    live: LiveRing | None = None
    counter: MovementCounter | None = None
    reorderable: tuple[RingMember, ...] = ()
    is_default: bool = False

    @property
    def is_over_limit(self) -> bool:
        """True if more keys move than the limit. If no key had a destination before, none moves."""
        plan = self.plan
        return self.limit is not None and plan.moved_at_worst > self.limit and plan.before.bucket_count > 0

    def with_hand_overs(self, changes: Sequence[PlannedChange], wanted: Topology, live: Topology) -> RingWork:
        """Return this plan with shares counted by queue, after each of the `changes`: slots are handed over between the steps of the ring."""
        before, steps = self.plan.before, self.plan.steps
        if self.plan.ownership is None:
            return self
        ownership = find_slot_ownership(before, self.plan.after.destinations, wanted, live, changes)
        if ownership is None or self.live is None:
            return self
        counter = self.counter or MovementCounter(before.buckets, ownership.before)
        counter.prepare(bucket_counts(before, steps))
        owners = OwnersDuringPlan(ownership.before, live)
        ring, moments = self.live.state, [(0.0, 0.0)]
        numbers = counter.number_destinations(ring.buckets)
        for change in changes:
            concerned: Collection[Place] = ()
            if change.ring and change.binding.source == self.plan.exchange:
                ring = apply_step(ring, change)
                numbers = counter.update_numbers(numbers, change.binding.destination, len(ring.buckets))
            elif not (concerned := owners.apply(change)):
                continue
            changed = concerned if len(moments) > 1 else None  # the first moment knows no owners
            moments.append(counter.count_moved_and_lost(numbers, owners.current, owners.dead_ends, changed))
        moved, lost = zip(*moments, strict=True)
        plan = replace(
            self.plan,
            moved=moved[-1],
            moved_at_worst=max(moved),
            lost_at_worst=max(lost),
            ownership=ownership,
        )
        return self._replace(plan=plan)

    def with_proposals(self, slot_members: tuple[RingMember, ...]) -> RingWork:
        """Return this plan with the proposals. `slot_members` are the queues that share the wanted slots; empty without slots."""
        plan, live, ownership = self.plan, self.live, self.plan.ownership
        shares = plan.moved, plan.moved_at_worst
        proposals: tuple[RingProposal, ...] = ()
        if live is not None and slot_members and plan.moved_at_worst and self._converts_to_slots:
            proposals = conversions_of(live, plan.after, slot_members, shares)
        elif ownership is not None and plan.moved and {*plan.after.destinations} <= {*ownership.after}:
            proposals = (slots_as_written(plan.after, shares),)
        elif live is not None and self.reorderable:
            counter = self.counter if ownership is None else None
            counter = counter or MovementCounter(live.ring.buckets)
            proposals = proposals_of(live, self.reorderable, shares, counter)
        return self._replace(plan=replace(plan, proposals=proposals))

    @property
    def _converts_to_slots(self) -> bool:
        before, ownership = self.plan.before, self.plan.ownership
        if ownership is None or ownership.before.keys() & {*before.destinations}:
            return False
        return before.bucket_count > 0 and before.provenance == "read"


def plan_rings(compared: Comparison, bindings: Sequence[PlannedChange]) -> dict[str, RingWork]:
    """Return the plan of each ring, by the name of its exchange, in the order of names.

    `bindings` are the binds and unbinds of other exchanges that precede or accompany the steps of rings. They hand over slots.
    """
    wanted, live = compared.wanted, compared.live
    wanted_exchanges, live_exchanges = (
        {exchange.name: exchange for exchange in side.exchanges} for side in (wanted, live)
    )
    works = {}
    for name in sorted(wanted_exchanges.keys() | live_exchanges.keys()):
        if wanted.is_assumed(name) and name in live.sources_left_out and name not in live.rings:
            continue  # it has a member that no client can name
        exchange, live_exchange = wanted_exchanges.get(name), live_exchanges.get(name)
        if any(side is not None and side.type == HASH_EXCHANGE for side in (exchange, live_exchange)):
            live_ring = find_live_ring(live, live_exchange, name)
            work = _plan_ring(live_ring, exchange, live_exchange, compared, bindings)
            if work is not None:
                works[name] = work._replace(live=live_ring)
    return works


def _plan_ring(
    live_ring: LiveRing,
    exchange: ExchangeDefinition | None,
    live_exchange: ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
) -> RingWork | None:
    """Return the plan of the ring of an exchange; None if the ring is not part of the plan."""
    wanted, live, name = compared.wanted, compared.live, live_ring.exchange
    deleted, replaced = compared.deleted_refs, compared.replaced_refs
    itself = ExchangeRef(name)
    if itself in deleted:
        return _plan_deleted(live_ring, replaced)
    if exchange is not None and exchange.owner == "external":
        ring, is_assumed = exchange.ring, wanted.is_assumed(name)
        if live_exchange is None or ring is None or live_ring.is_wanted(ring, is_assumed=is_assumed):
            return None
        message = f"exchange {name} is external, and its ring differs"
        refusal = Finding("different", message, "correct the topology, or ask its owner")
        return RingWork(RingPlan(name, live_ring.ring, live_ring.ring), refusals=(refusal,))
    members = None if exchange is None else exchange.ring
    if live_exchange is None:
        return None if members is None else _plan_new(live_ring, members)
    is_replaced = exchange is not None and itself in replaced
    if members is None:
        if not is_replaced and not any(
            member.destination in deleted | replaced for member in live_ring.bound
        ):
            return None
        members = tuple(
            member for member in live_ring.bound if is_replaced or member.destination not in deleted
        )
    if exchange is not None and exchange.type != HASH_EXCHANGE:
        members = ()
    ownership = find_slot_ownership(
        live_ring.ring, [member.destination for member in members], wanted, live, bindings
    )
    is_assumed = exchange is not None and wanted.is_assumed(name)
    if exchange is None or not is_replaced:
        work = _plan_kept(live_ring, members, replaced, ownership, is_assumed=is_assumed)
    else:
        hashes_same = all(
            live_exchange.arguments.get(name) == exchange.arguments.get(name) for name in HASH_ARGUMENTS
        )
        work = _plan_replaced(live_ring, members, ownership, hashes_same=hashes_same)
    limit = None if exchange is None else exchange.max_share_moved
    limit = wanted.max_share_moved if limit is None else limit
    is_default = limit is None and is_assumed
    return work._replace(limit=_ASSUMED_LIMIT if is_default else limit, is_default=is_default)


def _plan_kept(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    replaced: Collection[Destination],
    ownership: SlotOwnership | None,
    *,
    is_assumed: bool,
) -> RingWork:
    name, ring, bound = live
    has_replaced = any(member.destination in replaced for member in (*wanted, *bound))
    if not has_replaced and live.is_wanted(wanted, is_assumed=is_assumed):
        is_order_needed = ownership is not None and ownership.handed_over and ring.provenance != "read"
        plan = RingPlan(name, ring, ring, ownership=ownership)
        return RingWork(plan, refusals=(unknown_order(name, ring),) if is_order_needed else ())
    before, after = ({}, {}) if ownership is None else (ownership.before, ownership.after)
    counter = MovementCounter(ring.buckets, before)
    try:
        steps = find_best_steps(live, wanted, replaced, counter, after)
        target = make_ring(wanted, ring.release)
    except InputError as error:
        return RingWork(RingPlan(name, ring, ring), refusals=(invalid_ring(name, error),))
    if steps is None:
        return RingWork(RingPlan(name, ring, target), impossible=True)
    plan = RingPlan(
        name,
        ring,
        steps.after,
        steps.steps,
        steps.moved,
        steps.moved_at_worst,
        steps.lost_at_worst,
        ownership,
    )
    work = RingWork(plan, steps.early_step_count, counter=counter)
    if ring.provenance != "read":
        return work._replace(refusals=(unknown_order(name, ring),))
    destinations = {member.destination for member in wanted}
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    has_only_slots = any(after.keys() >= side for side in ({*ring.destinations}, destinations) if ownership)
    is_bound_once = len(destinations) == len(wanted)
    is_movable = not (has_replaced or has_only_slots or is_assumed)
    if plan.moved_at_worst and ring.buckets and is_bound_once and is_movable:
        work = work._replace(reorderable=wanted)
    return work


def _plan_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> RingWork:
    name, empty = live.exchange, make_ring((), live.ring.release)
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        return RingWork(RingPlan(name, empty, empty), refusals=(invalid_ring(name, error),))
    moved = 1.0 if after.bucket_count else 0.0
    steps = tuple(make_step("bind", name, member) for member in wanted)
    return RingWork(RingPlan(name, empty, after, steps, moved, moved))


def _plan_replaced(
    live: LiveRing, wanted: tuple[RingMember, ...], ownership: SlotOwnership | None, *, hashes_same: bool
) -> RingWork:
    new, refusals = (work := _plan_new(live, wanted)).plan, work.refusals
    before, after = live.ring, new.after
    if ownership is not None:
        before, after = ownership.ring_before(before), ownership.ring_after(after)
    lost = 1.0 if live.ring.bucket_count else 0.0
    moved = before.share_moved(after) if hashes_same or not lost else 1.0
    unbinds = live.unbinds()
    plan = RingPlan(
        live.exchange, live.ring, new.after, (*unbinds, *new.steps), moved, max(moved, lost), lost, ownership
    )
    return RingWork(plan, len(unbinds), refusals)


def _plan_deleted(live: LiveRing, replaced: Collection[Destination]) -> RingWork:
    lost = 1.0 if live.ring.bucket_count else 0.0
    steps = live.unbinds()
    has_replaced = any(member.destination in replaced for member in live.bound)
    plan = RingPlan(live.exchange, live.ring, make_ring((), live.ring.release), steps, lost, lost, lost)
    return RingWork(plan, len(steps) if has_replaced else 0)


def movement_refusal(ring: RingPlan, limit: float, *, is_default: bool = False) -> Finding:
    """Return the refusal of a ring plan that moves more keys than the limit. `is_default`: the topology does not set the limit."""
    flag = allow_moved(ring.moved_at_worst)
    proposals = {proposal.strategy: proposal for proposal in ring.proposals}
    orders = [
        proposals[strategy] for strategy in ("least-moving-order", "fewest-steps") if strategy in proposals
    ]
    order = min(orders, key=lambda proposal: proposal.moved_at_worst, default=None)
    new_exchange = proposals.get("new-exchange")
    better = ""
    if order is not None and order.moved_at_worst < ring.moved_at_worst:
        shares = f"{_percent(order.moved)} in the end, {_percent(order.moved_at_worst)} at the worst moment"
        better = f"write the members in the order of the proposal {order.strategy} ({shares}), "
    elif new_exchange is not None and new_exchange.moved_at_worst <= limit:
        share = f"{_percent(new_exchange.moved)} at any moment"
        better = f"use a new exchange, as in the proposal new-exchange ({share}), "
    shares = f"{_movement_text(ring)} in the end, {_percent(ring.moved_at_worst)} at the worst moment"
    fix = f"{better}raise max_share_moved, or allow it once with {flag}"
    if is_default:
        fix = f"allow it once with {flag}, or write a topology file, which has the order of the ring and max_share_moved"
    return Finding(
        "moved",
        f"{shares}, and {f'the limit without max_share_moved is {limit:g}' if is_default else f'max_share_moved is {limit:g}'}",
        fix,
        share=ring.moved_at_worst,
        allow_with=flag,
    )


def _movement_text(ring: RingPlan) -> str:
    share = f"{_percent(ring.moved)} of the keys"
    if count := len(ring.handed_over):
        slots = "slot changes" if count == 1 else "slots change"
        return f"{count} {slots} hands in {ring.exchange}: {share} have another queue"
    return f"{share} of {ring.exchange} have another {'destination' if ring.ownership is None else 'queue'}"


def _percent(share: float) -> str:
    text = f"{share:.1%}"
    return "less than 0.1%" if share and text == "0.0%" else text

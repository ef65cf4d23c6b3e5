"""The change of the ring of one ``x-consistent-hash`` exchange: its steps, and the exact shares of keys that move.

Rings are planned for wanted hash exchanges, and for those that lose a member by another part of the plan. `plan_rings` makes a `RingWork` of
each: its `MapChange`, and what the rest of the plan needs besides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.live_rings import LiveRing, find_live_ring, make_ring
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember
from rabbit_chx.topology.planning.comparison import Comparison
from rabbit_chx.topology.planning.map_change import MapChange
from rabbit_chx.topology.planning.movement import (
    MovementCounter,
    OwnersDuringPlan,
    SlotOwnership,
    find_slot_ownership,
)
from rabbit_chx.topology.planning.proposals import (
    RingProposal,
    conversions_of,
    proposals_of,
    slots_as_written,
)
from rabbit_chx.topology.planning.refusals import invalid_ring, unknown_order
from rabbit_chx.topology.planning.ring_steps import (
    apply_step,
    bucket_counts,
    find_best_steps,
    make_step,
    unbind_all,
)

#: The largest share that may move in a ring whose wanted order is assumed, if the topology has no limit.
_ASSUMED_LIMIT = 0.3


class RingWork(NamedTuple):
    """The change of a ring while the plan of the topology is made.

    Attributes:
        change: the change so far.
        early_step_count: the number of its steps before the replacement of objects.
        refusals: the reasons to refuse it, except the share that moves.
        impossible: True if no binds and unbinds make the wanted ring, so that the exchange must be replaced.
        live: the live ring.
        counter: counts the keys that move away from the live ring; None if nothing was counted.
        reorderable: the wanted members if another order may be proposed, else empty.
        is_default: True if the topology has no limit, and its order is assumed.
    """

    change: MapChange
    early_step_count: int = 0
    refusals: tuple[Finding, ...] = ()
    impossible: bool = False
    live: LiveRing | None = None
    counter: MovementCounter | None = None
    reorderable: tuple[RingMember, ...] = ()
    is_default: bool = False

    def with_hand_overs(
        self, changes: Sequence[PlannedChange], wanted: Topology, live: LiveTopology
    ) -> RingWork:
        """Return this change with shares counted by queue, after each of the `changes`: slots are handed over between the steps of the ring."""
        before, steps = self.change.before, self.change.steps
        if self.change.ownership is None:
            return self
        ownership = find_slot_ownership(before, self.change.after.destinations, wanted, live, changes)
        if ownership is None or self.live is None:
            return self
        counter = self.counter or MovementCounter(before.buckets, ownership.before)
        counter.prepare(bucket_counts(before.buckets, steps))
        owners = OwnersDuringPlan(ownership.before, live)
        ring, moments = self.live.state, [(0.0, 0.0)]
        numbers = counter.number_destinations(ring.buckets)
        for change in changes:
            concerned: Collection[Place] = ()
            if change.ring and change.binding.source == self.change.exchange:
                ring = apply_step(ring, change)
                numbers = counter.update_numbers(numbers, change.binding.destination, len(ring.buckets))
            elif not (concerned := owners.apply(change)):
                continue
            changed = concerned if len(moments) > 1 else None  # the first moment knows no owners
            moments.append(counter.count_moved_and_lost(numbers, owners.current, owners.dead_ends, changed))
        moved, lost = zip(*moments, strict=True)
        counted = replace(
            self.change,
            moved=moved[-1],
            moved_at_worst=max(moved),
            lost_at_worst=max(lost),
            ownership=ownership,
        )
        return self._replace(change=counted)

    def with_proposals(self, slot_members: tuple[RingMember, ...]) -> RingWork:
        """Return this change with the proposals. `slot_members` are the queues that share the wanted slots; empty without slots."""
        change, live, ownership = self.change, self.live, self.change.ownership
        shares = change.moved, change.moved_at_worst
        proposals: tuple[RingProposal, ...] = ()
        if live is not None and slot_members and change.moved_at_worst and self._converts_to_slots:
            proposals = conversions_of(live, change.after, slot_members, shares)
        elif ownership is not None and change.moved and {*change.after.destinations} <= {*ownership.after}:
            proposals = (slots_as_written(change.after, shares),)
        elif live is not None and self.reorderable:
            counter = self.counter if ownership is None else None
            counter = counter or MovementCounter(live.ring.buckets)
            proposals = proposals_of(live, self.reorderable, shares, counter)
        return self._replace(change=replace(change, proposals=proposals))

    @property
    def _converts_to_slots(self) -> bool:
        """True if the live ring is certain and has no slots, and the wanted one has some."""
        before, ownership = self.change.before, self.change.ownership
        if ownership is None or ownership.before.keys() & {*before.destinations}:
            return False
        return before.bucket_count > 0 and before.ground.is_certain


def plan_rings(compared: Comparison, bindings: Sequence[PlannedChange]) -> dict[str, RingWork]:
    """Return the change of each ring, by the name of its exchange, in the order of names.

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
    """Return the change of the ring of an exchange; None if the ring is not part of the plan.

    The exchange is deleted, external, new, replaced or kept, in this order. A kept exchange without wanted members is part of the plan if it
    loses a member.
    """
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
        return RingWork(MapChange(name, live_ring.ring, live_ring.ring), refusals=(refusal,))
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
    change = replace(work.change, limit=_ASSUMED_LIMIT if is_default else limit)
    return work._replace(change=change, is_default=is_default)


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
        is_order_needed = ownership is not None and ownership.handed_over and not ring.ground.is_certain
        change = MapChange(name, ring, ring, ownership=ownership)
        return RingWork(change, refusals=(unknown_order(name, ring),) if is_order_needed else ())
    before, after = ({}, {}) if ownership is None else (ownership.before, ownership.after)
    counter = MovementCounter(ring.buckets, before)
    try:
        steps = find_best_steps(live, wanted, replaced, counter, after)
    except InputError as error:
        return RingWork(MapChange(name, ring, ring), refusals=(invalid_ring(name, error),))
    if steps is None:
        return RingWork(MapChange(name, ring, make_ring(wanted, ring.release)), impossible=True)
    change = MapChange(
        name,
        ring,
        steps.after,
        steps.steps,
        steps.moved,
        steps.moved_at_worst,
        steps.lost_at_worst,
        ownership=ownership,
    )
    work = RingWork(change, steps.early_step_count, counter=counter)
    if not ring.ground.is_certain:
        return work._replace(refusals=(unknown_order(name, ring),))
    destinations = {member.destination for member in wanted}
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    has_only_slots = ownership is not None and any(
        after.keys() >= side for side in ({*ring.destinations}, destinations)
    )
    is_bound_once = len(destinations) == len(wanted)
    is_movable = not (has_replaced or has_only_slots or is_assumed)
    if change.moved_at_worst and ring.buckets and is_bound_once and is_movable:
        work = work._replace(reorderable=wanted)
    return work


def _plan_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> RingWork:
    name, empty = live.exchange, make_ring((), live.ring.release)
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        return RingWork(MapChange(name, empty, empty), refusals=(invalid_ring(name, error),))
    moved = 1.0 if after.bucket_count else 0.0
    steps = tuple(make_step("bind", name, member) for member in wanted)
    return RingWork(MapChange(name, empty, after, steps, moved, moved))


def _plan_replaced(
    live: LiveRing, wanted: tuple[RingMember, ...], ownership: SlotOwnership | None, *, hashes_same: bool
) -> RingWork:
    new = _plan_new(live, wanted)
    before, after = live.ring, new.change.after
    if ownership is None:
        moved = before.share_moved(after)
    else:
        moved = ownership.ring_before(before).share_moved(ownership.ring_after(after))
    lost = 1.0 if before.bucket_count else 0.0
    moved = moved if hashes_same or not lost else 1.0
    unbinds = unbind_all(live)
    steps = (*unbinds, *new.change.steps)
    change = MapChange(
        live.exchange, before, after, steps, moved, max(moved, lost), lost, ownership=ownership
    )
    return RingWork(change, len(unbinds), new.refusals)


def _plan_deleted(live: LiveRing, replaced: Collection[Destination]) -> RingWork:
    lost = 1.0 if live.ring.bucket_count else 0.0
    steps = unbind_all(live)
    has_replaced = any(member.destination in replaced for member in live.bound)
    change = MapChange(live.exchange, live.ring, make_ring((), live.ring.release), steps, lost, lost, lost)
    return RingWork(change, len(steps) if has_replaced else 0)

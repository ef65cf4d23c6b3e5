"""The plan of the ring of each ``x-consistent-hash`` exchange: its steps, and the exact shares of keys that move.

Rings are planned for wanted hash exchanges, and for those that lose a member by another part of the plan. `plan_rings` finds the steps.
The shares of a ring with slots depend on the order of all changes of the plan: `plan_slots` counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

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
from rabbit_chx.topology.planning.movement import (
    MovementCounter,
    OwnersDuringPlan,
    SlotOwnership,
    find_slot_ownership,
)
from rabbit_chx.topology.planning.proposals import conversions_of, proposals_of, slots_as_written
from rabbit_chx.topology.planning.refusals import invalid_ring, unknown_order
from rabbit_chx.topology.planning.ring_plan import Moment, RingPlan, RingProposal
from rabbit_chx.topology.planning.ring_steps import (
    apply_step,
    bucket_counts,
    find_best_steps,
    make_step,
    unbind_all,
)

#: The largest share that may move in a ring whose wanted order is assumed, if the topology has no limit.
_ASSUMED_LIMIT = 0.3


def plan_rings(
    compared: Comparison, bindings: Sequence[PlannedChange], *, propose: bool
) -> dict[str, RingPlan]:
    """Return the plan of each ring, by the name of its exchange, in the order of names.

    Args:
        compared: the two sides.
        bindings: the binds and unbinds of other exchanges that precede or accompany the steps of rings. They hand over slots.
        propose: True: search alternatives that move fewer keys. Otherwise only rings over their limit have proposals.
    """
    wanted, live = compared.wanted, compared.live
    wanted_exchanges, live_exchanges = (
        {exchange.name: exchange for exchange in side.exchanges} for side in (wanted, live)
    )
    rings = {}
    for name in sorted(wanted_exchanges.keys() | live_exchanges.keys()):
        if wanted.is_assumed(name) and name in live.sources_left_out and name not in live.rings:
            continue  # it has a member that no client can name
        exchange, live_exchange = wanted_exchanges.get(name), live_exchanges.get(name)
        if any(side is not None and side.type == HASH_EXCHANGE for side in (exchange, live_exchange)):
            live_ring = find_live_ring(live, live_exchange, name)
            ring = _plan_ring(live_ring, exchange, live_exchange, compared, bindings, propose=propose)
            if ring is not None:
                rings[name] = ring
    return rings


def plan_slots(
    ring: RingPlan, changes: Sequence[PlannedChange], compared: Comparison, *, propose: bool
) -> RingPlan:
    """Return the plan of a ring with slots, with its shares by queue and its proposals.

    Args:
        ring: the plan of `plan_rings`.
        changes: all changes of the plan, in order. Slots are handed over between the steps of the ring.
        compared: the two sides.
        propose: as in `plan_rings`.
    """
    wanted, live, name = compared.wanted, compared.live, ring.exchange
    live_ring = find_live_ring(live, live.exchange(name), name)
    sharing: tuple[RingMember, ...] = ()
    if ExchangeRef(name) not in compared.replaced_refs:
        ownership = find_slot_ownership(ring.before, ring.after.destinations, wanted, live, changes)
        if ownership is not None:
            moments = _moments_by_queue(ring, live_ring, ownership, changes, live)
            ring = replace(ring, moments=moments, ownership=ownership)
        if name in compared.layouts:
            sharing = compared.layouts[name].exchange.members or ()
    if not (propose or ring.is_over_limit):
        return ring
    return replace(ring, proposals=_proposals_with_slots(ring, live_ring, sharing))


def _moments_by_queue(
    ring: RingPlan,
    live_ring: LiveRing,
    ownership: SlotOwnership,
    changes: Sequence[PlannedChange],
    live: LiveTopology,
) -> tuple[Moment, ...]:
    """Return the shares by queue before the changes, and after each one that concerns the ring or its slots."""
    counter = MovementCounter(ring.before.buckets, ownership.before)
    counter.prepare(bucket_counts(ring.before.buckets, ring.steps))
    owners = OwnersDuringPlan(ownership.before, live)
    state, moments = live_ring.state, [Moment(0.0, 0.0)]
    numbers = counter.number_destinations(state.buckets)
    for change in changes:
        concerned: Collection[Place] = ()
        if change.ring and change.binding.source == ring.exchange:
            state = apply_step(state, change)
            numbers = counter.update_numbers(numbers, change.binding.destination, len(state.buckets))
        elif not (concerned := owners.apply(change)):
            continue
        changed = concerned if len(moments) > 1 else None  # the first moment knows no owners
        moments.append(
            Moment(*counter.count_moved_and_lost(numbers, owners.current, owners.dead_ends, changed))
        )
    return tuple(moments)


def _proposals_with_slots(
    ring: RingPlan, live_ring: LiveRing, sharing: tuple[RingMember, ...]
) -> tuple[RingProposal, ...]:
    """Return the proposals for a ring with slots. `sharing` are the queues that share the wanted slots."""
    before, after, ownership = ring.before, ring.after, ring.ownership
    assert ownership is not None  # it has slots
    had_slots = ownership.before.keys() & {*before.destinations}
    is_conversion = before.bucket_count > 0 and before.ground.is_certain and not had_slots
    if sharing and ring.moved_at_worst and is_conversion:
        return conversions_of(live_ring, after, sharing, ring.shares)
    if ring.moved and {*after.destinations} <= {*ownership.after}:
        return (slots_as_written(after, ring.shares),)
    if ring.reorderable:
        return proposals_of(live_ring, ring.reorderable, ring.shares, MovementCounter(before.buckets))
    return ()


def _plan_ring(
    live_ring: LiveRing,
    exchange: ExchangeDefinition | None,
    live_exchange: ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
    *,
    propose: bool,
) -> RingPlan | None:
    """Return the plan of the ring of an exchange; None if the ring is not part of the plan.

    The exchange is deleted, external, new, replaced or kept, in this order. A kept exchange without wanted members is part of the plan if it
    loses a member.
    """
    wanted, live, name = compared.wanted, compared.live, live_ring.exchange
    if ExchangeRef(name) in compared.deleted_refs:
        return _plan_deleted(live_ring, compared.replaced_refs)
    if exchange is not None and exchange.owner == "external":
        return None if live_exchange is None else _plan_external(live_ring, exchange.ring, wanted)
    if live_exchange is None:
        return None if exchange is None or exchange.ring is None else _plan_new(live_ring, exchange.ring)
    is_replaced = exchange is not None and ExchangeRef(name) in compared.replaced_refs
    members = _members_after(live_ring, exchange, compared, is_replaced=is_replaced)
    if members is None:
        return None
    ownership = find_slot_ownership(
        live_ring.ring, [member.destination for member in members], wanted, live, bindings
    )
    is_assumed = exchange is not None and wanted.is_assumed(name)
    limit = compared.limit_of(name)
    limit = _ASSUMED_LIMIT if limit is None and is_assumed else limit
    if exchange is not None and is_replaced:
        hashes_same = all(
            live_exchange.arguments.get(name) == exchange.arguments.get(name) for name in HASH_ARGUMENTS
        )
        return replace(_plan_replaced(live_ring, members, ownership, hashes_same=hashes_same), limit=limit)
    return _plan_kept(
        live_ring,
        members,
        ownership,
        compared.replaced_refs,
        limit=limit,
        is_assumed=is_assumed,
        propose=propose,
    )


def _plan_external(
    live: LiveRing, wanted: tuple[RingMember, ...] | None, topology: Topology
) -> RingPlan | None:
    name = live.exchange
    if wanted is None or live.is_wanted(wanted, is_assumed=topology.is_assumed(name)):
        return None
    message = f"exchange {name} is external, and its ring differs"
    refusal = Finding("different", message, "correct the topology, or ask its owner")
    return RingPlan(name, live.ring, live.ring, refusals=(refusal,))


def _members_after(
    live: LiveRing, exchange: ExchangeDefinition | None, compared: Comparison, *, is_replaced: bool
) -> tuple[RingMember, ...] | None:
    """Return the members of a ring after the plan; None if the plan does not concern the ring."""
    if exchange is not None and exchange.ring is not None:
        return exchange.ring
    deleted, replaced = compared.deleted_refs, compared.replaced_refs
    if not is_replaced and not any(member.destination in deleted | replaced for member in live.bound):
        return None
    if exchange is not None and exchange.type != HASH_EXCHANGE:
        return ()
    return tuple(member for member in live.bound if is_replaced or member.destination not in deleted)


def _plan_kept(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    ownership: SlotOwnership | None,
    replaced: Collection[Destination],
    *,
    limit: float | None,
    is_assumed: bool,
    propose: bool,
) -> RingPlan:
    name, ring, bound = live
    is_certain, unknown = ring.ground.is_certain, (unknown_order(name, ring),)
    has_replaced = any(member.destination in replaced for member in (*wanted, *bound))
    plan = RingPlan(name, ring, ring, limit=limit)
    if not has_replaced and live.is_wanted(wanted, is_assumed=is_assumed):
        is_order_needed = ownership is not None and ownership.handed_over and not is_certain
        return replace(plan, refusals=unknown if is_order_needed else (), ownership=ownership)
    before, after = ({}, {}) if ownership is None else (ownership.before, ownership.after)
    counter = MovementCounter(ring.buckets, before)
    try:
        found = find_best_steps(live, wanted, replaced, counter, after)
    except InputError as error:
        return replace(plan, refusals=(invalid_ring(name, error),))
    if found is None:
        return replace(plan, after=make_ring(wanted, ring.release), is_impossible=True)
    plan = replace(found, limit=limit, ownership=ownership, refusals=() if is_certain else unknown)
    destinations = {member.destination for member in wanted}
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    has_only_slots = ownership is not None and any(
        after.keys() >= side for side in ({*ring.destinations}, destinations)
    )
    is_bound_once = 0 < len(destinations) == len(wanted)
    is_movable = is_certain and not (has_replaced or has_only_slots or is_assumed)
    if not (plan.moved_at_worst and ring.buckets and is_bound_once and is_movable):
        return plan
    if ownership is None and (propose or plan.is_over_limit):
        return replace(plan, proposals=proposals_of(live, wanted, plan.shares, counter))
    return replace(plan, reorderable=wanted)


def _plan_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> RingPlan:
    name, empty = live.exchange, make_ring((), live.ring.release)
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        return RingPlan(name, empty, empty, refusals=(invalid_ring(name, error),))
    steps = tuple(make_step("bind", name, member) for member in wanted)
    return RingPlan(name, empty, after, steps, (Moment(1.0 if after.bucket_count else 0.0, 0.0),))


def _plan_replaced(
    live: LiveRing, wanted: tuple[RingMember, ...], ownership: SlotOwnership | None, *, hashes_same: bool
) -> RingPlan:
    new = _plan_new(live, wanted)
    before, after = live.ring, new.after
    if before.bucket_count and not hashes_same:
        moved = 1.0
    elif ownership is None:
        moved = before.share_moved(after)
    else:
        moved = ownership.ring_before(before).share_moved(ownership.ring_after(after))
    deleted = _plan_deleted(live, ())
    return replace(
        new,
        before=before,
        steps=deleted.steps + new.steps,
        moments=(*deleted.moments, Moment(moved, 0.0)),
        early_step_count=len(deleted.steps),
        ownership=ownership,
    )


def _plan_deleted(live: LiveRing, replaced: Collection[Destination]) -> RingPlan:
    lost = 1.0 if live.ring.bucket_count else 0.0
    steps, after = unbind_all(live), make_ring((), live.ring.release)
    has_replaced = any(member.destination in replaced for member in live.bound)
    return RingPlan(
        live.exchange,
        live.ring,
        after,
        steps,
        (Moment(lost, lost),),
        early_step_count=len(steps) if has_replaced else 0,
    )

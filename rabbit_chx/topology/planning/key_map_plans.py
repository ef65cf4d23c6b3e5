"""The plan of each ring: its steps, and the exact shares of keys that move between its members.

Rings are planned for wanted ``x-consistent-hash`` exchanges, and for those that lose a member by another part of the plan. What depends on
the order of all changes of the plan is counted afterwards: see `count_shares`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology.live_rings import (
    LiveRing,
    find_live_ring,
    make_ring,
    may_have_publishers,
    may_keep_buckets,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    ExchangeDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.comparison import Comparison
from rabbit_chx.topology.planning.movement import MovementCounter
from rabbit_chx.topology.planning.proposals import (
    proposals_of,
)
from rabbit_chx.topology.planning.refusals import invalid_ring_refusal
from rabbit_chx.topology.planning.resuming import resume_steps
from rabbit_chx.topology.planning.ring_plan import (
    KeyMapPlan,
    Moment,
    find_best_steps,
    make_step,
    unbind_all,
)
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots

#: The largest share that may move in a ring whose wanted order is assumed, if the topology has no limit.
_ASSUMED_LIMIT = 0.3


def plan_rings(
    compared: Comparison, bindings: Sequence[PlannedChange], *, propose: bool
) -> dict[str, KeyMapPlan]:
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
        if name in wanted.file.unordered and name in live.sources_left_out and name not in live.rings:
            continue  # it has a member that no client can name
        exchange, live_exchange = wanted_exchanges.get(name), live_exchanges.get(name)
        if any(side is not None and side.type == HASH_EXCHANGE for side in (exchange, live_exchange)):
            live_ring = find_live_ring(live, live_exchange, name)
            ring = _plan_ring(live_ring, exchange, live_exchange, compared, bindings, propose=propose)
            if ring is not None:
                rings[name] = ring
    return rings


def _plan_ring(
    live_ring: LiveRing,
    exchange: ExchangeDefinition | None,
    live_exchange: ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
    *,
    propose: bool,
) -> KeyMapPlan | None:
    """Return the plan of the ring of an exchange; None if the ring is not part of the plan.

    The exchange is deleted, external, new, replaced or kept, in this order. A kept exchange without wanted members is part of the plan if it
    loses a member.
    """
    wanted, name = compared.wanted, live_ring.exchange
    if ExchangeRef(name) in compared.deleted_refs:
        return _plan_deleted(live_ring, compared.replaced_refs)
    if exchange is not None and exchange.owner == "external":
        return None if live_exchange is None else _plan_external(live_ring, exchange.ring, wanted)
    if live_exchange is None:
        if exchange is None or exchange.ring is None:
            return None
        return _warn_of_transients(_plan_new(live_ring, exchange.ring), compared)
    is_replaced = exchange is not None and ExchangeRef(name) in compared.replaced_refs
    members = _members_after(live_ring, exchange, compared, is_replaced=is_replaced)
    if members is None:
        return None
    is_assumed = exchange is not None and name in wanted.file.unordered
    limit = compared.limits[name]
    if limit is None and is_assumed:
        limit = _ASSUMED_LIMIT
    if exchange is not None and is_replaced:
        hashes_same = all(
            live_exchange.arguments.get(name) == exchange.arguments.get(name) for name in HASH_ARGUMENTS
        )
        slots = _view_slots(live_ring, [member.destination for member in members], compared, bindings)
        plan = _plan_replaced(live_ring, members, slots, hashes_same=hashes_same)
        if live_ring.is_unknown and (live_ring.bound or name in compared.redeclared):
            plan = _as_reset(plan)
    else:
        is_ordered = exchange is not None and exchange.ring is not None and not is_assumed
        plan = _plan_kept(
            live_ring,
            members,
            compared,
            bindings,
            limit,
            is_ordered=is_ordered,
            is_assumed=is_assumed,
            propose=propose,
        )
    return _warn_of_transients(replace(plan, limit=limit), compared)


def _view_slots(
    live_ring: LiveRing,
    members: Iterable[Destination],
    compared: Comparison,
    changes: Iterable[PlannedChange],
) -> tuple[SlotView, SlotView] | None:
    """Return the slots of the live ring and of the wanted members, before and after changes; None if there are none."""
    (name, ring, _), live = live_ring, compared.live
    before = view_slots(name, ring, live.exchanges, live.bindings, members=members, planned=compared.wanted)
    return (before, before.at(changes)) if before.bound else None


def _warn_of_transients(plan: KeyMapPlan, compared: Comparison) -> KeyMapPlan:
    """Return the plan with its `transient_share`, if the ring is empty before its members are bound.

    The first bind makes its share. A later one moves keys to the new buckets only, so no later moment has a larger share if each destination
    has a different queue.
    """
    ring, wanted = plan.after, compared.wanted
    is_emptied = plan.is_reset or ExchangeRef(plan.exchange) in compared.replaced_refs
    if plan.before.destinations and not is_emptied:
        return plan
    empty = make_ring((), compared.release)
    slots = view_slots(plan.exchange, empty, wanted.exchanges, wanted.bindings, members=ring.destinations)
    by_queue = slots.map_of(ring)
    owners = by_queue.destinations
    if len(owners) < 2 or not may_have_publishers(plan.exchange, owners, compared.live):
        return plan
    return replace(plan, transient_share=1 - by_queue.shares().get(owners[0], 0.0))


def _plan_external(
    live: LiveRing, wanted: tuple[RingMember, ...] | None, topology: Topology
) -> KeyMapPlan | None:
    name = live.exchange
    is_assumed = name in topology.file.unordered
    if wanted is None or live.is_wanted(wanted, is_assumed=is_assumed, is_external=True):
        return None
    message = f"exchange {name} is external, and its ring differs"
    refusal = Finding("different", message, "correct the topology, or ask its owner")
    return KeyMapPlan(name, live.ring, live.ring, refusals=(refusal,))


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
    compared: Comparison,
    bindings: Sequence[PlannedChange],
    limit: float | None,
    *,
    is_ordered: bool,
    is_assumed: bool,
    propose: bool,
) -> KeyMapPlan:
    (name, ring, bound), replaced = live, compared.replaced_refs
    plan = KeyMapPlan(name, ring, ring)
    has_replaced = any(member.destination in replaced for member in (*wanted, *bound))
    is_unchanged = not has_replaced and live.is_wanted(wanted, is_assumed=is_assumed)
    slots = _view_slots(live, [member.destination for member in wanted], compared, bindings)
    if is_unchanged:
        plan = replace(plan, slots=slots)
        return replace(plan, needs_order=bool(plan.handed_over))
    if is_ordered and live.is_unknown and name not in compared.live.sources_left_out:
        return _plan_reset(live, wanted, compared, replace(plan, slots=slots))
    before, after = ({}, {}) if slots is None else (view.owners for view in slots)
    counter = MovementCounter(ring.buckets, before)
    counter.set_owners(after)
    try:
        found = resume_steps(compared.pending, live, wanted) or find_best_steps(
            live, wanted, replaced, counter
        )
    except InputError as error:
        return replace(plan, refusals=(invalid_ring_refusal(name, error),))
    if found is None:
        return replace(plan, after=make_ring(wanted, ring.release), is_impossible=True)
    plan = replace(found, limit=limit, slots=slots, needs_order=True)
    destinations = {member.destination for member in wanted}
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    has_only_slots = slots is not None and any(
        after.keys() >= side for side in ({*ring.destinations}, destinations)
    )
    is_bound_once = 0 < len(destinations) == len(wanted)
    is_movable = ring.ground.is_certain and not (has_replaced or has_only_slots or is_assumed)
    if not (plan.moved_at_worst and ring.buckets and is_bound_once and is_movable):
        return plan
    is_proposed = slots is None and (propose or plan.is_over_limit)
    proposals = proposals_of(live, wanted, plan.shares, counter) if is_proposed else ()
    return replace(plan, proposals=proposals, reorderable=() if is_proposed else wanted)


def _plan_reset(
    live: LiveRing, wanted: tuple[RingMember, ...], compared: Comparison, plan: KeyMapPlan
) -> KeyMapPlan:
    """Return the plan that makes a ring whose order is not known: all members are unbound, and the wanted ones bound in their order.

    If buckets may remain after that, the exchange has to be replaced.
    """
    exchange, new = compared.live.exchange(live.exchange), _plan_new(live, wanted)
    if new.refusals:
        return replace(plan, refusals=new.refusals)
    is_impossible = may_keep_buckets(live.ring.release) or (exchange is not None and exchange.auto_delete)
    early, late = unbind_all(live), new.late_steps
    if not any(member.destination in compared.replaced_refs for member in live.bound):
        early, late = (), (*early, *late)  # so that the ring is empty for a short time
    plan = replace(plan, after=new.after, early_steps=early, late_steps=late, is_impossible=is_impossible)
    return _as_reset(plan)


def _as_reset(plan: KeyMapPlan) -> KeyMapPlan:
    """Return the plan of a ring that is emptied, whatever its order is: all its keys may move."""
    return replace(
        plan,
        moments=(Moment(1.0, 1.0), Moment(1.0, 0.0 if plan.after.bucket_count else 1.0)),
        unknown="the order of its ring is not known",
        is_reset=True,
    )


def _plan_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> KeyMapPlan:
    name, empty = live.exchange, make_ring((), live.ring.release)
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        return KeyMapPlan(name, empty, empty, refusals=(invalid_ring_refusal(name, error),))
    binds = tuple(make_step("bind", name, member) for member in wanted)
    moments = (Moment(1.0 if after.bucket_count else 0.0, 0.0),)
    return KeyMapPlan(name, empty, after, late_steps=binds, moments=moments)


def _plan_replaced(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    slots: tuple[SlotView, SlotView] | None,
    *,
    hashes_same: bool,
) -> KeyMapPlan:
    new = _plan_new(live, wanted)
    before, after = live.ring, new.after
    is_rehashed = not hashes_same and min(before.bucket_count, after.bucket_count) > 0
    if is_rehashed:
        moved = 1.0
    elif slots is None:
        moved = before.share_moved(after)
    else:
        moved = slots[0].map_of(before).share_moved(slots[1].map_of(after))
    deleted = _plan_deleted(live, ())
    return replace(
        new,
        before=before,
        early_steps=deleted.late_steps,
        moments=(*deleted.moments, Moment(moved, 0.0)),
        slots=slots,
        is_rehashed=is_rehashed,
    )


def _plan_deleted(live: LiveRing, replaced: Collection[Destination]) -> KeyMapPlan:
    lost = 1.0 if live.ring.bucket_count else 0.0
    has_replaced = any(member.destination in replaced for member in live.bound)
    unbinds = unbind_all(live)
    return KeyMapPlan(
        live.exchange,
        live.ring,
        make_ring((), live.ring.release),
        early_steps=unbinds if has_replaced else (),
        late_steps=() if has_replaced else unbinds,
        moments=(Moment(lost, lost),),
    )

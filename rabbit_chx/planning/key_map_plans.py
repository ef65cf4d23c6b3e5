"""The steps of each ring: the binds and unbinds that turn it into the wanted one.

Rings are planned for wanted ``x-consistent-hash`` exchanges, and for those that lose a member by another part of the plan. What moves is
counted afterwards, since it depends on the order of all changes of the plan: see `count_shares`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import Comparison
from rabbit_chx.planning.movement import MovementCounter
from rabbit_chx.planning.resuming import members_after, repeat_steps
from rabbit_chx.planning.ring_plan import RingSteps, find_best_steps, make_step, unbind_all
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import LiveRing, find_live_ring, make_ring, may_keep_buckets
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember
from rabbit_chx.topology.slots.slot_view import view_slots


def plan_rings(compared: Comparison, bindings: Sequence[PlannedChange]) -> dict[str, RingSteps]:
    """Return the steps of each ring, by the name of its exchange, in the order of names.

    Args:
        compared: the two sides.
        bindings: the binds and unbinds of other exchanges that precede or accompany the steps of rings. They hand over slots.
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
            ring = _plan_ring(live_ring, exchange, live_exchange, compared, bindings)
            if ring is not None:
                rings[name] = ring
    return rings


def _plan_ring(
    live: LiveRing,
    exchange: ExchangeDefinition | None,
    live_exchange: ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
) -> RingSteps | None:
    """Return the steps of the ring of an exchange; None if the ring is not part of the plan.

    The exchange is deleted, external, new, replaced or kept, in this order. A kept exchange without wanted members is part of the plan if it
    loses a member.
    """
    name = live.exchange
    if ExchangeRef(name) in compared.deleted_refs:
        return _plan_deleted(live, compared)
    if exchange is not None and exchange.owner == "external":
        types = {None if side is None else side.type for side in (exchange, live_exchange)}
        has_ring = exchange.ring is not None and types == {HASH_EXCHANGE}
        differs = has_ring and not _is_wanted(live, exchange.ring or (), exchange, compared)
        return RingSteps(live.ring, live.ring, way="external") if differs else None
    if live_exchange is None:
        return None if exchange is None or exchange.ring is None else _plan_new(live, exchange.ring)
    is_replaced = exchange is not None and ExchangeRef(name) in compared.replaced_refs
    members = _members_after(live, exchange, compared, is_replaced=is_replaced)
    if members is None:
        return None
    if is_replaced:
        is_reset = live.is_unknown and bool(live.bound or name in compared.redeclared)
        return replace(
            _plan_new(live, members),
            early=_plan_deleted(live, compared).steps,
            way="reset" if is_reset else "replaced",
        )
    return _plan_kept(live, members, exchange, compared, bindings)


def _is_wanted(
    live: LiveRing, members: tuple[RingMember, ...], exchange: ExchangeDefinition | None, compared: Comparison
) -> bool:
    """Return True if a ring that both sides have, or the file does not, has these members already, as `diff_ring` decides it."""
    name, is_listed = live.exchange, exchange is not None and exchange.ring is not None
    if is_listed and name in compared.live.sources_left_out and name not in compared.live.rings:
        return False
    return live.is_wanted(
        members,
        is_assumed=compared.wanted.is_assumed(name),
        is_external=exchange is not None and exchange.owner == "external",
    )


def _members_after(
    live: LiveRing, exchange: ExchangeDefinition | None, compared: Comparison, *, is_replaced: bool
) -> tuple[RingMember, ...] | None:
    """Return the members of a ring after the plan; None if the plan does not concern the ring."""
    if exchange is not None and exchange.ring is not None:
        return exchange.ring
    planned = evidence_of(compared.live).steps_of(live.exchange)
    if compared.pending is not None and planned is not None:
        return members_after(planned)
    deleted, replaced = compared.deleted_refs, compared.replaced_refs
    if not is_replaced and not any(member.destination in deleted | replaced for member in live.bound):
        return None
    if exchange is not None and exchange.type != HASH_EXCHANGE:
        return ()
    return tuple(member for member in live.bound if is_replaced or member.destination not in deleted)


def _plan_kept(
    live: LiveRing,
    wanted: tuple[RingMember, ...],
    exchange: ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
) -> RingSteps:
    (name, ring, bound), replaced = live, compared.replaced_refs
    has_replaced = any(member.destination in replaced for member in (*wanted, *bound))
    is_listed = exchange is not None and exchange.ring is not None
    if not has_replaced and _is_wanted(live, wanted, exchange, compared):
        return RingSteps(ring, ring)
    if (repeated := repeat_steps(compared.pending, live, wanted, compared.live)) is not None:
        return repeated
    is_assumed = compared.wanted.is_assumed(name)
    if is_listed and not is_assumed and live.is_unknown and name not in compared.live.sources_left_out:
        return _plan_reset(live, wanted, compared)
    destinations = [member.destination for member in wanted]
    slots = view_slots(
        name,
        ring,
        compared.live.exchanges,
        compared.live.bindings,
        members=destinations,
        planned=compared.wanted,
    )
    owners = slots.at(bindings).owners
    counter = MovementCounter(ring.buckets, slots.owners)
    counter.set_owners(owners)
    try:
        found = find_best_steps(live, wanted, replaced, counter)
    except InputError as error:
        return RingSteps(ring, ring, fault=str(error))
    if found is None:
        return RingSteps(ring, make_ring(wanted, ring.release), way="impossible")
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    has_only_slots = bool(owners) and any(
        owners.keys() >= {*side} for side in (ring.destinations, destinations)
    )
    is_bound_once = 0 < len({*destinations}) == len(wanted)
    is_movable = ring.ground.is_certain and not (has_replaced or has_only_slots or is_assumed)
    return replace(found, reorderable=wanted if is_bound_once and is_movable else ())


def _plan_reset(live: LiveRing, wanted: tuple[RingMember, ...], compared: Comparison) -> RingSteps:
    """Return the steps that make a ring whose order is not known: all members are unbound, and the wanted ones bound in their order.

    If buckets may remain after that, the exchange has to be replaced.
    """
    exchange, new = compared.live.exchange(live.exchange), _plan_new(live, wanted)
    if new.fault:
        return replace(new, after=live.ring, way="unchanged")
    if may_keep_buckets(live.ring.release) or (exchange is not None and exchange.auto_delete):
        return replace(new, way="impossible")
    early, late = unbind_all(live), new.late
    if not any(member.destination in compared.replaced_refs for member in live.bound):
        early, late = (), (*early, *late)  # so that the ring is empty for a short time
    return replace(new, early=early, late=late, way="reset")


def _plan_new(live: LiveRing, wanted: Collection[RingMember]) -> RingSteps:
    empty = make_ring((), live.ring.release)
    try:
        after = make_ring([*wanted], live.ring.release)
    except InputError as error:
        return RingSteps(live.ring, empty, way="new", fault=str(error))
    binds = tuple(make_step("bind", live.exchange, member) for member in wanted)
    return RingSteps(live.ring, after, late=binds, way="new")


def _plan_deleted(live: LiveRing, compared: Comparison) -> RingSteps:
    unbinds, empty = unbind_all(live), make_ring((), live.ring.release)
    if any(member.destination in compared.replaced_refs for member in live.bound):
        return RingSteps(live.ring, empty, early=unbinds, way="deleted")
    return RingSteps(live.ring, empty, late=unbinds, way="deleted")

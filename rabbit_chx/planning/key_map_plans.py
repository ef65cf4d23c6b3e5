"""The plan of each key map: the steps of each ring, and the exact shares of keys that move, which depend on the order of all changes.

Rings are planned for wanted ``x-consistent-hash`` exchanges, and for those that lose a member by another part of the plan: `plan_rings`. What
moves is counted afterwards: `count_shares`. A slot is handed over between the steps of its ring. The broker takes the hash of a key of an
``x-modulus-hash`` exchange modulo the number of bindings, and `ModulusHashExchange` contains the order of the bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from rabbit_chx.analysis.simulation import appended_shares
from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import Comparison, find_super_streams
from rabbit_chx.planning.proposals import (
    MOST_SLOTS,
    SLOTS_EACH,
    conversions_of,
    proposals_of,
    slots_as_written,
)
from rabbit_chx.planning.ring_plan import (
    KeyMapPlan,
    Moment,
    Movement,
    MovementCounter,
    RingProposal,
    RingSteps,
    apply_steps,
    find_best_steps,
    make_step,
    members_after,
    repeat_steps,
    unbind_all,
)
from rabbit_chx.records.live_rings import (
    LiveRing,
    PendingApply,
    evidence_of,
    find_live_ring,
    make_ring,
    may_have_publishers,
    may_keep_buckets,
)
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.bindings import Place, Provenance
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.text import percent
from rabbit_chx.topology import objects
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.modulus import modulo_map_of, number_bindings, order_partitions, share_moved
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import SlotView, view_slots

#: An exchange with slots is proposed for queues of an ``x-modulus-hash`` exchange with at least this many, and with `SLOTS_EACH` for each.
_LEAST_SLOTS = 64
#: The largest share that may move in a ring whose wanted order is not known, as in a definitions file, if the topology has no limit.
_LIMIT_WITHOUT_ORDER = 0.3
_UNKNOWN_ORDER = "the order of its ring is not known"
_UNNUMBERED = "its partitions do not have a number each, so their order is not known"


def plan_rings(compared: Comparison, bindings: Sequence[PlannedChange]) -> dict[str, RingSteps]:
    """Return the steps of each ring, by the name of its exchange, in the order of names.

    Args:
        compared: the two sides.
        bindings: the binds and unbinds of other exchanges that precede or accompany the steps of rings. They hand over slots.
    """
    wanted = compared.wanted
    live = compared.live
    wanted_exchanges = {exchange.name: exchange for exchange in wanted.exchanges}
    live_exchanges = {exchange.name: exchange for exchange in live.exchanges}
    hashing = {one.name for one in (*wanted.exchanges, *live.exchanges) if one.type == objects.HASH_EXCHANGE}
    rings = {}
    for name in sorted(hashing):
        if wanted.is_unordered(name) and name in live.sources_left_out and name not in live.rings:
            continue  # it has a member that no client can name
        live_exchange = live_exchanges.get(name)
        live_ring = find_live_ring(live, live_exchange, name)
        ring = _plan_ring(live_ring, wanted_exchanges.get(name), live_exchange, compared, bindings)
        if ring is not None:
            rings[name] = ring
    return rings


def _plan_ring(
    live: LiveRing,
    exchange: objects.ExchangeDefinition | None,
    live_exchange: objects.ExchangeDefinition | None,
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
        return _plan_external(live, exchange, live_exchange, compared)
    if live_exchange is None:
        return None if exchange is None or exchange.ring is None else _plan_new(live, exchange.ring)
    is_replaced = exchange is not None and ExchangeRef(name) in compared.replaced_refs
    members = _members_after(live, exchange, compared, is_replaced=is_replaced)
    if members is None:
        return None
    if is_replaced:
        return _plan_replaced(live, members, compared)
    return _plan_kept(live, members, exchange, compared, bindings)


def _plan_external(
    live: LiveRing,
    exchange: objects.ExchangeDefinition,
    live_exchange: objects.ExchangeDefinition | None,
    compared: Comparison,
) -> RingSteps | None:
    """Return a ring that is not ours if it differs, or if nobody knows whether it does; it has no steps."""
    if live_exchange is None or exchange.ring is None:
        return None
    if not exchange.type == live_exchange.type == objects.HASH_EXCHANGE:
        return None
    if not _is_wanted(live, exchange.ring, exchange, compared):
        return RingSteps(live.ring, live.ring, fault="its ring differs")
    return RingSteps(live.ring, live.ring) if live.is_unordered else None


def _is_wanted(
    live: LiveRing,
    members: tuple[objects.RingMember, ...],
    exchange: objects.ExchangeDefinition | None,
    compared: Comparison,
) -> bool:
    """Return True if a ring that both sides have, or the file does not, has these members already, as `diff_ring` decides it."""
    name = live.exchange
    is_listed = exchange is not None and exchange.ring is not None
    if is_listed and name in compared.live.sources_left_out and name not in compared.live.rings:
        return False
    return live.is_wanted(
        members,
        any_order=compared.wanted.is_unordered(name),
        is_external=compared.is_external(name),
    )


def _members_after(
    live: LiveRing, exchange: objects.ExchangeDefinition | None, compared: Comparison, *, is_replaced: bool
) -> tuple[objects.RingMember, ...] | None:
    """Return the members of a ring after the plan; None if the plan does not concern the ring."""
    if exchange is not None and exchange.ring is not None:
        return exchange.ring
    planned = evidence_of(compared.live).steps_of(live.exchange)
    if compared.pending is not None and planned is not None:
        return members_after(planned)
    deleted = compared.deleted_refs
    replaced = compared.replaced_refs
    if not is_replaced and not any(member.destination in deleted | replaced for member in live.bound):
        return None
    if exchange is not None and exchange.type != objects.HASH_EXCHANGE:
        return ()
    return tuple(member for member in live.bound if is_replaced or member.destination not in deleted)


def _plan_kept(
    live: LiveRing,
    wanted: tuple[objects.RingMember, ...],
    exchange: objects.ExchangeDefinition | None,
    compared: Comparison,
    bindings: Sequence[PlannedChange],
) -> RingSteps:
    name = live.exchange
    ring = live.ring
    replaced = compared.replaced_refs
    has_replaced = any(member.destination in replaced for member in (*wanted, *live.bound))
    if not has_replaced and _is_wanted(live, wanted, exchange, compared):
        return RingSteps(ring, ring)
    repeated = repeat_steps(compared.pending, live, wanted, compared.live)
    if repeated is not None:
        return repeated
    is_listed = exchange is not None and exchange.ring is not None
    is_unordered = compared.wanted.is_unordered(name)
    is_hidden = name in compared.live.sources_left_out
    if is_listed and live.is_unknown and not (is_unordered or is_hidden):
        return _plan_reset(live, wanted, compared)
    is_free = ring.order.is_certain and not (has_replaced or is_unordered)
    return _plan_by_order(live, wanted, compared, bindings, is_free=is_free)


def _plan_by_order(
    live: LiveRing,
    wanted: tuple[objects.RingMember, ...],
    compared: Comparison,
    bindings: Sequence[PlannedChange],
    *,
    is_free: bool,
) -> RingSteps:
    """Return the steps that are right for the order of the live ring; `is_free`: another order may be proposed."""
    name = live.exchange
    ring = live.ring
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
        found = find_best_steps(live, wanted, compared.replaced_refs, counter)
    except InputError as error:
        return RingSteps(ring, ring, fault=str(error))
    if found is None:
        return RingSteps(ring, make_ring(wanted, ring.release), needs_new_exchange=True)
    # In a ring of slots only, the slots are ordered by their numbers. In a mixed ring a slot is one member among others.
    had_only_slots = owners.keys() >= {*ring.destinations}
    has_only_slots = owners.keys() >= {*destinations}
    is_ordered_by_number = bool(owners) and (had_only_slots or has_only_slots)
    is_bound_once = len({*destinations}) == len(wanted)
    if is_free and is_bound_once and not is_ordered_by_number:
        return replace(found, reorderable=wanted)
    return found


def _plan_reset(live: LiveRing, wanted: tuple[objects.RingMember, ...], compared: Comparison) -> RingSteps:
    """Return the steps that make a ring whose order is not known: all members are unbound, and the wanted ones bound in their order.

    If buckets may remain after that, the exchange has to be replaced.
    """
    ring = live.ring
    new = _plan_new(live, wanted)
    if new.fault:
        return RingSteps(ring, ring, fault=new.fault)
    exchange = compared.live.exchange(live.exchange)
    ends_without_members = exchange is not None and exchange.auto_delete
    if ends_without_members or may_keep_buckets(ring.release):
        return RingSteps(ring, new.after, needs_new_exchange=True)
    unbinds = unbind_all(live)
    if _has_replaced_member(live, compared):
        return _give_up_order(replace(new, early=unbinds))
    return _give_up_order(replace(new, late=(*unbinds, *new.late)))  # the ring is empty for a short time


def _plan_replaced(live: LiveRing, wanted: tuple[objects.RingMember, ...], compared: Comparison) -> RingSteps:
    """Return the steps of a ring whose exchange is deleted and declared again."""
    steps = replace(_plan_new(live, wanted), early=unbind_all(live))
    may_have_buckets = bool(live.bound) or live.exchange in compared.redeclared  # which no list shows
    return _give_up_order(steps) if live.is_unknown and may_have_buckets else steps


def _give_up_order(steps: RingSteps) -> RingSteps:
    """Return the steps that make a ring whose order is not known: all its keys are lost meanwhile, and may move."""
    has_keys = float(steps.after.bucket_count > 0)
    movement = Movement((Moment(1.0, 1.0), Moment(1.0, 1.0 - has_keys)), _UNKNOWN_ORDER)
    return replace(steps, movement=movement, gives_up_order=True)


def _plan_new(live: LiveRing, wanted: Sequence[objects.RingMember]) -> RingSteps:
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        empty = make_ring((), live.ring.release)
        return RingSteps(live.ring, empty, change="remake", fault=str(error))
    binds = tuple(make_step("bind", live.exchange, member) for member in wanted)
    has_keys = float(after.bucket_count > 0)
    movement = Movement((Moment(has_keys, 0.0),))
    return RingSteps(live.ring, after, late=binds, movement=movement, change="remake")


def _plan_deleted(live: LiveRing, compared: Comparison) -> RingSteps:
    empty = make_ring((), live.ring.release)
    lost = float(live.ring.bucket_count > 0)
    steps = RingSteps(live.ring, empty, movement=Movement((Moment(lost, lost),)), change="delete")
    if _has_replaced_member(live, compared):
        return replace(steps, early=unbind_all(live))
    return replace(steps, late=unbind_all(live))


def _has_replaced_member(live: LiveRing, compared: Comparison) -> bool:
    return any(member.destination in compared.replaced_refs for member in live.bound)


# -- the keys that move


class _Counted(NamedTuple):
    """The maps of an exchange before and after the plan, and the keys that move; `slots` are those before and after."""

    before: KeyMap
    after: KeyMap
    movement: Movement
    slots: tuple[SlotView, SlotView] | None = None


def count_shares(
    compared: Comparison,
    changes: Sequence[PlannedChange],
    rings: Mapping[str, RingSteps],
    repeated: PendingApply | None,
    *,
    propose: bool,
) -> dict[str, KeyMapPlan]:
    """Return the plan of each key map by the name of its exchange: of rings, of ``x-modulus-hash`` exchanges, and of super streams.

    Args:
        compared: the two sides.
        changes: all changes of the plan, in order.
        rings: the steps of each ring, of `plan_rings`.
        repeated: the apply that the plan repeats, if any: its keys move from before the first run.
        propose: True: search alternatives that move fewer keys. Otherwise only rings over their limit have proposals.
    """
    counted = {name: _count_ring(name, ring, changes, compared) for name, ring in rings.items()}
    counted |= _count_moduli(compared, changes, counted)
    streams = find_super_streams(compared.wanted) & find_super_streams(compared.live)
    for exchange in (one for one in compared.wanted.exchanges if one.name in streams):
        moments = list(_list_moments(exchange.name, compared.live, changes))
        if order_partitions(moments[-1])[0]:
            counted[exchange.name] = _count_modulo(exchange, moments, compared)
    plans = {}
    for name, key_map in counted.items():
        ring = rings.get(name)
        if repeated is not None and name in repeated.movements:
            plans[name] = _plan_repeated(name, key_map, ring, compared, repeated)
        else:
            plans[name] = _plan_key_map(name, key_map, ring, compared, propose=propose)
    return plans


def _plan_key_map(
    name: str, counted: _Counted, ring: RingSteps | None, compared: Comparison, *, propose: bool
) -> KeyMapPlan:
    """Return the plan of a key map, with proposals if it exceeds its limit; `propose`: always."""
    before, after, movement, slots = counted
    limit = _find_limit(name, compared, before)
    proposals: tuple[RingProposal, ...] = ()
    if ring is None:
        proposals = tuple(_propose_for_modulus(before, after, movement))
    elif propose or movement.exceeds(limit, before):
        proposals = _propose_for_ring(name, ring, compared, movement, slots)
    return KeyMapPlan(name, before, after, movement, ring, limit, slots, proposals)


def _plan_repeated(
    name: str, counted: _Counted, ring: RingSteps | None, compared: Comparison, repeated: PendingApply
) -> KeyMapPlan:
    """Return the plan of a key map as the apply that is repeated began it: with the keys that move from before its first run."""
    before, after, movement, slots = counted
    limit = _find_limit(name, compared, before)
    pairs, unknown, transient = repeated.movements[name]
    moments = tuple(Moment(moved, lost) for moved, lost in pairs)
    has_flows = movement.has_flows and slots is None
    first_movement = Movement(moments, unknown, transient, has_flows)
    planned = repeated.rings.get(name)
    if ring is None or planned is None:
        return KeyMapPlan(name, before, after, first_movement, ring, limit, slots)
    first_ring = replace(
        ring,
        before=planned.before,
        change=planned.change,
        gives_up_order=planned.gives_up_order,
    )
    return KeyMapPlan(name, planned.before, after, first_movement, first_ring, limit, slots)


def _find_limit(name: str, compared: Comparison, before: KeyMap) -> float | None:
    """Return the share of the keys of an exchange that may move. Where the order of partitions is not known, it must be allowed anyway."""
    is_external = compared.is_external(name) and before.kind != objects.MODULUS_EXCHANGE
    is_unknown = before.kind == "super-stream" and not before.order.is_known
    if is_external or is_unknown or ExchangeRef(name) in compared.deleted_refs:
        return None
    limit = compared.limit(name)
    return _LIMIT_WITHOUT_ORDER if limit is None and compared.wanted.is_unordered(name) else limit


# -- shares of rings


def _count_ring(
    name: str, ring: RingSteps, changes: Sequence[PlannedChange], compared: Comparison
) -> _Counted:
    """Return the keys that the plan of a ring moves, by queue if it has slots."""
    slots = _find_slots(name, ring, changes, compared)
    movement = _find_movement(name, ring, slots, changes, compared)
    share = _find_transient(name, ring, compared)
    return _Counted(ring.before, ring.after, movement._replace(transient_share=share), slots)


def _find_slots(
    name: str, ring: RingSteps, changes: Sequence[PlannedChange], compared: Comparison
) -> tuple[SlotView, SlotView] | None:
    """Return the slots of a ring before and after the plan; None without slots.

    Slots are handed over in a ring that exists and stays, but not if it is external and differs.
    """
    live = compared.live
    is_left = bool(ring.fault) and compared.is_external(name)
    if ring.change == "delete" or is_left or live.exchange(name) is None:
        return None
    slots = view_slots(
        name,
        ring.before,
        live.exchanges,
        live.bindings,
        members=ring.after.destinations,
        planned=compared.wanted,
    )
    return (slots, slots.at(changes)) if slots.bound else None


def _find_movement(
    name: str,
    ring: RingSteps,
    slots: tuple[SlotView, SlotView] | None,
    changes: Sequence[PlannedChange],
    compared: Comparison,
) -> Movement:
    """Return the keys that move in a ring: as its steps say it, or from the exchange that is replaced, or by queue."""
    if ring.change == "delete" or ring.gives_up_order or ring.is_repeated:
        return ring.movement
    if ExchangeRef(name) in compared.replaced_refs:
        movement = _count_replaced(name, ring, slots, compared)
    elif slots is not None:
        live_ring = find_live_ring(compared.live, compared.live.exchange(name), name)
        movement = Movement(_moments_by_queue(ring, live_ring, slots[0], changes))
    else:
        movement = ring.movement
    return _as_far_as_known(ring, movement)


def _count_replaced(
    name: str, ring: RingSteps, slots: tuple[SlotView, SlotView] | None, compared: Comparison
) -> Movement:
    """Return the keys that move in a ring whose exchange is deleted and declared again."""
    had_keys = ring.before.bucket_count > 0
    has_keys = ring.after.bucket_count > 0
    is_rehashed = had_keys and has_keys and _is_rehashed(name, compared)
    moved = 1.0
    if ring.before.is_determined and not is_rehashed:
        before, after = _by_queue(ring, slots)
        moved = before.share_moved(after)
    lost = float(had_keys)
    return Movement((Moment(lost, lost), Moment(moved, 0.0)), has_flows=not is_rehashed)


def _as_far_as_known(ring: RingSteps, movement: Movement) -> Movement:
    """Return the movement in a ring whose order is not known: exact if members are only appended, else the largest possible shares."""
    if ring.before.is_determined or not movement.peak.moved:
        return movement
    is_appended = all(step.action == "bind" for step in ring.steps)
    if is_appended and appended_shares(ring.before, ring.after) is not None:
        return movement
    moments = tuple(Moment(float(moment.moved > 0), moment.lost) for moment in movement.moments)
    return movement._replace(moments=moments, unknown=_UNKNOWN_ORDER)


def _by_queue(ring: RingSteps, slots: tuple[SlotView, SlotView] | None) -> tuple[KeyMap, KeyMap]:
    if slots is None:
        return ring.before, ring.after
    return slots[0].map_of(ring.before), slots[1].map_of(ring.after)


def _is_rehashed(name: str, compared: Comparison) -> bool:
    """Return True if an exchange hashes another value of a message afterwards."""
    live = compared.live.exchange(name)
    wanted = compared.wanted.exchange(name)
    before = {} if live is None else live.arguments
    after = {} if wanted is None else wanted.arguments
    return any(before.get(argument) != after.get(argument) for argument in HASH_ARGUMENTS)


def _find_transient(name: str, ring: RingSteps, compared: Comparison) -> float:
    """Return the `transient_share` of a ring that is empty before its members are bound.

    The first bind makes its share. A later one moves keys to the new buckets only, so no later moment has a larger share if each destination
    has a different queue.
    """
    is_emptied = ring.gives_up_order or ExchangeRef(name) in compared.replaced_refs
    if ring.before.destinations and not is_emptied:
        return 0.0
    empty = make_ring((), compared.release)
    wanted = compared.wanted
    slots = view_slots(name, empty, wanted.exchanges, wanted.bindings, members=ring.after.destinations)
    by_queue = slots.map_of(ring.after)
    owners = by_queue.destinations
    if len(owners) < 2 or not may_have_publishers(name, owners, compared.live):
        return 0.0
    return 1 - by_queue.shares().get(owners[0], 0.0)


def _moments_by_queue(
    ring: RingSteps, live_ring: LiveRing, slots: SlotView, changes: Sequence[PlannedChange]
) -> tuple[Moment, ...]:
    """Return the shares by queue before the changes, and after each one that concerns the ring or its slots. `slots` are the live ones."""
    counter = MovementCounter(ring.before.buckets, slots.owners)
    _, after_each, counts = apply_steps(live_ring.with_bound, ring.steps)
    counter.prepare(counts)
    slots = slots.at(())
    lengths = iter(after_each)
    moments = [Moment(0.0, 0.0)]
    numbers = counter.number_destinations(ring.before.buckets)
    for change in changes:
        if change.ring and change.binding.source == live_ring.exchange:
            numbers = counter.update_numbers(numbers, change.binding.destination, next(lengths))
        elif concerned := slots.apply(change):
            counter.set_owners({slot: slots.owners[slot] for slot in concerned})
        else:
            continue
        moments.append(counter.count(numbers, slots.dead_ends))
    return tuple(moments)


def _propose_for_ring(
    name: str,
    ring: RingSteps,
    compared: Comparison,
    movement: Movement,
    slots: tuple[SlotView, SlotView] | None,
) -> tuple[RingProposal, ...]:
    """Return the proposals for a ring, which may have slots."""
    before = ring.before
    after = ring.after
    if ring.gives_up_order or not before.buckets:
        return ()
    live_ring = find_live_ring(compared.live, compared.live.exchange(name), name)
    if slots is not None:
        layout = compared.layouts.get(name)
        sharing = () if layout is None or ring.change == "remake" else layout.exchange.members or ()
        had_slots = slots[0].owners.keys() & {*before.destinations}
        is_conversion = before.bucket_count > 0 and before.order.is_certain and not had_slots
        if sharing and movement.peak.moved and is_conversion:
            return conversions_of(live_ring, after, sharing, movement)
        if movement.end.moved and {*after.destinations} <= slots[1].owners.keys():
            return (slots_as_written(after, movement),)
    if not (ring.reorderable and movement.peak.moved):
        return ()
    counter = ring.counter if slots is None and ring.counter is not None else MovementCounter(before.buckets)
    return proposals_of(live_ring, ring.reorderable, movement, counter)


# -- exchanges of type x-modulus-hash, and super streams


def _count_moduli(
    compared: Comparison, changes: Sequence[PlannedChange], rings: Mapping[str, _Counted]
) -> dict[str, _Counted]:
    """Return the change of each ``x-modulus-hash`` exchange that is wanted or loses a binding, in the order of names.

    An exchange that gets this type, or had it, is in `rings`, too. Its change has the live map of one and the wanted map of the other.
    """
    before = {one.name: one for one in compared.live.exchanges if one.type == objects.MODULUS_EXCHANGE}
    after = {one.name: one for one in compared.wanted.exchanges if one.type == objects.MODULUS_EXCHANGE}
    planned = {exchange.name for exchange in compared.wanted.exchanges}
    planned |= {named.name for named in compared.deleted if isinstance(named, objects.ExchangeDefinition)}
    moduli = {}
    for name, exchange in sorted((before | after).items()):
        moments = list(_list_moments(name, compared.live, changes))
        if name not in after and len(moments) == 1:
            continue
        counted = _count_modulo(
            exchange,
            moments,
            compared,
            was_hashing=name in before,
            is_hashing=name in after or name not in planned,
        )
        if name not in rings:
            moduli[name] = counted
        elif name in after:
            moduli[name] = _join(rings[name], counted)
        else:
            moduli[name] = _join(counted, rings[name])
    return moduli


def _join(old: _Counted, new: _Counted) -> _Counted:
    """Return the change of an exchange that gets another type that hashes: all its keys move."""
    had_keys = bool(old.before.buckets)
    has_keys = bool(new.after.buckets)
    end = Moment(float(had_keys or has_keys), float(had_keys and not has_keys))
    moments = (*old.movement.moments, *new.movement.moments, end)
    movement = Movement(moments, "", new.movement.transient_share, has_flows=False)
    return _Counted(old.before, new.after, movement, old.slots or new.slots)


def _list_moments(
    name: str, live: LiveTopology, changes: Iterable[PlannedChange]
) -> Iterator[tuple[objects.BindingDefinition, ...]]:
    """Yield the bindings of an exchange before the changes, and after each change that adds or removes some."""
    bound = {binding.identity: binding for binding in live.bindings if binding.source == name}
    yield tuple(bound.values())
    for change in changes:
        subject = change.subject
        size = len(bound)
        if isinstance(subject, objects.BindingDefinition):
            if subject.source != name:
                continue
            if change.action == "bind":
                bound[subject.identity] = subject
            else:
                bound.pop(subject.identity, None)
        elif change.action in ("delete", "replace") and not isinstance(subject, objects.PolicyDefinition):
            place = subject.ref
            itself = isinstance(subject, objects.ExchangeDefinition) and subject.name == name
            bound = {
                key: binding for key, binding in bound.items() if not itself and binding.destination != place
            }
        if len(bound) != size:
            yield tuple(bound.values())


def _count_modulo(
    exchange: objects.ExchangeDefinition,
    moments: Sequence[Sequence[objects.BindingDefinition]],
    compared: Comparison,
    *,
    was_hashing: bool = True,
    is_hashing: bool = True,
) -> _Counted:
    """Return the change of an ``x-modulus-hash`` exchange or a super stream.

    `moments` are its bindings before the changes, and after each. `was_hashing` and `is_hashing`: whether it has the type before, and
    afterwards.
    """
    name = exchange.name
    release = compared.release if exchange.type == objects.MODULUS_EXCHANGE else None
    bound_before = moments[0] if was_hashing else ()
    states = [_number(bindings, release) for bindings in (bound_before, *moments[1:])]
    origin = _find_origin(exchange, compared)
    before = _map_of(exchange, bound_before, release, origin)
    after = _map_of(exchange, moments[-1], release, "replayed" if origin == "read" else origin)
    unknown = _why_share_is_unknown(exchange, moments, states, compared)
    if len(states) == 1:
        return _Counted(before, after, Movement(unknown=unknown))

    may_all_move = origin is None or (release is None and bool(unknown))

    def share_between(state: Sequence[Destination], other: Sequence[Destination]) -> float:
        return 1.0 if may_all_move else share_moved(state, other, release)

    first = states[0]
    last = states[-1]
    moved = [0.0, *(share_between(first, state) for state in states[1:])]
    if first and last and not is_hashing:
        moved[-1] = 1.0
    lost = [float(bool(first) and not state) for state in states]
    transient = 0.0
    is_remade = release is not None and bool(last) and not all(states)
    if is_remade and may_have_publishers(name, after.destinations, compared.live):
        between = [state for state in states[1:-1] if state]
        transient = max((share_between(state, last) for state in between), default=0.0)
    movement = Movement(tuple(map(Moment, moved, lost)), unknown, transient)
    return _Counted(before, after, movement)


def _find_origin(exchange: objects.ExchangeDefinition, compared: Comparison) -> Provenance | None:
    """Return how the live bindings of an ``x-modulus-hash`` exchange or a super stream are known; None if not all are."""
    if exchange.name in compared.live.sources_left_out:
        return None
    is_of_file = exchange.type == objects.MODULUS_EXCHANGE and not compared.live.release
    return "replayed" if is_of_file else "read"


def _map_of(
    exchange: objects.ExchangeDefinition,
    bindings: Sequence[objects.BindingDefinition],
    release: Release | None,
    origin: Provenance | None,
) -> KeyMap:
    found = modulo_map_of(exchange, bindings, release, origin)
    assert found is not None  # the exchange is an x-modulus-hash exchange or a super stream
    return found


def _why_share_is_unknown(
    exchange: objects.ExchangeDefinition,
    moments: Sequence[Sequence[objects.BindingDefinition]],
    states: Sequence[Sequence[Destination]],
    compared: Comparison,
) -> str:
    """Return why the bindings of an ``x-modulus-hash`` exchange or a super stream do not determine which keys move; empty if they do."""
    if exchange.name in compared.live.sources_left_out:
        return f"{exchange.name} has bindings to queues with names of the broker, which are not read"
    if exchange.type != objects.MODULUS_EXCHANGE:
        is_numbered = all(order_partitions(bindings)[1] for bindings in moments)
        return "" if is_numbered else _UNNUMBERED
    release = compared.release
    if release.follows(MODULUS_UNORDERED) and len({*chain(*states)}) > 1:
        return f"on RabbitMQ {release} {MODULUS_UNORDERED.says}, so the exact share is not known"
    return ""


def _number(
    bindings: Sequence[objects.BindingDefinition], release: Release | None
) -> tuple[Destination, ...]:
    """Return the destinations in the order of their numbers: of an ``x-modulus-hash`` exchange on a release, or of a super stream."""
    if release is None:
        return tuple(binding.destination for binding in order_partitions(bindings)[0])
    return number_bindings(bindings, release)


def _propose_for_modulus(before: KeyMap, after: KeyMap, movement: Movement) -> Iterator[RingProposal]:
    """Yield the plan as written, and alternatives that move fewer keys now or later; nothing if nothing moves or the shares are not known."""
    is_empty = not (before.buckets and after.buckets)
    if before.kind != objects.MODULUS_EXCHANGE or movement.unknown or is_empty or not movement.peak.moved:
        return
    members = tuple(map(objects.RingMember, after.destinations))
    yield RingProposal("as-written", *movement.figures, members, "the queues of the file")
    yield from _propose_slots(before.buckets, members)


def _propose_slots(
    before: Sequence[Place], members: tuple[objects.RingMember, ...]
) -> Iterator[RingProposal]:
    count = min(max(_LEAST_SLOTS, SLOTS_EACH * len(members)), MOST_SLOTS)
    if len(members) > count or not all(isinstance(member.destination, str) for member in members):
        return
    wanted = {member.destination for member in members}
    # The two types hash differently, so the two destinations of a key are independent.
    moved = 1 - sum(place in wanted for place in before) / len(before) / len(members)
    description = (
        f"a new exchange of type x-consistent-hash with slots = {count} and the same members: about {percent(moved)} of the keys "
        f"move once; after that a queue that comes or goes moves about 1/{len(members)} of them"
    )
    yield RingProposal("slots", moved, moved, members, description, count)

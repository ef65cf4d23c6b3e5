"""The plan of each exchange that hashes: its steps, and the exact shares of keys that move.

Rings are planned for wanted ``x-consistent-hash`` exchanges, and for those that lose a member by another part of the plan. `plan_rings` finds
the steps. The shares of a ring with slots depend on the order of all changes of the plan: `plan_slots` counts them. So do those of an
``x-modulus-hash`` exchange, which `plan_moduli` counts: its broker takes the hash of a key modulo the number of bindings, and
`ModulusHashExchange` contains the order of the bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.ground import Provenance
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.topology.live_rings import LiveRing, find_live_ring, make_ring
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import number_bindings, share_moved
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.comparison import Comparison
from rabbit_chx.topology.planning.movement import MovementCounter
from rabbit_chx.topology.planning.proposals import (
    MOST_SLOTS,
    SLOTS_EACH,
    conversions_of,
    new_exchange,
    proposals_of,
    slots_as_written,
)
from rabbit_chx.topology.planning.refusals import invalid_ring
from rabbit_chx.topology.planning.ring_plan import (
    KeyMapPlan,
    Moment,
    RingProposal,
    apply_steps,
    find_best_steps,
    make_step,
    unbind_all,
)
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots
from rabbit_chx.words import percent

#: An exchange with slots is proposed for queues of an ``x-modulus-hash`` exchange with at least this many, and with `SLOTS_EACH` for each.
_LEAST_SLOTS = 64
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


def plan_slots(
    ring: KeyMapPlan, changes: Sequence[PlannedChange], compared: Comparison, *, propose: bool
) -> KeyMapPlan:
    """Return the plan of a ring with slots, with its shares by queue and its proposals.

    Args:
        ring: the plan of `plan_rings`.
        changes: all changes of the plan, in order. Slots are handed over between the steps of the ring.
        compared: the two sides.
        propose: as in `plan_rings`.
    """
    live, name = compared.live, ring.exchange
    live_ring = find_live_ring(live, live.exchange(name), name)
    sharing: tuple[RingMember, ...] = ()
    if ExchangeRef(name) not in compared.replaced_refs:
        slots = _view_slots(live_ring, ring.after.destinations, compared, changes)
        if slots is not None:
            moments = _moments_by_queue(ring, live_ring, slots[0], changes)
            ring = replace(ring, moments=moments, slots=slots)
        if name in compared.layouts:
            sharing = compared.layouts[name].exchange.members or ()
    if not (propose or ring.is_over_limit):
        return ring
    return replace(ring, proposals=_proposals_with_slots(ring, live_ring, sharing))


def _moments_by_queue(
    ring: KeyMapPlan,
    live_ring: LiveRing,
    slots: SlotView,
    changes: Sequence[PlannedChange],
) -> tuple[Moment, ...]:
    """Return the shares by queue before the changes, and after each one that concerns the ring or its slots. `slots` are the live ones."""
    counter = MovementCounter(ring.before.buckets, slots.owners)
    applied = apply_steps(live_ring.state, ring.steps)
    counter.prepare(applied.counts)
    slots, lengths = slots.at(()), iter(applied.lengths)
    moments, numbers = [Moment(0.0, 0.0)], counter.number_destinations(ring.before.buckets)
    for change in changes:
        if change.ring and change.binding.source == ring.exchange:
            numbers = counter.update_numbers(numbers, change.binding.destination, next(lengths))
        elif concerned := slots.apply(change):
            counter.set_owners({slot: slots.owners[slot] for slot in concerned})
        else:
            continue
        moments.append(Moment(*counter.count_moved_and_lost(numbers, slots.dead_ends)))
    return tuple(moments)


def _proposals_with_slots(
    ring: KeyMapPlan, live_ring: LiveRing, sharing: tuple[RingMember, ...]
) -> tuple[RingProposal, ...]:
    """Return the proposals for a ring with slots. `sharing` are the queues that share the wanted slots."""
    before, after, slots = ring.before, ring.after, ring.slots
    assert slots is not None  # it has slots
    had_slots = slots[0].owners.keys() & {*before.destinations}
    is_conversion = before.bucket_count > 0 and before.ground.is_certain and not had_slots
    if sharing and ring.moved_at_worst and is_conversion:
        return conversions_of(live_ring, after, sharing, ring.shares)
    if ring.moved and {*after.destinations} <= slots[1].owners.keys():
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
    else:
        plan = _plan_kept(
            live_ring, members, compared, bindings, limit, is_assumed=is_assumed, propose=propose
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
    if plan.before.destinations and ExchangeRef(plan.exchange) not in compared.replaced_refs:
        return plan
    empty = make_ring((), compared.release)
    slots = view_slots(plan.exchange, empty, wanted.exchanges, wanted.bindings, members=ring.destinations)
    by_queue = slots.map_of(ring)
    owners = by_queue.destinations
    if len(owners) < 2 or not _may_have_publishers(plan.exchange, owners, compared.live):
        return plan
    return replace(plan, transient_share=1 - by_queue.shares().get(owners[0], 0.0))


def _may_have_publishers(name: str, queues: Iterable[Destination], live: LiveTopology) -> bool:
    # If an exchange was deleted and is declared again, its queues exist, and its publishers may.
    return live.exchange(name) is not None or not {queue.name for queue in live.queues}.isdisjoint(queues)


def _plan_external(
    live: LiveRing, wanted: tuple[RingMember, ...] | None, topology: Topology
) -> KeyMapPlan | None:
    name = live.exchange
    if wanted is None or live.is_wanted(wanted, is_assumed=name in topology.file.unordered):
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
    before, after = ({}, {}) if slots is None else (view.owners for view in slots)
    counter = MovementCounter(ring.buckets, before)
    counter.set_owners(after)
    try:
        found = find_best_steps(live, wanted, replaced, counter)
    except InputError as error:
        return replace(plan, refusals=(invalid_ring(name, error),))
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
    if slots is None and (propose or plan.is_over_limit):
        return replace(plan, proposals=proposals_of(live, wanted, plan.shares, counter))
    return replace(plan, reorderable=wanted)


def _plan_new(live: LiveRing, wanted: tuple[RingMember, ...]) -> KeyMapPlan:
    name, empty = live.exchange, make_ring((), live.ring.release)
    try:
        after = make_ring(wanted, live.ring.release)
    except InputError as error:
        return KeyMapPlan(name, empty, empty, refusals=(invalid_ring(name, error),))
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


# -- exchanges of type x-modulus-hash


def plan_moduli(
    compared: Comparison, changes: Sequence[PlannedChange], rings: Mapping[str, KeyMapPlan]
) -> dict[str, KeyMapPlan]:
    """Return the change of each ``x-modulus-hash`` exchange that is wanted or loses a binding, in the order of names.

    An exchange that gets this type, or had it, is in `rings`, too. Its change has the live map of one and the wanted map of the other.
    """
    before, after = (
        {exchange.name for exchange in side.exchanges if exchange.type == MODULUS_EXCHANGE}
        for side in (compared.live, compared.wanted)
    )
    moduli = {}
    for name in sorted(before | after):
        moments = list(_list_moments(name, compared.live, changes))
        if name in after or len(moments) > 1:
            plan = _plan_modulus(name, moments, compared, is_hashing=(name in before, name in after))
            if name not in rings:
                moduli[name] = replace(plan, proposals=tuple(_propose_for_modulus(plan)))
            elif name in after:
                moduli[name] = _change_type(rings[name], plan, rings[name])
            else:
                moduli[name] = _change_type(plan, rings[name], rings[name])
    return moduli


def _change_type(old: KeyMapPlan, new: KeyMapPlan, ring: KeyMapPlan) -> KeyMapPlan:
    """Return the plan of an exchange that gets another type that hashes; `ring` is the one of the two with the steps of its ring."""
    had_keys, has_keys = bool(old.before.buckets), bool(new.after.buckets)
    end = Moment(float(had_keys or has_keys), float(had_keys and not has_keys))
    return replace(
        ring,
        before=old.before,
        after=new.after,
        moments=(*old.moments, *new.moments, end),
        transient_share=new.transient_share,
        is_rehashed=True,
    )


def _list_moments(
    name: str, live: LiveTopology, changes: Iterable[PlannedChange]
) -> Iterator[tuple[BindingDefinition, ...]]:
    """Yield the bindings of an exchange before the changes, and after each change that adds or removes some."""
    bound = {binding.identity: binding for binding in live.bindings if binding.source == name}
    yield tuple(bound.values())
    for change in changes:
        subject, size = change.subject, len(bound)
        if isinstance(subject, BindingDefinition):
            if subject.source != name:
                continue
            if change.action == "bind":
                bound[subject.identity] = subject
            else:
                bound.pop(subject.identity, None)
        elif change.action in ("delete", "replace") and not isinstance(subject, PolicyDefinition):
            place = subject.ref
            itself = isinstance(subject, ExchangeDefinition) and subject.name == name
            bound = {
                key: binding for key, binding in bound.items() if not itself and binding.destination != place
            }
        if len(bound) != size:
            yield tuple(bound.values())


def _plan_modulus(
    name: str,
    moments: Sequence[Sequence[BindingDefinition]],
    compared: Comparison,
    *,
    is_hashing: tuple[bool, bool],
) -> KeyMapPlan:
    """Return the plan with the shares that move. `is_hashing`: whether the exchange has the type before, and afterwards."""
    live, release = compared.live, compared.release
    limit = None if ExchangeRef(name) in compared.deleted_refs else compared.limits[name]
    states = [number_bindings(bindings, release) for bindings in moments]
    if not is_hashing[0]:
        states[0] = ()
    before, after = states[0], states[-1]
    unknown = _unknown_order(name, states, live, release)
    provenance: Provenance = "read" if live.release else "replayed"
    if name in live.sources_left_out:
        provenance = "assumed"
    planned: Provenance = "replayed" if provenance == "read" else provenance
    sides = (
        ModulusHashExchange(name, ascending_bindings(before), release, provenance),
        ModulusHashExchange(name, ascending_bindings(after), release, planned),
    )
    if len(states) == 1:
        return KeyMapPlan(name, *sides, limit=limit, unknown=unknown)

    def moved(old: Sequence[Destination], new: Sequence[Destination]) -> float:
        return 1.0 if name in live.sources_left_out else share_moved(old, new, release)

    shares = [0.0, *(moved(before, state) for state in states[1:])]
    if not is_hashing[1] and before and after:
        shares[-1] = 1.0  # the type is another one afterwards
    losses = [1.0 if before and not state else 0.0 for state in states]
    transient_shares = []
    if after and not all(states) and _may_have_publishers(name, sides[1].destinations, live):
        transient_shares = [moved(state, after) for state in states[1:-1] if state]
    return KeyMapPlan(
        name,
        *sides,
        moments=tuple(map(Moment, shares, losses)),
        limit=limit,
        transient_share=max(transient_shares, default=0.0),
        unknown=unknown,
    )


def _unknown_order(
    name: str, states: Sequence[Sequence[Destination]], live: LiveTopology, release: Release
) -> str:
    if name in live.sources_left_out:
        return f"{name} has bindings to queues with names of the broker, which are not read"
    if release.follows(MODULUS_UNORDERED) and len({place for state in states for place in state}) > 1:
        return f"on RabbitMQ {release} {MODULUS_UNORDERED.says}, so the exact share is not known"
    return ""


def _propose_for_modulus(change: KeyMapPlan) -> Iterator[RingProposal]:
    """Yield the plan as written, and alternatives that move fewer keys now or later; nothing if nothing moves or the shares are not known."""
    before, after = change.before.buckets, change.after.buckets
    if change.unknown or not (before and after and change.moved_at_worst):
        return
    shares = change.moved, change.moved_at_worst
    members = tuple(map(RingMember, dict.fromkeys(place for place in after if place is not None)))
    yield RingProposal("as-written", *shares, members, "the queues of the file")
    yield from new_exchange(change.exchange, "queues", members, shares, worse=1)
    yield from _propose_more_queues(before, len(after))
    yield from _propose_slots(before, members)


def _propose_more_queues(before: Sequence[Place], then: int) -> Iterator[RingProposal]:
    now = len(before)
    if then < now:
        description = (
            f"the {now} queues stay bound, and fewer consumers share them in a ConsumerGroup, so no key moves"
        )
        yield RingProposal("more-queues", 0.0, 0.0, (), description)
    elif then > now:
        count = now * max(2, -(-then // now))
        moved = share_moved(before, (*before, *(None,) * (count - now)), NEWEST_COMPARED)
        description = (
            f"{count} queues in a new exchange, the {now} of now first in the order of names: later consumers share them in a "
            "ConsumerGroup, and no key moves again"
        )
        yield RingProposal("more-queues", moved, moved, (), description)


def _propose_slots(before: Sequence[Place], members: tuple[RingMember, ...]) -> Iterator[RingProposal]:
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

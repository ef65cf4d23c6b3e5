"""The exact shares of keys that depend on the order of all changes of a plan: those of rings with slots, of ``x-modulus-hash`` exchanges,
and of super streams.

A slot is handed over between the steps of its ring. The broker takes the hash of a key of an ``x-modulus-hash`` exchange modulo the number of
bindings, and `ModulusHashExchange` contains the order of the bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.ground import Provenance
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.routing.super_stream import super_stream_of
from rabbit_chx.topology.live_rings import LiveRing, find_live_ring, may_have_publishers
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.modulus import number_bindings, order_partitions, share_moved
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.comparison import Comparison, find_super_streams
from rabbit_chx.topology.planning.movement import MovementCounter
from rabbit_chx.topology.planning.proposals import (
    MOST_SLOTS,
    SLOTS_EACH,
    conversions_of,
    new_exchange,
    proposals_of,
    slots_as_written,
)
from rabbit_chx.topology.planning.refusals import unknown_partitions_refusal
from rabbit_chx.topology.planning.ring_plan import KeyMapPlan, Moment, RingProposal, apply_steps
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots
from rabbit_chx.words import percent

#: An exchange with slots is proposed for queues of an ``x-modulus-hash`` exchange with at least this many, and with `SLOTS_EACH` for each.
_LEAST_SLOTS = 64


def count_shares(
    compared: Comparison,
    changes: Sequence[PlannedChange],
    rings: Mapping[str, KeyMapPlan],
    *,
    propose: bool,
) -> dict[str, KeyMapPlan]:
    """Return the plans of rings and of ``x-modulus-hash`` exchanges with the shares of keys that move, by the names of the exchanges.

    Args:
        compared: the two sides.
        changes: all changes of the plan, in order.
        rings: the plan of the steps of each ring, of `plan_rings`.
        propose: True: search alternatives that move fewer keys. Otherwise only rings over their limit have proposals.
    """
    counted = {
        name: ring if ring.slots is None else _count_slots(ring, changes, compared, propose=propose)
        for name, ring in rings.items()
    }
    return counted | _plan_moduli(compared, changes, counted) | dict(_plan_super_streams(compared, changes))


def _count_slots(
    ring: KeyMapPlan, changes: Sequence[PlannedChange], compared: Comparison, *, propose: bool
) -> KeyMapPlan:
    """Return the plan of a ring with slots, with its shares by queue and its proposals.

    Args:
        ring: the plan of the steps.
        changes: all changes of the plan, in order. Slots are handed over between the steps of the ring.
        compared: the two sides.
        propose: as in `count_shares`.
    """
    live, name = compared.live, ring.exchange
    live_ring = find_live_ring(live, live.exchange(name), name)
    sharing: tuple[RingMember, ...] = ()
    if ExchangeRef(name) not in compared.replaced_refs:
        slots = view_slots(
            name,
            live_ring.ring,
            live.exchanges,
            live.bindings,
            members=ring.after.destinations,
            planned=compared.wanted,
        )
        if slots.bound:
            moments = ring.moments if ring.is_reset else _moments_by_queue(ring, live_ring, slots, changes)
            ring = replace(ring, moments=moments, slots=(slots, slots.at(changes)))
        if name in compared.layouts:
            sharing = compared.layouts[name].exchange.members or ()
    if ring.is_reset or not (propose or ring.is_over_limit):
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


# -- exchanges of type x-modulus-hash


def _plan_moduli(
    compared: Comparison, changes: Sequence[PlannedChange], rings: Mapping[str, KeyMapPlan]
) -> dict[str, KeyMapPlan]:
    """Return the change of each ``x-modulus-hash`` exchange that is wanted or loses a binding, in the order of names.

    An exchange that gets this type, or had it, is in `rings`, too. Its change has the live map of one and the wanted map of the other.
    """
    before, after = (
        {exchange.name for exchange in side.exchanges if exchange.type == MODULUS_EXCHANGE}
        for side in (compared.live, compared.wanted)
    )
    removed = {exchange.name for exchange in compared.wanted.exchanges} | {
        named.name for named in compared.deleted if isinstance(named, ExchangeDefinition)
    }
    hashing_after, moduli = after | (before - removed), {}
    for name in sorted(before | after):
        moments = list(_list_moments(name, compared.live, changes))
        if name in after or len(moments) > 1:
            plan = _plan_modulus(name, moments, compared, is_hashing=(name in before, name in hashing_after))
            if name not in rings:
                moduli[name] = replace(plan, proposals=tuple(_propose_for_modulus(plan)))
            elif name in after:
                moduli[name] = _change_type(rings[name], plan, rings[name])
            else:
                moduli[name] = _change_type(plan, rings[name], rings[name])
    return moduli


def _plan_super_streams(
    compared: Comparison, changes: Sequence[PlannedChange]
) -> Iterator[tuple[str, KeyMapPlan]]:
    """Yield the change of each wanted super stream that has partitions, with its name. Keys of a new one do not move."""
    for name in sorted(find_super_streams(compared.wanted) & find_super_streams(compared.live)):
        found = [order_partitions(bindings) for bindings in _list_moments(name, compared.live, changes)]
        states = [[binding.destination for binding in bound] for bound, _ in found]
        if not (states[0] and states[-1]):
            continue
        is_ordered = all(ordered for _, ordered in found)
        shares = [
            share_moved(states[0], state) if is_ordered else float(number > 0)
            for number, state in enumerate(states)
        ]
        pairs = [[(one.destination, one.routing_key) for one in found[at][0]] for at in (0, -1)]
        grounds: tuple[Provenance, Provenance] = (
            ("read", "replayed") if is_ordered else ("assumed", "replayed")
        )
        before, after = (
            super_stream_of(name, bound, provenance=ground)
            for bound, ground in zip(pairs, grounds, strict=True)
        )
        change = KeyMapPlan(name, before, after, limit=compared.limits[name])
        if len(states) > 1:
            losses = [float(not state) for state in states]
            change = replace(change, moments=tuple(map(Moment, shares, losses)))
        if not is_ordered:
            unknown = (
                "its partitions do not have a number each, so only the stream protocol shows their order"
            )
            refusals = (unknown_partitions_refusal(change),) if len(states) > 1 else ()
            change = replace(change, unknown=unknown, refusals=refusals, limit=None)
        yield name, change


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
    if after and not all(states) and may_have_publishers(name, sides[1].destinations, live):
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

"""All differences between two states, with the exact shares of keys that they concern: `plan` orders them, and `check` words them.

`diff_ring` finds those of a ring: the order of its destinations, and each member. Slots keep their queues in it: what moves with a slot is a
difference of its bindings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rabbit_chx.errors import InputError
from rabbit_chx.grouping import grouped
from rabbit_chx.planning.comparison import (
    Comparison,
    RingDifference,
    compare_objects,
    find_super_streams,
)
from rabbit_chx.planning.difference import Difference, DifferenceKind
from rabbit_chx.planning.slot_layout import SlotLayout
from rabbit_chx.records.live_rings import LiveRing, find_live_ring, make_ring
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import is_super_stream, modulo_map_of, number_bindings, share_moved
from rabbit_chx.topology.objects.changes import fields_between
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    RingMember,
)
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots

_HASHING = (HASH_EXCHANGE, MODULUS_EXCHANGE)
#: The fields of an exchange that determine what is hashed: all keys go elsewhere if one differs, but for chance.
_DECIDES_ON_KEYS = ("type", *(f"arguments.{name}" for name in HASH_ARGUMENTS))


def diff(wanted: Topology, live: LiveTopology) -> tuple[Difference, ...]:
    """Return the differences between the wanted and the live topology.

    There are none exactly if a plan has neither changes nor refusals. That both are of one cluster and one vhost is no question of objects:
    a plan refuses another one, and a check reports it.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read. A file is one as `LiveTopology.of_file`.

    Returns:
        The differences of exchanges, queues, policies and bindings; then those of rings, in the order of names.

    Raises:
        InputError: as in `plan`.
    """
    return compare(wanted, live).differences


def compare(wanted: Topology, live: LiveTopology) -> Comparison:
    """Return the comparison of two topologies, which has their differences. Arguments and errors are those of `diff`."""
    compared = compare_objects(wanted, live)
    there = {exchange.name: exchange for exchange in compared.live.exchanges}
    both = ((one, there[one.name]) for one in compared.wanted.exchanges if one.name in there)
    pairs = sorted(both, key=lambda pair: pair[0].name)
    rings = {one.name: ring for one, live_one in pairs if (ring := _diff_key_map(one, live_one, compared))}
    return replace(compared, objects=tuple(_with_shares(compared.objects, rings)), rings=rings)


def _with_shares(objects: Iterable[Difference], rings: Mapping[str, RingDifference]) -> Iterator[Difference]:
    """Yield the differences of objects and bindings, those that concern keys with their share."""
    parts = {name: share for ring in rings.values() for name, share in ring.parts.items()}
    for one in objects:
        subject, share = one.subject, None
        if isinstance(subject, BindingDefinition) and subject.source in rings:
            ring = rings[subject.source]
            share = ring.parts.get(str(subject.destination), 0.0) if ring.parts else ring.moved
        elif isinstance(subject, BindingDefinition):
            share = parts.get(subject.source)
        elif one.kind == "different" and isinstance(subject, ExchangeDefinition) and subject.type in _HASHING:
            decisive = _DECIDES_ON_KEYS if subject.type == HASH_EXCHANGE else ("type",)
            share = float(any(field.field in decisive for field in one.fields))
        yield one if share is None else replace(one, share=share)


def _diff_key_map(
    wanted: ExchangeDefinition, live: ExchangeDefinition, compared: Comparison
) -> RingDifference | None:
    """Return what differs of the key map of an exchange; None if not both sides have one, or if its bindings are not read."""
    name = wanted.name
    if name in compared.live.sources_left_out and name not in compared.live.rings:
        # Where the order does not count, a member that no client can name is no difference.
        is_compared = wanted.ring is not None and not compared.wanted.is_assumed(name)
        return RingDifference((Difference("different", wanted, live, wanted),)) if is_compared else None
    if wanted.queues is not None:
        return _diff_modulus(name, compared)
    if is_super_stream(wanted) and is_super_stream(live):
        return _diff_super_stream(wanted, live, compared)
    if wanted.ring is None or {wanted.type, live.type} != {HASH_EXCHANGE}:
        return None
    return diff_ring(wanted, compared.live, compared)


def _diff_modulus(name: str, compared: Comparison) -> RingDifference:
    """Return what an ``x-modulus-hash`` exchange sends elsewhere than in the topology. Bindings that a plugin made stay."""
    kept = [binding for binding, unwanted in compared.bindings if unwanted == "plugin"]
    live, wanted = (
        [binding for binding in bindings if binding.source == name]
        for bindings in (compared.live.bindings, (*compared.wanted.bindings, *kept))
    )
    if {binding.identity for binding in live} == {binding.identity for binding in wanted}:
        return RingDifference(moved=0.0)
    before, after = (number_bindings(side, compared.release) for side in (live, wanted))
    return RingDifference(moved=share_moved(before, after, compared.release))


def _diff_super_stream(
    wanted: ExchangeDefinition, live: ExchangeDefinition, compared: Comparison
) -> RingDifference | None:
    """Return what differs of the partitions of a super stream; None if one side has none. Without numbers, their order is not known."""
    name = wanted.name
    if name not in find_super_streams(compared.wanted) & find_super_streams(compared.live):
        return None
    before, after = (
        modulo_map_of(exchange, side.bindings, None, "read")
        for exchange, side in ((live, compared.live), (wanted, compared.wanted))
    )
    if before is None or after is None:
        return None
    parts = {str(place): share for one in (before, after) for place, share in one.shares().items()}
    if before.ground.is_assumed:
        is_changed = any(why for binding, why in compared.bindings if binding.source == name)
        return RingDifference(moved=1.0 if is_changed else None, parts=parts)
    if before.destinations == after.destinations:
        return RingDifference(moved=0.0, parts=parts)
    same = Counter(before.destinations) == Counter(after.destinations)
    share = before.share_moved(after)
    difference = Difference("order" if same else "different", wanted, before, after, share=share)
    return RingDifference((difference,), share, parts)


# -- rings


def diff_ring(
    exchange: ExchangeDefinition, live: LiveTopology, compared: Comparison | None = None
) -> RingDifference:
    """Return what differs of a live ring.

    Args:
        exchange: the wanted exchange, with plain members instead of slots.
        live: the live topology.
        compared: the two topologies, which show what is to be a slot, and what happens to its bindings; None without a wanted one.
    """
    name, members = exchange.name, exchange.ring or ()
    ring = find_live_ring(live, live.exchange(name), name)
    layout = None if compared is None else compared.layouts.get(name)
    planned = None if compared is None else compared.wanted
    places = [member.destination for member in members]
    slots = view_slots(name, ring.ring, live.exchanges, live.bindings, members=places, planned=planned)
    before = _owners_before(slots, layout)
    shares = ring.ring.shares() if slots.bound else {}
    parts = {slot.name: shares.get(slot, 0.0) for slot in slots.bound}
    is_assumed = compared is not None and compared.wanted.is_assumed(name)
    is_wanted = ring.is_wanted(members, is_assumed=is_assumed, is_external=exchange.owner == "external")
    now = slots.map_of(ring.ring, before)
    try:
        target = make_ring(members, ring.ring.release)
    except InputError:
        return RingDifference(() if is_wanted else (Difference("different", exchange, now),), None, parts)
    after = before
    if layout is not None:
        after = before | dict(zip(layout.names.refs, layout.owners.values(), strict=True))
    elif compared is not None:
        after = slots.at(compared.rebinds).owners
    then = ring.ring if is_assumed and members == ring.bound else target
    is_kept = ring.ring.buckets == then.buckets and before == after
    moved = 0.0 if is_kept else now.share_moved(slots.map_of(then, after))
    if is_wanted:
        return RingDifference((), moved, parts)
    wanted = slots.map_of(target, before)
    if layout is not None and not {*target.destinations} & {*ring.ring.destinations}:
        return RingDifference((Difference("different", exchange, now, wanted, share=moved),), moved, parts)
    whole: tuple[Difference, ...] = ()
    if ring.is_unordered and not is_assumed:
        whole = (Difference("order", exchange, now, wanted, share=1.0),)
    elif not is_assumed and ring.ring.buckets != target.buckets:
        kind: DifferenceKind = "order" if find_out_of_place(ring.ring, target) else "different"
        share = moved if before == after else now.share_moved(wanted)
        whole = (Difference(kind, exchange, now, wanted, share=share),)
    return RingDifference((*whole, *_diff_members(exchange, ring, now, target, before)), moved, parts)


def _owners_before(slots: SlotView, layout: SlotLayout | None) -> dict[Place, Place]:
    """Return the owner of each live and each wanted slot.

    If a slot has several queues, that of the topology counts, because it gets the keys too. So does that of a slot that is neither in the
    live ring nor bound.
    """
    owners, queues = dict(slots.owners), slots.queues
    in_ring = {*slots.ring.destinations}
    for name, queue in () if layout is None else layout.owners.items():
        slot = ExchangeRef(name)
        bound = queues.get(slot, ())
        if queue in bound or not (bound or (slot in queues and slot in in_ring)):
            owners[slot] = queue
    return owners


def _diff_members(
    exchange: ExchangeDefinition, ring: LiveRing, now: KeyMap, target: HashRing, owners: Mapping[Place, Place]
) -> Iterator[Difference]:
    """Yield the differences of members. A member that is bound has a share; a missing one would have that of the keys that another queue has."""
    wanted, bound = (
        grouped((member.destination, member) for member in side) for side in (exchange.ring or (), ring.bound)
    )
    missing = wanted.keys() - bound.keys()
    shares = dict(ring.ring.shares()) | dict.fromkeys(missing, 0.0)
    for (queue, place), share in now.flows(target).items() if missing else ():
        if place in missing and queue != owners.get(place, place):
            shares[place] += share
    for place in dict.fromkeys((*wanted, *bound)):
        before, after = Counter(bound.get(place, ())), Counter(wanted.get(place, ()))
        if before != after:
            kind: DifferenceKind = "missing" if not before else "different" if after else "unexpected"
            old, new = (_first_of(exchange, *sides) for sides in ((before, after), (after, before)))
            subject = old if new is None else new
            assert subject is not None  # one of the two sides has a binding
            fields = fields_between(old, new) if old and new else ()
            yield Difference(kind, subject, old, new, fields, shares.get(place, 0.0))


def _first_of(
    exchange: ExchangeDefinition, members: Counter[RingMember], others: Counter[RingMember]
) -> BindingDefinition | None:
    """Return the first of some members that the others lack, or else the first one, as a binding."""
    member = next(iter(members - others or members), None)
    if member is None:
        return None
    return BindingDefinition(
        exchange.name, member.destination, member.key, member.arguments, owner=exchange.owner
    )


def find_out_of_place(ring: HashRing, wanted: HashRing) -> tuple[Destination, Destination] | None:
    """Return the first destination that is where another one belongs, and that one; None if the common destinations have one order."""
    common = set(wanted.destinations) & set(ring.destinations)
    orders = ([place for place in side.destinations if place in common] for side in (ring, wanted))
    return next((pair for pair in zip(*orders, strict=True) if pair[0] != pair[1]), None)

"""All differences between two states, with the exact shares of keys that they concern.

`compare` finds those of objects and bindings. `RingComparison` finds those of a ring: the order of its destinations, and each member. Slots
keep their queues in it: what moves with a slot is a difference of its bindings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology.live_rings import LiveRing, find_live_ring, make_ring
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import number_bindings, share_moved
from rabbit_chx.topology.objects.changes import fields_between
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.comparison import Comparison, compare, find_super_streams, list_partitions
from rabbit_chx.topology.planning.difference import Difference, DifferenceKind
from rabbit_chx.topology.slots.layout import SlotLayout
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
    compared = compare(wanted, live)
    names = sorted(exchange.name for exchange in compared.wanted.exchanges)
    rings = [ring for name in names if (ring := find_ring_comparison(compared, name)) is not None]
    return (
        *list_differences(compared, rings),
        *_unreadable_rings(compared),
        *(one for ring in rings for one in ring.differences()),
    )


def _unreadable_rings(compared: Comparison) -> Iterator[Difference]:
    """Yield the exchanges whose live ring has a member that no client can name. Where the order does not count, no plan has them."""
    wanted, live = compared.wanted, compared.live
    for exchange in wanted.exchanges:
        name, there = exchange.name, live.exchange(exchange.name)
        is_read = name in live.rings or name not in live.sources_left_out
        if not (is_read or exchange.ring is None or there is None or wanted.is_assumed(name)):
            yield Difference("different", exchange, there, exchange)


def list_differences(compared: Comparison, rings: Iterable[RingComparison]) -> Iterator[Difference]:
    """Yield the differences of objects and bindings, those of slots and of ``x-modulus-hash`` exchanges with their shares of keys."""
    shares = find_shares_of_moduli(compared)
    for ring in rings:
        shares |= _shares_of_slots(ring)
    for one in compared.differences:
        subject = one.subject
        if isinstance(subject, BindingDefinition) and subject.source in shares:
            yield replace(one, share=shares[subject.source])
        elif one.kind == "different" and isinstance(subject, ExchangeDefinition) and subject.type in _HASHING:
            decisive = _DECIDES_ON_KEYS if subject.type == HASH_EXCHANGE else ("type",)
            yield replace(one, share=float(any(field.field in decisive for field in one.fields)))
        else:
            yield one


def find_ring_comparison(compared: Comparison, name: str) -> RingComparison | None:
    """Return the comparison of the ring of an exchange; None if not both sides have one, or if its bindings are not read."""
    wanted, live = compared.wanted.exchange(name), compared.live.exchange(name)
    if wanted is None or live is None or {wanted.type, live.type} != {HASH_EXCHANGE} or wanted.ring is None:
        return None
    if name in compared.live.sources_left_out and name not in compared.live.rings:
        return None
    is_assumed = compared.wanted.is_assumed(name)
    return RingComparison(wanted, compared.live, compared.layouts.get(name), is_assumed, compared)


@dataclass(frozen=True)
class RingComparison:
    """A live ring, compared with the members that it is to have.

    Attributes:
        exchange: the wanted exchange, with plain members instead of slots.
        layout: its wanted slots; None without slots.
        is_assumed: True if the order of the wanted members is assumed: then the members count, and not their order.
        compared: the two topologies, which show what is to be a slot, and what happens to its bindings; None without a wanted one.
    """

    exchange: ExchangeDefinition
    live: LiveTopology
    layout: SlotLayout | None = None
    is_assumed: bool = False
    compared: Comparison | None = None

    @cached_property
    def live_ring(self) -> LiveRing:
        """The live ring."""
        return find_live_ring(self.live, self.live.exchange(self.exchange.name), self.exchange.name)

    @cached_property
    def slots(self) -> SlotView:
        """The slots in the live ring, with their bindings."""
        return self._view_slots(())

    def _view_slots(self, members: Iterable[Place]) -> SlotView:
        (name, ring, _), live = self.live_ring, self.live
        planned = None if self.compared is None else self.compared.wanted
        return view_slots(name, ring, live.exchanges, live.bindings, members=members, planned=planned)

    @property
    def members(self) -> tuple[RingMember, ...]:
        """The members that the ring is to have."""
        return self.exchange.ring or ()

    @cached_property
    def target(self) -> HashRing:
        """The ring that the members make.

        Raises:
            InputError: no broker of this release has such a ring.
        """
        return make_ring(self.members, self.live_ring.ring.release)

    def differences(self) -> Iterator[Difference]:
        """Yield the differences: first that of the order or of the buckets, then those of members."""
        is_external = self.exchange.owner == "external"
        if self.live_ring.is_wanted(self.members, is_assumed=self.is_assumed, is_external=is_external):
            return
        try:
            after = self.target
        except InputError:
            yield Difference("different", self.exchange, self._by_queue(self.live_ring.ring), None)
            return
        before, places = self.live_ring.ring, set(self.target.destinations)
        if self.layout is not None and not places & set(before.destinations):
            yield self._ring_difference("different", self.share_misplaced())
            return
        if self.live_ring.is_unordered and not self.is_assumed:
            yield self._ring_difference("order", 1.0)
        elif not self.is_assumed and before.buckets != after.buckets:
            kind: DifferenceKind = "order" if find_out_of_place(before, after) else "different"
            yield self._ring_difference(kind, self.share_elsewhere(after))
        yield from self._member_differences()

    def _ring_difference(self, kind: DifferenceKind, share: float | None) -> Difference:
        before, after = self._by_queue(self.live_ring.ring), self._by_queue(self.target)
        return Difference(kind, self.exchange, before, after, share=share)

    def _member_differences(self) -> Iterator[Difference]:
        wanted, bound = _by_destination(self.members), _by_destination(self.live_ring.bound)
        shares = dict(self.live_ring.ring.shares())
        if missing := wanted.keys() - bound.keys():
            shares |= self._shares_of(missing)
        for place in dict.fromkeys((*wanted, *bound)):
            before, after = Counter(bound.get(place, ())), Counter(wanted.get(place, ()))
            if before != after:
                kind: DifferenceKind = "missing" if not before else "different" if after else "unexpected"
                old, new = (self._first_of(side, other) for side, other in ((before, after), (after, before)))
                subject = old if new is None else new
                assert subject is not None  # one of the two sides has a binding
                fields = fields_between(old, new) if old and new else ()
                yield Difference(kind, subject, old, new, fields, shares.get(place, 0.0))

    def _first_of(
        self, members: Counter[RingMember], others: Counter[RingMember]
    ) -> BindingDefinition | None:
        """Return the first of some members that the others lack, or else the first one, as a binding."""
        member = next(iter(members - others or members), None)
        if member is None:
            return None
        binding = BindingDefinition(self.exchange.name, member.destination, member.key, member.arguments)
        return replace(binding, owner=self.exchange.owner)

    def _shares_of(self, places: Collection[Destination]) -> dict[Place, float]:
        """Return for each of some wanted destinations the exact share of keys that belong to it and have another queue now."""
        shares: dict[Place, float] = dict.fromkeys(places, 0.0)
        for (queue, place), share in self._by_queue(self.live_ring.ring).flows(self.target).items():
            if place in shares and queue != self._owners.get(place, place):
                shares[place] += share
        return shares

    def share_misplaced(self) -> float | None:
        """Return the exact share of keys with another queue than in the wanted state; None if no broker of this release has such a ring."""
        try:
            wanted = self.target
        except InputError:
            return None
        if self.layout is None:
            is_same = self.is_assumed and self.members == self.live_ring.bound
            before = self._view_slots(wanted.destinations)
            after = before.at(() if self.compared is None else self.compared.rebinds)
            old, new = self.live_ring.ring, self.live_ring.ring if is_same else wanted
            is_kept = old.buckets == new.buckets and before.owners == after.owners
            return 0.0 if is_kept else before.map_of(old).share_moved(after.map_of(new))
        owners: dict[Place, Place] = dict(
            zip(self.layout.names.refs, self.layout.owners.values(), strict=True)
        )
        return self._by_queue(self.live_ring.ring).share_moved(self.slots.map_of(wanted, owners))

    def share_elsewhere(self, ring: HashRing) -> float:
        """Return the exact share of keys that another ring sends elsewhere. Slots that stay count by their queue."""
        if ring.buckets == self.live_ring.ring.buckets:
            return 0.0
        return self._by_queue(self.live_ring.ring).share_moved(self._by_queue(ring))

    def _by_queue(self, ring: HashRing) -> KeyMap:
        return self.slots.map_of(ring, self._owners)

    @cached_property
    def _owners(self) -> Mapping[Place, Place]:
        """The owner of each slot, also of wanted slots that are not in the ring.

        If a slot has several queues, that of the topology counts, because it gets the keys too. So does that of a slot that is neither in the
        live ring nor bound.
        """
        if self.layout is None:
            return self.slots.owners
        every = self._view_slots(self.layout.names.refs)
        bound, owners = every.queues, dict(every.owners)
        for slot, queue in zip(self.layout.names.refs, self.layout.owners.values(), strict=True):
            queues = bound.get(slot, ())
            if queue in queues or not (queues or slot in self.slots.bound):
                owners[slot] = queue
        return owners


def find_out_of_place(ring: HashRing, wanted: HashRing) -> tuple[Destination, Destination] | None:
    """Return the first destination that is where another one belongs, and that one; None if the common destinations have one order."""
    common = set(wanted.destinations) & set(ring.destinations)
    orders = ([place for place in side.destinations if place in common] for side in (ring, wanted))
    return next((pair for pair in zip(*orders, strict=True) if pair[0] != pair[1]), None)


def _by_destination(members: Iterable[RingMember]) -> dict[Destination, list[RingMember]]:
    by_destination: dict[Destination, list[RingMember]] = {}
    for member in members:
        by_destination.setdefault(member.destination, []).append(member)
    return by_destination


def _shares_of_slots(ring: RingComparison) -> dict[str, float]:
    """Return the share of keys of each slot in a live ring."""
    shares = ring.live_ring.ring.shares()
    slots = {*(ring.layout.owners if ring.layout else ()), *(slot.name for slot in ring.slots.bound)}
    return {slot: shares.get(ExchangeRef(slot), 0.0) for slot in slots}


def find_shares_of_moduli(compared: Comparison) -> dict[str, float]:
    """Return the share of keys that each ``x-modulus-hash`` exchange with `queues`, and each super stream, sends elsewhere than in the topology."""
    shares, live, release = {}, compared.live, compared.release
    kept = [binding for binding, unwanted in compared.bindings if unwanted == "plugin"]
    for name in (exchange.name for exchange in compared.wanted.exchanges if exchange.queues is not None):
        if live.exchange(name) is not None and name not in live.sources_left_out:
            sides = [
                [binding for binding in bindings if binding.source == name]
                for bindings in (live.bindings, (*compared.wanted.bindings, *kept))
            ]
            identities = [{binding.identity for binding in side} for side in sides]
            is_same = identities[0] == identities[1]
            before, after = (number_bindings(side, release) for side in sides)
            shares[name] = 0.0 if is_same else share_moved(before, after, release)
    for name in find_super_streams(compared.wanted) & find_super_streams(live):
        seen, listed = (list_partitions(side, name) for side in (live, compared.wanted))
        if seen and listed:
            shares[name] = share_moved(seen, listed)
        elif any(binding.source == name for binding, unwanted in compared.bindings if unwanted):
            shares[name] = 1.0  # an order that is not known
    return shares

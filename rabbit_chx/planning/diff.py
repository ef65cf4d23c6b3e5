"""What differs between two states, with the exact shares of keys that it concerns: `plan` orders the differences, and `check` words them.

`compare` compares exchanges, queues, policies and bindings. `diff_ring` finds the differences of a ring: the order of its destinations, and
each member. Slots keep their queues in it: what moves with a slot is a difference of its bindings. The shares are counted when they are asked
for, since a plan needs none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.analysis.simulation import appended_shares
from rabbit_chx.errors import InputError
from rabbit_chx.planning.slot_layout import SlotLayout, expand_slots
from rabbit_chx.records.live_rings import LiveRing, PendingApply, find_live_ring, make_ring
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.text import grouped
from rabbit_chx.topology.arguments import fields_for
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import (
    is_super_stream,
    modulo_map_of,
    number_bindings,
    order_partitions,
    share_moved,
)
from rabbit_chx.topology.objects import (
    BROKERS_OWN,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    RingMember,
    list_onward,
)
from rabbit_chx.topology.plugin_objects import (
    find_kept_shards,
    is_of,
    plugin_objects,
    shard_binding,
    with_links,
)
from rabbit_chx.topology.schema import (
    FieldChange,
    NamedObject,
    PlannedChange,
    TopologyObject,
    fields_between,
)
from rabbit_chx.topology.slots import SlotView, view_slots

DifferenceKind: TypeAlias = Literal["missing", "unexpected", "different", "order"]
#: What an unwanted live binding is: a member of a ring, which the plan of the ring covers; one that a plugin made, which stays; one of a
#: slot or a super stream, not in the `queues` of its exchange, or owned, so that it is removed; or unmanaged, so that it stays.
Unwanted: TypeAlias = Literal["ring", "plugin", "slot", "partition", "unlisted", "owned", "unmanaged"]
_REMOVED = ("slot", "partition", "unlisted", "owned")
_HASHING = (HASH_EXCHANGE, MODULUS_EXCHANGE)
#: The fields of an exchange that determine what is hashed: all keys go elsewhere if one differs, but for chance.
_DECIDES_ON_KEYS = ("type", *(f"arguments.{name}" for name in HASH_ARGUMENTS))


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different between two states in one object. `diff` returns all of them; a plan orders them, and a check words them.

    Attributes:
        kind: ``missing`` (wanted, and not live), ``unexpected`` (live, and owned or in a ring, but not wanted), ``different``, or ``order``
            (a ring has its members in another order).
        subject: the exchange, queue, binding or policy that it is about: the wanted one, or else the live one. A member of a ring is a
            binding. It has a ``kind`` and a ``name``.
        before: the live object; None if there is none. Of a ring or a super stream the live key map.
        after: the wanted object; None if there is none. Of a ring or a super stream the wanted key map, in which slots keep their queues;
            None if no broker of this release has such a ring.
        fields: the fields that differ between the two objects.
        share: the exact share of keys that the difference concerns, 0 to 1. Of an exchange that hashes something else,
            and of a ring whose order is not known, 1. Of a ring or a super stream, the keys that go to another queue because of it; of
            a slot or a partition, its keys; of a member, those that it has, or that a missing one would have; of a binding of an
            ``x-modulus-hash`` exchange, those that go elsewhere in all. None for what hashes no keys.
    """

    kind: DifferenceKind
    subject: TopologyObject
    before: TopologyObject | KeyMap | None = None
    after: TopologyObject | KeyMap | None = None
    fields: tuple[FieldChange, ...] = ()
    share: float | None = None

    @property
    def is_ours(self) -> bool:
        """True if its object is declared and changed, and not only checked."""
        return self.subject.owner == "ours"


class RingDifference(NamedTuple):
    """How the key map of an exchange that hashes differs from the wanted one.

    Attributes:
        differences: those of the map as a whole, with its movement, and then of its members. Of an ``x-modulus-hash`` exchange the bindings
            are objects.
        moved: the exact share of keys whose queue is another one than in the wanted state; None if it is not known, or if no broker has
            such a map.
        parts: the exact share of keys of each slot, by its exchange, or of each partition.
    """

    differences: tuple[Difference, ...] = ()
    moved: float | None = None
    parts: Mapping[str, float] = {}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two topologies with plain objects, and their differences. `compare` makes it.

    Attributes:
        wanted: the wanted topology.
        live: the live topology.
        layouts: the wanted exchanges with slots, by their names.
        objects: the differences of objects, each kind in the order of names, and then of bindings without those of rings; without shares.
        bindings: the live bindings of exchanges without a ring, each with what it is if it is not wanted.
        unmanaged: the live objects that are neither owned nor wanted; they stay.
        redeclared: exchanges that are replaced although they do not differ, because no binds and unbinds make their rings.
        pending: the apply of the same file that has begun and not ended.
    """

    wanted: Topology
    live: LiveTopology
    layouts: Mapping[str, SlotLayout]
    objects: tuple[Difference, ...]
    bindings: tuple[tuple[BindingDefinition, Unwanted | None], ...]
    unmanaged: tuple[NamedObject, ...]
    redeclared: frozenset[str] = frozenset()
    pending: PendingApply | None = None

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences: those of objects and bindings, and then those of rings, in the order of names."""
        return (*self.counted, *(one for ring in self.rings.values() for one in ring.differences))

    @cached_property
    def rings(self) -> Mapping[str, RingDifference]:
        """What differs of each exchange that hashes on both sides, by its name, in the order of names."""
        there = {exchange.name: exchange for exchange in self.live.exchanges}
        wanted = {exchange.name: exchange for exchange in self.wanted.exchanges}
        both = sorted(wanted.keys() & there.keys())
        found = ((name, _diff_key_map(wanted[name], there[name], self)) for name in both)
        return {name: ring for name, ring in found if ring is not None}

    @cached_property
    def counted(self) -> tuple[Difference, ...]:
        """The differences of objects and bindings, those that concern keys with their share."""
        return tuple(_with_shares(self.objects, self.rings))

    @property
    def release(self) -> Release:
        """The release of the broker; of a file the newest one."""
        return self.live.release or NEWEST_COMPARED

    @cached_property
    def created(self) -> tuple[NamedObject, ...]:
        """The exchanges, queues and policies that a plan creates."""
        missing = (one.after for one in self.objects if one.kind == "missing" and one.is_ours)
        return tuple(named for named in missing if isinstance(named, NamedObject))

    @cached_property
    def deleted(self) -> tuple[NamedObject, ...]:
        """The live objects that are owned and not wanted."""
        unexpected = (one.before for one in self.objects if one.kind == "unexpected")
        return tuple(named for named in unexpected if isinstance(named, NamedObject))

    @cached_property
    def deleted_refs(self) -> frozenset[Destination]:
        """The queues and exchanges among `deleted`."""
        return _refs_of(self.deleted)

    @cached_property
    def uses(self) -> Mapping[Destination, int]:
        """The number of live bindings of each queue and exchange, at either end, also in rings."""
        return _count_uses(self.live)

    @cached_property
    def existing(self) -> frozenset[Destination]:
        """The queues and exchanges that are created, or that exist and stay. An end of a live binding exists, also if no list has it."""
        there = _refs_of((*self.live.exchanges, *self.live.queues, *self.created))
        return (there | self.uses.keys()) - self.deleted_refs

    @cached_property
    def replaced(self) -> tuple[tuple[NamedObject, NamedObject], ...]:
        """The exchanges and queues that the broker does not change in place, with their live versions."""
        live = self.live.by_name
        changed = {(one.subject.kind, one.subject.name) for one in self.objects if one.fields}
        changed |= {("exchange", name) for name in self.redeclared}
        return tuple(
            (live[key], wanted)
            for key, wanted in self.wanted.by_name.items()
            if key in changed and key in live and wanted.owner == "ours" and wanted.kind != "policy"
        )

    @cached_property
    def replaced_refs(self) -> frozenset[Destination]:
        """The queues and exchanges among `replaced`."""
        return _refs_of(live for live, _ in self.replaced)

    def is_external(self, exchange: str) -> bool:
        """Return True if the topology has an exchange, and another owner declares it."""
        wanted = self.wanted.exchange(exchange)
        return wanted is not None and wanted.owner == "external"

    def limit(self, exchange: str) -> float | None:
        """Return the share of the keys of an exchange that may move; None: any."""
        wanted = self.wanted.exchange(exchange)
        own = None if wanted is None else wanted.max_share_moved
        return self.wanted.max_share_moved if own is None else own

    @cached_property
    def rebinds(self) -> tuple[PlannedChange, ...]:
        """What a plan does with exchanges and with bindings without those of rings, in no order: see `SlotView.at`."""
        removed = [
            binding
            for binding, unwanted in self.bindings
            if unwanted in _REMOVED or self.deleted_refs & {ExchangeRef(binding.source), binding.destination}
        ]
        made = [one.after for one in self.objects if one.kind == "missing" and one.is_ours]
        exchanges = (named for named in self.deleted if isinstance(named, ExchangeDefinition))
        return (
            *(PlannedChange("create", None, one) for one in made if isinstance(one, ExchangeDefinition)),
            *(PlannedChange("unbind", binding, None) for binding in removed),
            *(PlannedChange("bind", None, one) for one in made if isinstance(one, BindingDefinition)),
            *(PlannedChange("delete", exchange, None) for exchange in exchanges),
        )


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
    live = as_live(live)
    expanded, live, layouts = expand_slots(complete(wanted, live), live)
    wanted = _with_live_numbers(with_links(expanded, live), live)
    shards = find_kept_shards(live, wanted)
    of_plugins = plugin_objects(live)
    unwanted = _find_unwanted(wanted, live, {*shards, *of_plugins})
    slots = {name for layout in layouts.values() if layout.is_ours for name in layout.names.exchanges}
    bindings = tuple(_judge_bindings(wanted, live, shards, of_plugins, slots))
    bound = {binding.identity for binding in live.bindings}
    listed = {binding.identity: binding for binding in wanted.bindings}
    objects = (
        *_compare_objects(wanted, live, live.release or NEWEST_COMPARED),
        *(Difference("unexpected", named, named) for named in unwanted if wanted.owned(named.name)),
        *(Difference("missing", one, None, one) for key, one in listed.items() if key not in bound),
        *(Difference("unexpected", binding, binding) for binding, why in bindings if why in _REMOVED),
    )
    unmanaged = tuple(named for named in unwanted if not wanted.owned(named.name))
    return Comparison(wanted, live, layouts, objects, bindings, unmanaged)


def _with_live_numbers(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology with the live numbers of partitions where these have the wanted order, as other tools write them."""
    numbered: dict[BindingDefinition, BindingDefinition] = {}
    for name in find_super_streams(wanted) & find_super_streams(live):
        seen = list_partitions(live, name)
        there, bound = (
            {(one.destination, one.routing_key): one for one in side.bindings if one.source == name}
            for side in (live, wanted)
        )
        if seen and seen == list_partitions(wanted, name) and there.keys() == bound.keys():
            numbered |= {one: replace(one, arguments=there[ends].arguments) for ends, one in bound.items()}
    if not numbered:
        return wanted
    return replace(wanted, bindings=tuple(numbered.get(one, one) for one in wanted.bindings))


def find_super_streams(topology: ObjectSet) -> set[str]:
    """Return the names of the super streams that have partitions."""
    bound = {one.source for one in topology.bindings if isinstance(one.destination, str)}
    return {one.name for one in topology.exchanges if one.name in bound and is_super_stream(one)}


def list_partitions(topology: Topology | LiveTopology, name: str) -> tuple[Destination, ...]:
    """Return the partitions of a super stream in the order of their numbers; empty if they do not have a number each."""
    bound, is_ordered = order_partitions(one for one in topology.bindings if one.source == name)
    return tuple(binding.destination for binding in bound) if is_ordered else ()


def _compare_objects(wanted: Topology, live: LiveTopology, release: Release) -> Iterator[Difference]:
    """Yield the wanted objects that are missing or different. No list shows the broker's own exchanges."""
    live_objects = live.by_name
    for key, named in wanted.by_name.items():
        there = live_objects.get(key)
        if there is not None:
            if fields := fields_for(there, named, release):
                yield Difference("different", named, there, named, fields)
        elif named.owner == "ours" or not (named.name == "" or named.name.startswith(BROKERS_OWN)):
            yield Difference("missing", named, None, named)


def _find_unwanted(
    wanted: Topology, live: LiveTopology, of_plugins: Collection[Destination]
) -> list[NamedObject]:
    """Return the live objects that the topology neither contains nor refers to, and that neither the broker nor a plugin makes."""
    tables = [
        *(exchange.arguments for exchange in wanted.exchanges),
        *(queue.arguments for queue in wanted.queues),
        *(policy.definition for policy in wanted.policies),
    ]
    onward = (ref for table in tables for ref in list_onward(table))
    listed = wanted.by_name
    staying = {*wanted.unlisted, *onward, *of_plugins}
    return [
        named
        for key, named in live.by_name.items()
        if key not in listed and not named.name.startswith(BROKERS_OWN) and named.ref not in staying
    ]


def _judge_bindings(
    wanted: Topology,
    live: LiveTopology,
    shards: frozenset[str],
    of_plugins: frozenset[Destination],
    slots: Collection[str],
) -> Iterator[tuple[BindingDefinition, Unwanted | None]]:
    """Yield each live binding, and what it is if it is unwanted. `slots` are the exchanges of the slots that are ours."""
    wanted_bindings = {binding.identity for binding in wanted.bindings}
    hashing = {exchange.name for exchange in wanted.exchanges if exchange.type == HASH_EXCHANGE}
    listing = {
        exchange.name
        for exchange in wanted.exchanges
        if exchange.queues is not None and exchange.owner == "ours"
    }

    ordered = find_super_streams(wanted) & {
        exchange.name for exchange in wanted.exchanges if exchange.owner == "ours"
    }

    def judge(binding: BindingDefinition) -> Unwanted:
        if binding.source in hashing:
            return "ring"
        if shard_binding(binding, shards) or is_of(binding, of_plugins):
            return "plugin"
        if binding.source in slots:
            return "slot"
        if binding.source in ordered:
            return "partition"
        if binding.source in listing:
            return "unlisted"
        return "owned" if _owns(wanted, binding) else "unmanaged"

    for identity, binding in {binding.identity: binding for binding in live.bindings}.items():
        yield binding, None if identity in wanted_bindings else judge(binding)


def _owns(wanted: Topology, binding: BindingDefinition) -> bool:
    """Return True if both ends are owned. A binding of one of the broker's predeclared exchanges is owned with its destination."""
    place = binding.destination
    is_owned = wanted.owned(place.name if isinstance(place, ExchangeRef) else place)
    return is_owned and (binding.source.startswith(BROKERS_OWN) or wanted.owned(binding.source))


def _count_uses(live: LiveTopology) -> Counter[Destination]:
    sources = Counter(binding.source for binding in live.bindings)
    uses: Counter[Destination] = Counter(binding.destination for binding in live.bindings)
    for exchange in live.exchanges:
        sources[exchange.name] += len(exchange.ring or ())
        uses.update(member.destination for member in exchange.ring or ())
    return uses + Counter({ExchangeRef(name): count for name, count in sources.items() if count})


def _refs_of(objects: Iterable[NamedObject]) -> frozenset[Destination]:
    return frozenset(ref for named in objects if (ref := named.ref) is not None)


def check_wanted(wanted: object) -> None:
    """Raise an InputError for a wanted side that is not a Topology: the reverse of a plan would undo what is wanted."""
    if not isinstance(wanted, Topology):
        raise InputError(
            f"wanted is a {type(wanted).__name__}: pass a Topology, of Topology.from_toml(text), or of LiveTopology.as_wanted()"
        )


def as_live(live: object) -> LiveTopology:
    """Return the live side of a plan or a check. What a file says counts as a broker that has just that, as `LiveTopology.of_file`.

    Raises:
        InputError: it is of another type.
    """
    if isinstance(live, Topology):
        return LiveTopology.of_file(live)
    if not isinstance(live, LiveTopology):
        raise InputError(
            f"live is a {type(live).__name__}: pass a LiveTopology, of broker.topology(), or LiveTopology.of_file(topology)"
        )
    return live


def complete(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology with what a definitions file leaves to the broker.

    A queue without a type gets the default of the vhost. A ring without an order gets the live order: its new members are at the end.

    Raises:
        InputError: an argument is of another type.
    """
    check_wanted(wanted)
    queues = wanted.queues
    if wanted.file.is_import and live.facts.limits.default_queue_type is not None:
        queues = tuple(
            queue.with_default_type(live.facts.limits.default_queue_type)
            if queue.name in wanted.file.untyped_queues
            else queue
            for queue in queues
        )
    bound = {
        exchange.name: exchange.ring or ()
        for exchange in live.exchanges
        if exchange.name in wanted.file.unordered
    }
    exchanges = tuple(
        replace(exchange, ring=_in_live_order(exchange.ring, bound[exchange.name]))
        if exchange.ring is not None and exchange.name in bound
        else exchange
        for exchange in wanted.exchanges
    )
    return replace(wanted, queues=queues, exchanges=exchanges)


def _in_live_order(wanted: Sequence[RingMember], live: Sequence[RingMember]) -> tuple[RingMember, ...]:
    remaining = Counter(wanted)
    kept = []
    for member in live:
        if remaining[member]:
            remaining[member] -= 1
            kept.append(member)
    return (*kept, *remaining.elements())


# -- rings and other key maps


def _with_shares(objects: Iterable[Difference], rings: Mapping[str, RingDifference]) -> Iterator[Difference]:
    """Yield the differences of objects and bindings, those that concern keys with their share."""
    parts = {name: share for ring in rings.values() for name, share in ring.parts.items()}
    for one in objects:
        subject = one.subject
        share = None
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
        is_compared = wanted.ring is not None and not compared.wanted.is_unordered(name)
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
    if not before.order.is_known:
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
    name = exchange.name
    members = exchange.ring or ()
    ring = find_live_ring(live, live.exchange(name), name)
    layout = None if compared is None else compared.layouts.get(name)
    planned = None if compared is None else compared.wanted
    places = [member.destination for member in members]
    slots = view_slots(name, ring.ring, live.exchanges, live.bindings, members=places, planned=planned)
    before = _owners_before(slots, layout)
    shares = ring.ring.shares() if slots.bound and ring.ring.has_shares else {}
    parts = {slot.name: shares.get(slot, 0.0) for slot in slots.bound}
    is_unordered = compared is not None and compared.wanted.is_unordered(name)
    is_wanted = ring.is_wanted(members, any_order=is_unordered, is_external=exchange.owner == "external")
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
    then = ring.ring if is_unordered and members == ring.bound else target
    is_kept = ring.ring.buckets == then.buckets and before == after
    moved = (
        0.0
        if is_kept
        else _share_moved(ring.ring, now, then, slots.map_of(then, after), is_appended=is_unordered)
    )
    if is_wanted:
        return RingDifference((), moved, parts)
    wanted = slots.map_of(target, before)
    if layout is not None and not {*target.destinations} & {*ring.ring.destinations}:
        return RingDifference((Difference("different", exchange, now, wanted, share=moved),), moved, parts)
    whole: tuple[Difference, ...] = ()
    if ring.is_unordered and not is_unordered:
        whole = (Difference("order", exchange, now, wanted),)
    elif not is_unordered and ring.ring.buckets != target.buckets:
        kind: DifferenceKind = "order" if find_out_of_place(ring.ring, target) else "different"
        share = moved if before == after else _share_moved(ring.ring, now, target, wanted)
        whole = (Difference(kind, exchange, now, wanted, share=share),)
    return RingDifference((*whole, *_diff_members(exchange, ring, now, target, before)), moved, parts)


def _share_moved(
    ring: HashRing, now: KeyMap, then: HashRing, target: KeyMap, *, is_appended: bool = False
) -> float | None:
    """Return the exact share of the keys that another map sends elsewhere; None if that depends on an order which is not known.

    Args:
        ring: the live ring.
        now: the same with the queues of its slots.
        then: the ring afterwards.
        target: the same with the queues of its slots.
        is_appended: True if that ring is the live one with more members behind all others.
    """
    if ring.is_determined or (ring.is_sole and len(then.destinations) <= 1):
        return now.share_moved(target)
    appended = appended_shares(ring, then) if is_appended else None
    return None if appended is None else sum(appended.values())


def _owners_before(slots: SlotView, layout: SlotLayout | None) -> dict[Place, Place]:
    """Return the owner of each live and each wanted slot.

    If a slot has several queues, that of the topology counts, because it gets the keys too. So does that of a slot that is neither in the
    live ring nor bound.
    """
    owners = dict(slots.owners)
    queues = slots.queues
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
    shares: dict[Place, float | None] = dict(ring.ring.shares()) if ring.ring.has_shares else {}
    if ring.ring.is_determined:
        gained: dict[Place, float] = dict.fromkeys(missing, 0.0)
        for (queue, place), share in now.flows(target).items() if missing else ():
            if place in missing and queue != owners.get(place, place):
                gained[place] += share
        shares |= gained
    for place in dict.fromkeys((*wanted, *bound)):
        before = Counter(bound.get(place, ()))
        after = Counter(wanted.get(place, ()))
        if before != after:
            kind: DifferenceKind = "missing" if not before else "different" if after else "unexpected"
            old, new = (_first_of(exchange, *sides) for sides in ((before, after), (after, before)))
            subject = old if new is None else new
            assert subject is not None  # one of the two sides has a binding
            fields = fields_between(old, new) if old and new else ()
            yield Difference(
                kind, subject, old, new, fields, shares.get(place, 0.0 if ring.ring.is_determined else None)
            )


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

"""The wanted and the live topology, compared once: the value, and the comparison of objects and bindings. `diff` adds that of rings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.planning.difference import Difference
from rabbit_chx.planning.slot_layout import SlotLayout, expand_slots
from rabbit_chx.records.pending_apply import PendingApply
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import is_super_stream, order_partitions
from rabbit_chx.topology.objects.changes import NamedObject, PlannedChange
from rabbit_chx.topology.objects.objects import (
    BROKERS_OWN,
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    RingMember,
    list_onward,
)
from rabbit_chx.topology.rules.arguments import fields_for
from rabbit_chx.topology.rules.plugin_objects import (
    find_kept_shards,
    is_of,
    plugin_objects,
    shard_binding,
    with_links,
)

#: What an unwanted live binding is: a member of a ring, which the plan of the ring covers; one that a plugin made, which stays; one of a
#: slot or a super stream, not in the `queues` of its exchange, or owned, so that it is removed; or unmanaged, so that it stays.
Unwanted: TypeAlias = Literal["ring", "plugin", "slot", "partition", "unlisted", "owned", "unmanaged"]
_REMOVED = ("slot", "partition", "unlisted", "owned")


class LiveBinding(NamedTuple):
    """A live binding of an exchange without a ring; `unwanted` is None if it is wanted."""

    binding: BindingDefinition
    unwanted: Unwanted | None


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
        objects: the differences of objects, each kind in the order of names, and then of bindings without those of rings.
        bindings: the live bindings.
        unmanaged: the live objects that are neither owned nor wanted; they stay.
        rings: what differs of each exchange that hashes on both sides, by its name, in the order of names.
        redeclared: exchanges that are replaced although they do not differ, because no binds and unbinds make their rings.
        pending: the apply of the same file that has begun and not ended.
    """

    wanted: Topology
    live: LiveTopology
    layouts: Mapping[str, SlotLayout]
    objects: tuple[Difference, ...]
    bindings: tuple[LiveBinding, ...]
    unmanaged: tuple[NamedObject, ...]
    rings: Mapping[str, RingDifference] = field(default_factory=dict)
    redeclared: frozenset[str] = frozenset()
    pending: PendingApply | None = None

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences: those of objects and bindings, and then those of rings, in the order of names."""
        return (*self.objects, *(one for ring in self.rings.values() for one in ring.differences))

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


def compare_objects(wanted: Topology, live: LiveTopology) -> Comparison:
    """Return the comparison of two topologies without that of their rings.

    Raises:
        InputError: an argument is of another type; or a member would get no slot, or lists of slots do not contain each slot once.
    """
    live = as_live(live)
    expanded, live, layouts = expand_slots(complete(wanted, live), live)
    wanted = _with_live_numbers(with_links(expanded, live), live)
    shards, of_plugins = find_kept_shards(live, wanted), plugin_objects(live)
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
    listed, staying = wanted.by_name, {*wanted.unlisted, *onward, *of_plugins}
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
) -> Iterator[LiveBinding]:
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
        yield LiveBinding(binding, None if identity in wanted_bindings else judge(binding))


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

    A queue without a type gets the default of the vhost. A ring whose order is assumed gets the live order: its new members are at the end.

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

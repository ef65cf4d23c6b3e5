"""The wanted and the live topology, compared once. `plan` orders its differences and adds refusals; `check` reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.changes import (
    FieldChange,
    NamedObject,
    fields_between,
)
from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology
from rabbit_chx.topology.objects import (
    BROKERS_OWN,
    HASH_EXCHANGE,
    ONWARD_ARGUMENTS,
    BindingDefinition,
    ObjectKind,
    Owner,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.plugin_objects import is_of, plugin_objects, with_links
from rabbit_chx.topology.shards import kept_shards, shard_binding
from rabbit_chx.topology.slots import SlotLayout, expand_slots

#: What an unwanted live binding is: a member of a ring, which the plan of the ring covers; one that a plugin made, which stays; not in the
#: `queues` of its exchange, or owned, so that it is removed; or unmanaged, so that it stays.
Unwanted: TypeAlias = Literal["ring", "plugin", "unlisted", "owned", "unmanaged"]


class ObjectPair(NamedTuple):
    """A wanted exchange, queue or policy and its live version; `fields` are those that differ, if it exists."""

    wanted: NamedObject
    live: NamedObject | None
    fields: tuple[FieldChange, ...]

    @property
    def is_ours(self) -> bool:
        """True if it is declared and changed, and not only checked."""
        return self.wanted.owner == "ours"

    @property
    def is_missing(self) -> bool:
        """True if it does not exist. No list shows the broker's own exchanges."""
        name = self.wanted.name
        return self.live is None and name != "" and not name.startswith(BROKERS_OWN)


class BindingPair(NamedTuple):
    """A binding: the wanted and the live version, of which one may be missing; `unwanted` is None for a wanted binding."""

    wanted: BindingDefinition | None
    live: BindingDefinition | None
    unwanted: Unwanted | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two topologies with plain objects, and their differences. `compare` makes it.

    Attributes:
        wanted: the wanted topology.
        live: the live topology.
        layouts: the wanted exchanges with slots, by their names.
        redeclared: exchanges that are replaced although they do not differ, because no binds and unbinds make their rings.
    """

    wanted: Topology
    live: LiveTopology
    layouts: Mapping[str, SlotLayout]
    redeclared: frozenset[str] = frozenset()

    def redeclaring(self, exchanges: Collection[str]) -> Comparison:
        """Return the comparison in which further exchanges are replaced."""
        return replace(self, redeclared=self.redeclared | frozenset(exchanges))

    @property
    def release(self) -> Release:
        """The release of the broker; of a file the newest one."""
        return self.live.release or NEWEST_COMPARED

    def limit_of(self, name: str) -> float | None:
        """Return the share of the keys of an exchange that may move; None: any."""
        exchange = self.wanted.exchange(name)
        own = None if exchange is None else exchange.max_share_moved
        return self.wanted.max_share_moved if own is None else own

    @cached_property
    def pairs(self) -> tuple[ObjectPair, ...]:
        """The wanted objects, each kind in the order of names."""
        there = by_name(self.live)
        return tuple(
            ObjectPair(wanted, None, ())
            if (live := there.get(key)) is None
            else ObjectPair(wanted, live, fields_between(live, wanted, self.release))
            for key, wanted in by_name(self.wanted).items()
        )

    @cached_property
    def created(self) -> tuple[NamedObject, ...]:
        """The wanted objects that are not live."""
        return tuple(pair.wanted for pair in self.pairs if pair.is_ours and pair.live is None)

    @cached_property
    def updated(self) -> tuple[tuple[PolicyDefinition, PolicyDefinition], ...]:
        """The policies that differ, live and wanted."""
        return tuple(
            (live, wanted)
            for wanted, live, fields in self.pairs
            if isinstance(live, PolicyDefinition)
            and isinstance(wanted, PolicyDefinition)
            and wanted.owner == "ours"
            and fields
        )

    @cached_property
    def replaced(self) -> tuple[tuple[NamedObject, NamedObject], ...]:
        """The exchanges and queues that differ, live and wanted. The broker does not change them in place."""
        return tuple(
            (pair.live, pair.wanted)
            for pair in self.pairs
            if pair.is_ours
            and pair.live is not None
            and not isinstance(pair.wanted, PolicyDefinition)
            and (pair.fields or (pair.wanted.kind == "exchange" and pair.wanted.name in self.redeclared))
        )

    @cached_property
    def shards(self) -> frozenset[str]:
        """The queues that rabbitmq_sharding keeps for sharded exchanges."""
        return kept_shards(self.live, self.wanted)

    @cached_property
    def of_plugins(self) -> frozenset[Destination]:
        """The exchanges and queues that plugins make and own, without shards."""
        return plugin_objects(self.live)

    @cached_property
    def _unwanted(self) -> tuple[NamedObject, ...]:
        """The live objects that the topology neither contains nor refers to, as a member of a ring or as an alternate exchange."""
        wanted = by_name(self.wanted)
        named = {*self.wanted.unlisted, *_named_by_arguments(self.wanted), *self.shards, *self.of_plugins}
        return tuple(
            live
            for key, live in by_name(self.live).items()
            if key not in wanted and not live.name.startswith(BROKERS_OWN) and live.ref not in named
        )

    @cached_property
    def deleted(self) -> tuple[NamedObject, ...]:
        """The live objects that are owned and not wanted."""
        return tuple(live for live in self._unwanted if self.wanted.owned(live.name))

    @cached_property
    def unmanaged(self) -> tuple[NamedObject, ...]:
        """The live objects that are neither owned nor wanted; they stay."""
        return tuple(live for live in self._unwanted if not self.wanted.owned(live.name))

    @cached_property
    def deleted_refs(self) -> frozenset[Destination]:
        """The queues and exchanges that are deleted."""
        return frozenset(ref for deleted in self.deleted if (ref := deleted.ref) is not None)

    @cached_property
    def replaced_refs(self) -> frozenset[Destination]:
        """The queues and exchanges that are replaced."""
        return frozenset(ref for replaced, _ in self.replaced if (ref := replaced.ref) is not None)

    @cached_property
    def uses(self) -> Mapping[Destination, int]:
        """The number of live bindings of each queue and exchange, at either end, also in rings."""
        sources = Counter(binding.source for binding in self.live.bindings)
        uses: Counter[Destination] = Counter(binding.destination for binding in self.live.bindings)
        for exchange in self.live.exchanges:
            sources[exchange.name] += len(exchange.ring or ())
            uses.update(member.destination for member in exchange.ring or ())
        return uses + Counter({ExchangeRef(name): count for name, count in sources.items() if count})

    @cached_property
    def existing(self) -> frozenset[Destination]:
        """The queues and exchanges that are created, or that exist and stay. An end of a live binding exists, also if no list has it."""
        existing: set[Destination] = {ExchangeRef(exchange.name) for exchange in self.live.exchanges}
        existing.update(queue.name for queue in self.live.queues)
        existing.update(self.uses)
        existing.update(ref for created in self.created if (ref := created.ref) is not None)
        return frozenset(existing - self.deleted_refs)

    @cached_property
    def slots(self) -> Mapping[str, str]:
        """The exchange of each wanted slot."""
        return {slot: name for name, layout in self.layouts.items() for slot in layout.names.slots}

    @cached_property
    def bindings(self) -> tuple[BindingPair, ...]:
        """The bindings of exchanges without a ring: the missing ones, and then the live ones."""
        wanted = {binding.identity: binding for binding in self.wanted.bindings}
        live = {binding.identity: binding for binding in self.live.bindings}
        hashing = {exchange.name for exchange in self.wanted.exchanges if exchange.type == HASH_EXCHANGE}
        listing = {
            exchange.name
            for exchange in self.wanted.exchanges
            if exchange.queues is not None and exchange.owner == "ours"
        }

        def unwanted(binding: BindingDefinition) -> Unwanted:
            if binding.source in hashing:
                return "ring"
            if shard_binding(binding, self.shards) or is_of(binding, self.of_plugins):
                return "plugin"
            if binding.source in listing:
                return "unlisted"
            return "owned" if self._owns(binding) else "unmanaged"

        return (
            *(BindingPair(binding, None) for key, binding in wanted.items() if key not in live),
            *(
                BindingPair(wanted[key], binding)
                if key in wanted
                else BindingPair(None, binding, unwanted(binding))
                for key, binding in live.items()
            ),
        )

    def missing_bindings(self, owner: Owner) -> Iterator[BindingDefinition]:
        """Yield the wanted bindings of an owner that do not exist."""
        for wanted, live, _ in self.bindings:
            if wanted is not None and live is None and wanted.owner == owner:
                yield wanted

    def _owns(self, binding: BindingDefinition) -> bool:
        """Return True if both ends are owned. A binding of one of the broker's predeclared exchanges is owned with its destination."""
        owned, place = self.wanted.owned, binding.destination
        is_owned = owned(place.name if isinstance(place, ExchangeRef) else place)
        return is_owned and (binding.source.startswith(BROKERS_OWN) or owned(binding.source))


def check_wanted(wanted: object) -> None:
    """Raise an InputError for a wanted side that is not a Topology: the reverse of a plan would undo what is wanted."""
    if not isinstance(wanted, Topology):
        raise InputError(
            f"wanted is a {type(wanted).__name__}: pass a Topology, of Topology.from_toml(text), or the objects of a LiveTopology"
        )


def live_side(live: object) -> LiveTopology:
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


def compare(wanted: Topology, live: LiveTopology) -> Comparison:
    """Return the comparison of two topologies.

    Raises:
        InputError: an argument is of another type; or a member would get no slot, or lists of slots do not contain each slot once.
    """
    live = live_side(live)
    plain, live, layouts = expand_slots(completed(wanted, live), live)
    return Comparison(with_links(plain, live), live, layouts)


def completed(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology with what a definitions file leaves to the broker.

    A queue without a type gets the default of the vhost. A ring whose order is assumed gets the live order: its new members are at the end.

    Raises:
        InputError: an argument is of another type.
    """
    check_wanted(wanted)
    queues = wanted.queues
    if wanted.file.is_import and live.facts.default_queue_type is not None:
        queues = tuple(
            queue.with_default_type(live.facts.default_queue_type)
            if queue.name in wanted.file.untyped_queues
            else queue
            for queue in queues
        )
    bound = {
        exchange.name: exchange.ring or () for exchange in live.exchanges if wanted.is_assumed(exchange.name)
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


def by_name(topology: AnyTopology) -> Mapping[tuple[ObjectKind, str], NamedObject]:
    """Return the exchanges, queues and policies by kind and name."""
    objects: tuple[NamedObject, ...] = (*topology.exchanges, *topology.queues, *topology.policies)
    return {(named.kind, named.name): named for named in objects}


def _named_by_arguments(wanted: Topology) -> Iterator[ExchangeRef]:
    tables = [exchange.arguments for exchange in wanted.exchanges]
    tables += [queue.arguments for queue in wanted.queues]
    tables += [policy.definition for policy in wanted.policies]
    for table in tables:
        for argument in ONWARD_ARGUMENTS:
            name = table.get(argument)
            if isinstance(name, str) and name:
                yield ExchangeRef(name)

"""The differences between two topologies: objects and plain bindings to create, change, replace or delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.release import NEWEST
from rabbit_chx.topology.changes import (
    NamedObject,
    ObjectKind,
    PlannedChange,
    fields_between,
    kind_of,
    reference_to,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    PolicyDefinition,
    RingMember,
)
from rabbit_chx.topology.refusals import absent_external, deletion, different_external
from rabbit_chx.topology.shards import kept_shards, shard_binding

_BROKERS_OWN = "amq."


def completed(wanted: Topology, live: Topology) -> Topology:
    """Return the wanted topology with what a definitions file leaves to the broker.

    A queue without a type gets the default of the vhost. A ring whose order is assumed gets the live order: its new members are at the end.
    """
    queues = wanted.queues
    if wanted.is_import and live.default_queue_type is not None:
        queues = tuple(
            queue.with_default_type(live.default_queue_type) if queue.name in wanted.untyped_queues else queue
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


@dataclass(frozen=True, slots=True)
class ObjectDifferences:
    """The differences between wanted and live objects.

    Attributes:
        created: wanted objects that are not live.
        updated: the policies that differ, live and wanted.
        replaced: the exchanges and queues that differ, live and wanted. The broker does not change them in place.
        deleted: live objects that are owned and not wanted.
        unmanaged: live objects that are neither owned nor wanted; they stay. Objects that the topology only refers to, as a member of a
            ring or as an alternate exchange, and `shards` are in neither list.
        shards: the queues that rabbitmq_sharding keeps for sharded exchanges.
        refusals: missing or different external objects.
    """

    created: tuple[NamedObject, ...]
    updated: tuple[tuple[PolicyDefinition, PolicyDefinition], ...]
    replaced: tuple[tuple[NamedObject, NamedObject], ...]
    deleted: tuple[NamedObject, ...]
    unmanaged: tuple[NamedObject, ...]
    refusals: tuple[Finding, ...]
    shards: frozenset[str] = frozenset()

    @property
    def deleted_refs(self) -> frozenset[Destination]:
        """The queues and exchanges that are deleted."""
        return frozenset(ref for deleted in self.deleted if (ref := reference_to(deleted)) is not None)

    @property
    def replaced_refs(self) -> frozenset[Destination]:
        """The queues and exchanges that are replaced."""
        return frozenset(ref for replaced, _ in self.replaced if (ref := reference_to(replaced)) is not None)


def by_name(topology: Topology) -> Mapping[tuple[ObjectKind, str], NamedObject]:
    """Return the exchanges, queues and policies by kind and name."""
    objects: tuple[NamedObject, ...] = (*topology.exchanges, *topology.queues, *topology.policies)
    return {(kind_of(named), named.name): named for named in objects}


def object_differences(
    wanted: Topology, live: Topology, also_replaced: Collection[str] = ()
) -> ObjectDifferences:
    """Return the differences between objects, each kind in the order of names.

    `also_replaced` are exchanges that must be declared again although they do not differ.
    """
    created: list[NamedObject] = []
    updated: list[tuple[PolicyDefinition, PolicyDefinition]] = []
    replaced: list[tuple[NamedObject, NamedObject]] = []
    refusals: list[Finding] = []
    live_objects, wanted_objects, release = by_name(live), by_name(wanted), live.release or NEWEST
    for key, wanted_object in wanted_objects.items():
        live_object = live_objects.get(key)
        if wanted_object.owner == "external":
            refusals += _external_refusals(live_object, wanted_object, release)
        elif live_object is None:
            created.append(wanted_object)
        elif isinstance(live_object, PolicyDefinition) and isinstance(wanted_object, PolicyDefinition):
            if fields_between(live_object, wanted_object, release):
                updated.append((live_object, wanted_object))
        elif fields_between(live_object, wanted_object, release) or (
            key[0] == "exchange" and wanted_object.name in also_replaced
        ):
            replaced.append((live_object, wanted_object))
    shards = kept_shards(live, wanted)
    named = {*wanted.unlisted, *_named_by_arguments(wanted), *shards}
    unwanted = [
        live_object
        for key, live_object in live_objects.items()
        if key not in wanted_objects
        and not live_object.name.startswith(_BROKERS_OWN)
        and reference_to(live_object) not in named
    ]
    return ObjectDifferences(
        tuple(created),
        tuple(updated),
        tuple(replaced),
        tuple(live_object for live_object in unwanted if wanted.owned(live_object.name)),
        tuple(live_object for live_object in unwanted if not wanted.owned(live_object.name)),
        tuple(refusals),
        shards,
    )


def _named_by_arguments(wanted: Topology) -> Iterator[ExchangeRef]:
    tables = [exchange.arguments for exchange in wanted.exchanges]
    tables += [queue.arguments for queue in wanted.queues]
    tables += [policy.definition for policy in wanted.policies]
    for table in tables:
        for argument in ("alternate-exchange", "x-dead-letter-exchange", "dead-letter-exchange"):
            name = table.get(argument)
            if isinstance(name, str) and name:
                yield ExchangeRef(name)


def _external_refusals(live: NamedObject | None, wanted: NamedObject, release: Release) -> Iterator[Finding]:
    if live is None:
        # No list shows the broker's own exchanges.
        if wanted.name and not wanted.name.startswith(_BROKERS_OWN):
            yield absent_external(wanted, wanted.name)
    elif fields := fields_between(live, wanted, release):
        yield different_external(wanted, fields)


@dataclass(frozen=True, slots=True)
class BindingDifferences:
    """The differences between wanted and live bindings.

    Attributes:
        first_unbinds: the unbinds before objects are replaced.
        binds: the binds, including those of replaced objects. The unbind of a slot precedes its bind here.
        last_unbinds: the unbinds at the end.
        unmanaged: live bindings that are neither owned nor wanted; they stay.
    """

    first_unbinds: tuple[PlannedChange, ...]
    binds: tuple[PlannedChange, ...]
    last_unbinds: tuple[PlannedChange, ...]
    unmanaged: tuple[BindingDefinition, ...]
    refusals: tuple[Finding, ...]


def binding_differences(
    wanted: Topology, live: Topology, objects: ObjectDifferences, slots: Collection[str] = ()
) -> BindingDifferences:
    """Return the differences between bindings.

    `slots` are exchanges that keep only wanted bindings. Their other bindings are removed just before the new ones are made.
    """
    deleted, replaced = objects.deleted_refs, objects.replaced_refs
    hashing = {exchange.name for exchange in wanted.exchanges if exchange.type == HASH_EXCHANGE}
    listing = queue_lists(wanted)
    live_bindings = {binding_identity(binding): binding for binding in live.bindings}
    wanted_bindings = {binding_identity(binding): binding for binding in wanted.bindings}
    first_unbinds: list[PlannedChange] = []
    binds: list[PlannedChange] = []
    last_unbinds, unmanaged = [], []
    refusals: list[Finding] = []
    for key, binding in live_bindings.items():
        ends = {ExchangeRef(binding.source), binding.destination}
        unbind = PlannedChange("unbind", binding, None)
        if binding.source in slots and key not in wanted_bindings:
            (first_unbinds if ends & replaced else binds).append(unbind)
            continue
        if ends & replaced:
            first_unbinds.append(unbind)
        elif ends & deleted:
            last_unbinds.append(unbind)
        if ends & deleted:
            continue
        if key not in wanted_bindings and binding.source in hashing:
            continue  # it becomes an exchange whose bindings are its ring
        if key not in wanted_bindings and not shard_binding(binding, objects.shards):
            if binding.source in listing or owned_binding(wanted, binding):
                last_unbinds += [] if ends & replaced else [unbind]
                refusals += [] if binding.source in listing else [deletion(binding, unbind.name)]
                continue
            unmanaged.append(binding)
        if ends & replaced:
            binds.append(PlannedChange("bind", None, binding))
    absent = [wanted_bindings[key] for key in wanted_bindings if key not in live_bindings]
    binds += [PlannedChange("bind", None, binding) for binding in absent if binding.owner == "ours"]
    refusals += [
        absent_external(binding, PlannedChange("bind", None, binding).name)
        for binding in absent
        if binding.owner != "ours"
    ]
    return BindingDifferences(
        tuple(first_unbinds), tuple(binds), tuple(last_unbinds), tuple(unmanaged), tuple(refusals)
    )


def queue_lists(wanted: Topology) -> frozenset[str]:
    """Return the exchanges that keep only the bindings of their `queues`."""
    return frozenset(
        exchange.name
        for exchange in wanted.exchanges
        if exchange.queues is not None and exchange.owner == "ours"
    )


def binding_identity(binding: BindingDefinition) -> Hashable:
    """Return the identity of a binding, without its owner."""
    return binding.source, binding.destination, binding.routing_key, binding.arguments


def owned_binding(wanted: Topology, binding: BindingDefinition) -> bool:
    """Return True if both ends are owned. A binding of one of the broker's predeclared exchanges is owned with its destination."""
    name = binding.destination.name if isinstance(binding.destination, ExchangeRef) else binding.destination
    return wanted.owned(name) and (binding.source.startswith(_BROKERS_OWN) or wanted.owned(binding.source))

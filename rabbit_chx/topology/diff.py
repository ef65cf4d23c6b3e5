"""Which exchanges, queues, policies and plain bindings are to be created, changed, replaced or deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.changes import PlannedChange, fields_between, kind_of
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.refusals import absent_external, deletion, different_external
from rabbit_chx.topology.shards import kept_shards, shard_binding

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.changes import ObjectKind
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import BindingDefinition
    from rabbit_chx.topology.refusals import PlanRefusal

__all__ = [
    "BindingDifferences",
    "NamedObject",
    "ObjectDifferences",
    "binding_differences",
    "binding_identity",
    "by_name",
    "object_differences",
    "owned_binding",
    "reference_to",
]

NamedObject: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition
_BROKERS_OWN = "amq."


@dataclass(frozen=True, slots=True)
class ObjectDifferences:
    """What differs between the objects that are wanted and those that are there.

    Attributes:
        created: what is not there.
        updated: the policies that differ, as they are and as they are wanted.
        replaced: the exchanges and queues that differ, likewise. The broker does not change them in place.
        deleted: what is not wanted, and owned.
        unmanaged: what is not wanted, and not owned: it is left as it is. What the topology only names, as a member of
            a ring or as an alternate exchange, is neither deleted nor among these, and nor are `shards`.
        shards: the queues that a plugin keeps for sharded exchanges.
        refusals: what is wrong with objects of others.
    """

    created: tuple[NamedObject, ...]
    updated: tuple[tuple[PolicyDefinition, PolicyDefinition], ...]
    replaced: tuple[tuple[NamedObject, NamedObject], ...]
    deleted: tuple[NamedObject, ...]
    unmanaged: tuple[NamedObject, ...]
    refusals: tuple[PlanRefusal, ...]
    shards: frozenset[str] = frozenset()

    @property
    def gone(self) -> frozenset[Destination]:
        """The queues and exchanges that are deleted."""
        return frozenset(ref for one in self.deleted if (ref := reference_to(one)) is not None)

    @property
    def again(self) -> frozenset[Destination]:
        """The queues and exchanges that are replaced."""
        return frozenset(ref for one, _ in self.replaced if (ref := reference_to(one)) is not None)


def reference_to(one: NamedObject) -> Destination | None:
    """Return the object as a destination of bindings; None for a policy."""
    if isinstance(one, ExchangeDefinition):
        return ExchangeRef(one.name)
    return one.name if isinstance(one, QueueDefinition) else None


def by_name(topology: Topology) -> Mapping[tuple[ObjectKind, str], NamedObject]:
    """Return the exchanges, queues and policies by kind and name."""
    objects: tuple[NamedObject, ...] = (*topology.exchanges, *topology.queues, *topology.policies)
    return {(kind_of(one), one.name): one for one in objects}


def object_differences(
    wanted: Topology, live: Topology, also_replaced: Collection[str] = ()
) -> ObjectDifferences:
    """Return what differs, each kind in the order of names.

    Args:
        wanted: what should be there.
        live: what is there.
        also_replaced: exchanges that have to be declared again, though they do not differ.
    """
    created: list[NamedObject] = []
    updated: list[tuple[PolicyDefinition, PolicyDefinition]] = []
    replaced: list[tuple[NamedObject, NamedObject]] = []
    refusals: list[PlanRefusal] = []
    theirs, ours = by_name(live), by_name(wanted)
    for key, one in ours.items():
        there = theirs.get(key)
        if one.owner == "external":
            refusals += _external_refusals(there, one)
        elif there is None:
            created.append(one)
        elif isinstance(there, PolicyDefinition) and isinstance(one, PolicyDefinition):
            if fields_between(there, one):
                updated.append((there, one))
        elif fields_between(there, one) or (key[0] == "exchange" and one.name in also_replaced):
            replaced.append((there, one))
    shards = kept_shards(live, wanted)
    named = {*wanted.unlisted, *_named_by_arguments(wanted), *shards}
    others = [
        one
        for key, one in theirs.items()
        if key not in ours and not one.name.startswith(_BROKERS_OWN) and reference_to(one) not in named
    ]
    return ObjectDifferences(
        tuple(created),
        tuple(updated),
        tuple(replaced),
        tuple(one for one in others if wanted.owned(one.name)),
        tuple(one for one in others if not wanted.owned(one.name)),
        tuple(refusals),
        shards,
    )


def _named_by_arguments(wanted: Topology) -> Iterator[ExchangeRef]:
    """Yield the exchanges that take what others cannot route, or what queues drop."""
    tables = [one.arguments for one in wanted.exchanges]
    tables += [one.arguments for one in wanted.queues]
    tables += [one.definition for one in wanted.policies]
    for table in tables:
        for argument in ("alternate-exchange", "x-dead-letter-exchange", "dead-letter-exchange"):
            name = table.get(argument)
            if isinstance(name, str) and name:
                yield ExchangeRef(name)


def _external_refusals(there: NamedObject | None, one: NamedObject) -> Iterator[PlanRefusal]:
    if there is None:
        if one.name and not one.name.startswith(_BROKERS_OWN):  # no list shows the broker's own exchanges
            yield absent_external(one, one.name)
    elif fields_between(there, one):
        yield different_external(there, one)


@dataclass(frozen=True, slots=True)
class BindingDifferences:
    """What differs between the bindings that are wanted and those that are there.

    Attributes:
        early: bindings of what is replaced. They are unbound before.
        bound: what is bound, also again, and what is unbound just before.
        late: what is unbound at the end.
        unmanaged: what is not wanted, and not owned: it is left as it is.
        refusals: why the plan may be refused.
    """

    early: tuple[PlannedChange, ...]
    bound: tuple[PlannedChange, ...]
    late: tuple[PlannedChange, ...]
    unmanaged: tuple[BindingDefinition, ...]
    refusals: tuple[PlanRefusal, ...]


def binding_differences(
    wanted: Topology, live: Topology, objects: ObjectDifferences, slots: Collection[str] = ()
) -> BindingDifferences:
    """Return what differs between the bindings.

    Args:
        wanted: what should be there.
        live: what is there.
        objects: what differs between their exchanges and queues.
        slots: exchanges that have no other bindings than those that are wanted. One that goes is unbound just before
            those that come are bound.
    """
    gone, again = objects.gone, objects.again
    hashing = {one.name for one in wanted.exchanges if one.type == HASH_EXCHANGE}
    there = {binding_identity(one): one for one in live.bindings}
    ours = {binding_identity(one): one for one in wanted.bindings}
    early: list[PlannedChange] = []
    bound: list[PlannedChange] = []
    late, unmanaged = [], []
    refusals: list[PlanRefusal] = []
    for key, one in there.items():
        ends = {ExchangeRef(one.source), one.destination}
        unbound = PlannedChange("unbind", one, None)
        if one.source in slots and key not in ours:
            (early if ends & again else bound).append(unbound)
            continue
        if ends & again:
            early.append(unbound)
        elif ends & gone:
            late.append(unbound)
        if ends & gone:
            continue
        if key not in ours and one.source in hashing:
            continue  # it becomes an exchange whose bindings are its ring
        if key not in ours and not shard_binding(one, objects.shards):
            if owned_binding(wanted, one):
                late += [] if ends & again else [unbound]
                refusals.append(deletion(one, unbound.name))
                continue
            unmanaged.append(one)
        if ends & again:
            bound.append(PlannedChange("bind", None, one))
    absent = [ours[key] for key in ours if key not in there]
    bound += [PlannedChange("bind", None, one) for one in absent if one.owner == "ours"]
    refusals += [
        absent_external(one, PlannedChange("bind", None, one).name) for one in absent if one.owner != "ours"
    ]
    return BindingDifferences(tuple(early), tuple(bound), tuple(late), tuple(unmanaged), tuple(refusals))


def binding_identity(one: BindingDefinition) -> Hashable:
    """Return what tells bindings apart, whoever owns them."""
    return one.source, one.destination, one.routing_key, one.arguments


def owned_binding(wanted: Topology, one: BindingDefinition) -> bool:
    """Return whether both ends are owned. A binding of one of the broker's own exchanges is owned with its destination."""
    name = one.destination.name if isinstance(one.destination, ExchangeRef) else one.destination
    return wanted.owned(name) and (one.source.startswith(_BROKERS_OWN) or wanted.owned(one.source))

"""Which exchanges, queues and policies are to be created, changed, replaced or deleted. Bindings come later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.planning.plan_refusals import absent_external, different_external
from rabbit_chx.topology.planning.planned_change import fields_between, kind_of
from rabbit_chx.topology.shards import kept_shards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.planning.plan_refusals import PlanRefusal
    from rabbit_chx.topology.planning.planned_change import ObjectKind

__all__ = ["NamedObject", "ObjectDifferences", "by_name", "object_differences", "reference_to"]

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

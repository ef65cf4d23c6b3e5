"""Which bindings of exchanges without a ring are made, and which go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.planning.plan_refusals import absent_external, deletion
from rabbit_chx.topology.planning.planned_change import PlannedChange
from rabbit_chx.topology.shards import shard_binding

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import BindingDefinition
    from rabbit_chx.topology.planning.object_differences import ObjectDifferences
    from rabbit_chx.topology.planning.plan_refusals import PlanRefusal

__all__ = ["BindingDifferences", "binding_differences", "binding_identity", "owned_binding"]

_BROKERS_OWN = "amq."


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

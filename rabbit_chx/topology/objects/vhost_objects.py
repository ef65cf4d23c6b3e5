"""The objects of a vhost, of all entries that a definitions file or the management API lists.

Both have the same fields in JSON, which `schema` lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology.objects.kinds import FLAG
from rabbit_chx.topology.objects.objects import (
    BROKERS_OWN,
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.objects.schema import SCHEMA
from rabbit_chx.words import FEW, listed, plural

ListedObject = TypeVar(
    "ListedObject", ExchangeDefinition, QueueDefinition, BindingDefinition, PolicyDefinition
)


def make_object(model: type[ListedObject], entry: Mapping[str, Any]) -> ListedObject:
    """Return the object of an entry whose names and keys are valid.

    A field that is missing or null has the default of the attribute, and so has a flag of another type, which an import can give an exchange.
    """
    values = {
        name.replace("-", "_"): value
        for name, kind in SCHEMA[model.kind].json.items()
        if (value := entry.get(name)) is not None and (kind is not FLAG or isinstance(value, bool))
    }
    if values.pop("destination_type", "queue") != "queue":
        values["destination"] = ExchangeRef(values["destination"])
    return model(**values)


def odd_objects(odd: Collection[str], what: str, fix: str) -> tuple[Finding, ...]:
    """Return a finding that lists odd objects, each with what is odd about it; none if there are none.

    Args:
        odd: the objects.
        what: what is odd about all of them.
        fix: the remedy.
    """
    names = [one.replace("\r", "\\r").replace("\n", "\\n") for one in odd]
    message = f"{plural(len(names), 'object')} {what}: {listed(names, FEW, ';')}"
    return (Finding("odd-object", message, fix),) if names else ()


class VhostObjects(NamedTuple):
    """The objects of a vhost.

    Attributes:
        lists: the lists of a topology, by their names.
        rings: the ring that the members make as listed, in an order that is not known, of each ``x-consistent-hash`` exchange.
        left_out: descriptions of what a topology does not contain.
        sources_left_out: the exchanges whose bindings to server-named queues are left out.
    """

    lists: dict[str, Any]
    rings: dict[str, HashRing]
    left_out: tuple[str, ...]
    sources_left_out: frozenset[str]


def vhost_objects(
    exchanges: Iterable[ExchangeDefinition],
    queues: Iterable[QueueDefinition],
    bindings: Iterable[BindingDefinition],
    policies: Iterable[PolicyDefinition],
    *,
    release: Release | None,
    absence: str = "bindings or arguments name it, but it does not exist",
) -> VhostObjects:
    """Return what a topology has of all objects of a vhost.

    Args:
        exchanges: all exchanges.
        queues: all queues.
        bindings: all bindings, including those of the default exchange and of rings.
        policies: all policies.
        release: the broker's release.
        absence: why a referenced exchange may be missing, for the warning.
    """
    queues = tuple(queues)
    exchanges = [
        exchange for exchange in exchanges if exchange.name and not exchange.name.startswith(BROKERS_OWN)
    ]
    # Each queue is bound to the default exchange.
    bindings = [binding for binding in bindings if binding.source]
    unnamed = [queue.name for queue in queues if queue.name.startswith(BROKERS_OWN)]
    left_out = [f"queue {name}: the broker generated its name" for name in unnamed]
    named = {queue.name for queue in queues}.difference(unnamed)
    members: dict[str, list[RingMember]] = {
        exchange.name: [] for exchange in exchanges if exchange.type == HASH_EXCHANGE
    }
    plain_bindings = []
    sources_left_out = set()
    for binding in bindings:
        source = binding.source
        place = binding.destination
        is_transient = isinstance(place, str) and place not in named
        if source in members:
            members[source].append(RingMember(place, binding.routing_key, binding.arguments))
            if is_transient:
                left_out.append(f"queue {place}: a member of {source} that is not among the queues")
        elif is_transient:
            sources_left_out.add(source)
            left_out.append(f"binding of {source} to {place}: that queue is exclusive or has no name")
        else:
            plain_bindings.append(binding)
    left_out += [f"exchange {name}: {absence}" for name in _find_missing_exchanges(exchanges, bindings)]
    rings, refused = _unordered_rings(members, release)
    lists = {
        "exchanges": tuple(
            replace(exchange, ring=tuple(members[exchange.name])) if exchange.name in members else exchange
            for exchange in exchanges
        ),
        "queues": tuple(queue for queue in queues if queue.name in named),
        "bindings": tuple(plain_bindings),
        "policies": tuple(policies),
    }
    return VhostObjects(lists, rings, (*left_out, *refused), frozenset(sources_left_out))


def _unordered_rings(
    members: Mapping[str, Sequence[RingMember]], release: Release | None
) -> tuple[dict[str, HashRing], list[str]]:
    """Return the rings as `unordered_ring` does, and why some are left out."""
    rings = {}
    refused = []
    for name, ring in members.items():
        try:
            rings[name] = unordered_ring(ring, release)
        except InputError as error:
            refused.append(f"the ring of {name}: {error}")
    return rings, refused


def unordered_ring(members: Sequence[RingMember], release: Release | None) -> HashRing:
    """Return the ring of members that are listed without their order.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.unordered([member.binding for member in members], release)


def _find_missing_exchanges(
    exchanges: Iterable[ExchangeDefinition], bindings: Iterable[BindingDefinition]
) -> list[str]:
    """Return the names of the exchanges that bindings or arguments refer to and that are not listed."""
    named = {binding.source for binding in bindings}
    named |= {place.name for binding in bindings if isinstance(place := binding.destination, ExchangeRef)}
    named |= {exchange.alternate for exchange in exchanges if exchange.alternate is not None}
    missing = named - {exchange.name for exchange in exchanges}
    return [name for name in sorted(missing) if name and not name.startswith(BROKERS_OWN)]

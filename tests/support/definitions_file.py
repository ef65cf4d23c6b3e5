"""Objects as RabbitMQ exports them, and definitions files of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.topology import BindingDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.argument_table import plain


def definitions_file(topology: Topology, vhost: str | None = "/") -> str:
    """Return a definitions file that has the objects of a topology without slots; None makes a file of a single vhost."""
    of_rings = (
        BindingDefinition(exchange.name, member.destination, member.key, member.arguments)
        for exchange in topology.exchanges
        for member in exchange.ring or ()
    )
    lists = {
        "exchanges": topology.exchanges,
        "queues": topology.queues,
        "bindings": (*topology.bindings, *of_rings),
        "policies": topology.policies,
    }
    place = {} if vhost is None else {"vhost": vhost}
    return json.dumps(
        {kind: [{**place, **EXPORTED[kind](each)} for each in objects] for kind, objects in lists.items()}
    )


def _fields(object_: object, *names: str) -> dict[str, Any]:
    return {name: getattr(object_, name) for name in names}


def _exchange(exchange: Any) -> dict[str, Any]:
    fields = _fields(exchange, "name", "type", "durable", "auto_delete", "internal")
    return {**fields, "arguments": plain(exchange.arguments)}


def _queue(queue: QueueDefinition) -> dict[str, Any]:
    fields = _fields(queue, "name", "durable", "auto_delete", *(["exclusive"] if queue.exclusive else []))
    return {**fields, "arguments": plain(queue.declared_arguments)}


def _binding(binding: BindingDefinition) -> dict[str, Any]:
    to_exchange = isinstance(binding.destination, ExchangeRef)
    return {
        **_fields(binding, "source", "routing_key"),
        "destination": getattr(binding.destination, "name", binding.destination),
        "destination_type": "exchange" if to_exchange else "queue",
        "arguments": plain(binding.arguments),
    }


def _policy(policy: PolicyDefinition) -> dict[str, Any]:
    fields = _fields(policy, "name", "pattern", "priority")
    return {**fields, "apply-to": policy.apply_to, "definition": plain(policy.definition)}


#: Returns what the broker exports of an object of each kind.
EXPORTED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "exchanges": _exchange,
    "queues": _queue,
    "bindings": _binding,
    "policies": _policy,
}

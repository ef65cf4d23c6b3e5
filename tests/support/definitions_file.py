"""Definitions files, as RabbitMQ exports them."""

from __future__ import annotations

import json
from typing import Any

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.topology import BindingDefinition
from rabbit_chx.topology.argument_table import plain


def definitions_file(topology: Topology, vhost: str | None = "/") -> str:
    """Return a definitions file that has the objects of a topology without slots; None makes a file of a single vhost."""
    bindings = [
        *topology.bindings,
        *(
            BindingDefinition(exchange.name, member.destination, member.key, member.arguments)
            for exchange in topology.exchanges
            for member in exchange.ring or ()
        ),
    ]
    queues = [
        _fields(queue, "name", "durable", "auto_delete", arguments=plain(queue.declared_arguments))
        | ({"exclusive": True} if queue.exclusive else {})
        for queue in topology.queues
    ]
    lists = {
        "exchanges": [
            _fields(
                exchange,
                "name",
                "type",
                "durable",
                "auto_delete",
                "internal",
                arguments=plain(exchange.arguments),
            )
            for exchange in topology.exchanges
        ],
        "queues": queues,
        "bindings": [
            _fields(
                binding, "source", "routing_key", arguments=plain(binding.arguments), **_destination(binding)
            )
            for binding in bindings
        ],
        "policies": [
            {
                **_fields(policy, "name", "pattern", "priority", definition=plain(policy.definition)),
                "apply-to": policy.apply_to,
            }
            for policy in topology.policies
        ],
    }
    place = {} if vhost is None else {"vhost": vhost}
    return json.dumps({name: [{**place, **entry} for entry in entries] for name, entries in lists.items()})


def _fields(entry: object, /, *names: str, **others: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in names} | others


def _destination(binding: BindingDefinition) -> dict[str, str]:
    if isinstance(binding.destination, ExchangeRef):
        return {"destination": binding.destination.name, "destination_type": "exchange"}
    return {"destination": binding.destination, "destination_type": "queue"}

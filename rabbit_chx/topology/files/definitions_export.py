"""A topology as a definitions file of RabbitMQ."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.objects import HASH_EXCHANGE, BindingDefinition
from rabbit_chx.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx.topology.object_set import ObjectSet

__all__ = ["hash_exchanges", "listed_bindings", "unwritable", "written"]


def written(topology: ObjectSet, vhost: str | None, *, rings: bool) -> str:
    """Return the JSON text.

    Args:
        topology: what to write; external objects are not written.
        vhost: the vhost of all objects; None for a file of a single vhost.
        rings: whether to write the bindings of hash exchanges.

    Raises:
        TopologyError: an exchange has slots, or a queue is exclusive.
    """
    problems = list(unwritable(topology, "definitions"))
    if problems:
        raise TopologyError(problems)
    place = {} if vhost is None else {"vhost": vhost}
    document: dict[str, Any] = {"explanation": _explanation(topology, rings=rings)}
    document["exchanges"] = [
        {
            "name": one.name, **place, "type": one.type, "durable": one.durable, "auto_delete": one.auto_delete,
            "internal": one.internal, "arguments": plain(one.arguments),
        }
        for one in topology.exchanges
        if one.owner == "ours"
    ]  # fmt: skip
    document["queues"] = [
        {
            "name": one.name, **place, "durable": one.durable, "auto_delete": one.auto_delete,
            "arguments": plain(one.declared_arguments),
        }
        for one in topology.queues
        if one.owner == "ours"
    ]  # fmt: skip
    document["bindings"] = [_binding(one, place) for one in listed_bindings(topology, rings=rings)]
    document["policies"] = [
        {
            "name": one.name, **place, "pattern": one.pattern, "apply-to": one.apply_to,
            "definition": plain(one.definition), "priority": one.priority,
        }
        for one in topology.policies
        if one.owner == "ours"
    ]  # fmt: skip
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def listed_bindings(topology: ObjectSet, *, rings: bool) -> Iterator[BindingDefinition]:
    """Yield the bindings that are ours; those of hash exchanges come last, in ring order.

    Args:
        topology: whose bindings.
        rings: whether those of hash exchanges are wanted.
    """
    yield from (one for one in topology.bindings if one.owner == "ours")
    for exchange in topology.exchanges:
        if rings and exchange.owner == "ours":
            for member in exchange.ring or ():
                yield BindingDefinition(exchange.name, member.destination, member.key, member.arguments)


def unwritable(topology: ObjectSet, where: str) -> Iterator[Problem]:
    """Yield what neither a definitions file nor the Kubernetes operator can say.

    Args:
        topology: what to write.
        where: names the format, in the plural.
    """
    for exchange in topology.exchanges:
        if exchange.owner == "ours" and exchange.slots is not None:
            rule = f"{where} do not know which queue has which slot"
            yield Problem(
                f"exchange {exchange.name}",
                "",
                rule,
                "apply the file, and write what broker.topology() says then",
            )
    for queue in topology.queues:
        if queue.owner == "ours" and queue.exclusive:
            rule = f"{where} have no exclusive queues"
            yield Problem(f"queue {queue.name}", "", rule, "leave the queue out: its client declares it")


def hash_exchanges(topology: ObjectSet) -> str:
    """Return the names of our hash exchanges that have members, for a sentence."""
    return ", ".join(
        one.name
        for one in topology.exchanges
        if one.type == HASH_EXCHANGE and one.owner == "ours" and one.ring
    )


def _explanation(topology: ObjectSet, *, rings: bool) -> str:
    names = hash_exchanges(topology)
    if not names:
        return "Written by rabbit_chx."
    if rings:
        return (
            f"Written by rabbit_chx. RabbitMQ binds in parallel when it imports this file, so the ring order of {names} "
            "is lost. To keep it, export without the rings, import that, and bind their members in order."
        )
    return f"Written by rabbit_chx without the bindings of {names}: after the import, bind their members in ring order."


def _binding(one: BindingDefinition, place: dict[str, str]) -> dict[str, Any]:
    to_exchange = isinstance(one.destination, ExchangeRef)
    return {
        "source": one.source,
        **place,
        "destination": one.destination.name if isinstance(one.destination, ExchangeRef) else one.destination,
        "destination_type": "exchange" if to_exchange else "queue",
        "routing_key": one.routing_key,
        "arguments": plain(one.arguments),
    }

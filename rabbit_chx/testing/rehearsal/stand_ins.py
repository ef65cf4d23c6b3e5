"""The part of a topology that a rehearsal needs: one hash exchange, and a queue in place of each destination.

The names stay, because the order of an ``x-modulus-hash`` exchange depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rabbit_chx.routing import HASH_ARGUMENTS, Destination, ExchangeRef
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    Topology,
)
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.upgrade import bound_to

__all__ = ["StandIn", "stand_in_for"]

_BROKERS_OWN = "amq."


@dataclass(frozen=True, slots=True)
class StandIn:
    """An exchange as it is rehearsed.

    Attributes:
        topology: the exchange and its destinations. Queues are classic and durable. A destination exchange is a fanout
            with one queue behind it.
        exchange: the exchange's name in it.
        places: the destination that each queue represents, by the queue's name.
        renamed: whether a destination has another name, because its own may not be declared.
    """

    topology: Topology
    exchange: str
    places: Mapping[str, Destination]
    renamed: bool


def stand_in_for(topology: Topology, exchange: ExchangeDefinition) -> StandIn:
    """Return what is declared to rehearse one exchange.

    Args:
        topology: what there is.
        exchange: the hash exchange.
    """
    bindings = bound_to(topology, exchange)
    destinations = dict.fromkeys(destination for destination, _ in bindings)
    taken = {one for one in destinations if isinstance(one, str)}
    queues: dict[str, Destination] = {}
    fanouts: dict[str, str] = {}
    for destination in destinations:
        if isinstance(destination, ExchangeRef):
            queue = f"behind {destination.name}"
            while queue in taken:
                queue += "'"
            taken.add(queue)
            queues[queue] = destination
            fanouts[_declarable(destination.name)] = queue
        else:
            queues[_declarable(destination)] = destination
    name = _declarable(exchange.name)
    is_ring = exchange.type == HASH_EXCHANGE
    members = tuple(RingMember(_named(destination), key) for destination, key in bindings)
    return StandIn(
        Topology(
            (
                ExchangeDefinition(
                    name,
                    exchange.type,
                    arguments={
                        one: exchange.arguments[one] for one in HASH_ARGUMENTS if one in exchange.arguments
                    },
                    ring=members if is_ring else None,
                ),
                *(ExchangeDefinition(fanout, "fanout") for fanout in fanouts),
            ),
            tuple(QueueDefinition(queue) for queue in queues),
            (
                *(BindingDefinition(fanout, queue) for fanout, queue in fanouts.items()),
                *(BindingDefinition(name, one.destination, one.key) for one in members if not is_ring),
            ),
        ),
        name,
        queues,
        any(_named(destination) != destination for destination in destinations),
    )


def _named(destination: Destination) -> Destination:
    if isinstance(destination, ExchangeRef):
        return ExchangeRef(_declarable(destination.name))
    return _declarable(destination)


def _declarable(name: str) -> str:
    """Return a name that may be declared, of nearly the same place in an order: those of the broker may not."""
    return f"amq-{name.removeprefix(_BROKERS_OWN)}" if name.startswith(_BROKERS_OWN) else name

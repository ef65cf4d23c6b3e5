"""The exchanges of a topology that hash, applied in an empty vhost.

Routing depends neither on the type, the arguments and the policies of a queue nor on the names in a ring. So each queue is a classic queue
without arguments, which keeps every message, and another exchange in a ring is replaced by a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import CopiedRun, message_of, route_on_copy
from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Destination, Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology import Topology, plan
from rabbit_chx.topology.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, ExchangeDefinition, QueueDefinition


@dataclass(frozen=True, slots=True)
class TrialExchange:
    """An exchange that was applied: what it hashes, where its keys go, and its queues, each with the destination that it represents."""

    name: str
    hashing: Hashing
    key_map: KeyMap
    queues: Sequence[CopiedRun]

    def route(
        self,
        settings: ConnectionSettings,
        values: Sequence[Any],
        seen: Callable[[int], None] = lambda _: None,
    ) -> list[Place]:
        """Publish a message for each value, and return the destination at which it is found; see `route_on_copy` for errors."""
        messages = [message_of(self.hashing, value) for value in values]
        with closing(PikaConnection(settings)) as connection:
            return [run.place for run in route_on_copy(connection, self.queues, messages, seen, self.name)]


def apply_trial(broker: Broker, topology: Topology) -> list[TrialExchange]:
    """Apply the exchanges of a topology that hash and have destinations.

    Args:
        broker: the broker, open, with a management URL, on an empty vhost, where everything remains until the vhost is deleted.
        topology: the topology.

    Raises:
        InputError: no exchange of the topology hashes and has a destination; or the release refuses a weight.
        PlanRefusedError: the broker does not permit an object.
        RabbitChxError: the broker refuses a change, or does not answer.
    """
    exchanges = [
        exchange
        for exchange in topology.exchanges
        if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE) and _destinations(exchange)
    ]
    if not exchanges:
        raise InputError(
            f"the topology has no exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE} with a destination: there is nothing to compare"
        )
    queues = dict.fromkeys(str(place) for exchange in exchanges for place in _destinations(exchange))
    applied = Topology(exchanges=tuple(map(_plain, exchanges)), queues=tuple(map(QueueDefinition, queues)))
    broker.apply(plan(applied, broker.topology(), propose=False))
    return [
        TrialExchange(
            exchange.name,
            Hashing(exchange.arguments.get("hash-header"), exchange.arguments.get("hash-property")),
            Topology(exchanges=(exchange,)).key_map(exchange.name, broker.release),
            [CopiedRun(str(place), place, 1) for place in _destinations(exchange)],
        )
        for exchange in exchanges
    ]


def _destinations(exchange: ExchangeDefinition) -> list[Destination]:
    members = [member.destination for member in exchange.ring or exchange.members or ()]
    return list(dict.fromkeys([*members, *(exchange.queues or ())]))


def _plain(exchange: ExchangeDefinition) -> ExchangeDefinition:
    return ExchangeDefinition(
        exchange.name,
        exchange.type,
        arguments={name: value for name, value in exchange.arguments.items() if name in HASH_ARGUMENTS},
        ring=exchange.ring and tuple(replace(it, destination=str(it.destination)) for it in exchange.ring),
        slots=exchange.slots,
        members=exchange.members,
        queues=exchange.queues,
    )

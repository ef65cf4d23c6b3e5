"""An exchange with slots, declared by hand as a topology file has it declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.routing import ExchangeRef


def declare_slots(
    channel: BlockingChannel,
    exchange: str,
    slots: int,
    queues: Sequence[str],
    arguments: Mapping[str, Any] | None = None,
) -> dict[ExchangeRef, str]:
    """Declare a hash exchange with slots, and return the queue of each: the first, the second, and again the first.

    The queues get these arguments, and the parking queue none.
    """
    park = f"{exchange}.park"
    channel.exchange_declare(exchange, CHX, durable=True)
    channel.exchange_declare(park, FANOUT, durable=True, internal=True)
    channel.queue_declare(park, durable=True)
    for queue in queues:
        channel.queue_declare(queue, durable=True, arguments=dict(arguments or {}))
    channel.queue_bind(park, park, "")
    owners = {
        ExchangeRef(f"{exchange}.slot.{number:02}"): queues[number % len(queues)] for number in range(slots)
    }
    for slot, queue in owners.items():
        onwards = {"alternate-exchange": park}
        channel.exchange_declare(slot.name, FANOUT, durable=True, internal=True, arguments=onwards)
        channel.exchange_bind(slot.name, exchange, "1")
        channel.queue_bind(queue, slot.name, "")
    return owners

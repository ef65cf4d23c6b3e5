"""A message, as the handler of a group sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GroupMessage"]


@dataclass(frozen=True, slots=True)
class GroupMessage:
    """One message of a queue of the group.

    Attributes:
        queue: the queue that it came from. A message that was parked during a hand-over has the name of its new queue.
        routing_key: its routing key.
        body: its bytes.
        headers: its headers, as aio-pika or pika decodes them.
        message_id: the id that the publisher gave it; None where it gave none.
        redelivered: whether the broker may have delivered it before.
        generation: a number that grows whenever a queue changes hands. Where the handler writes to a store, the store can
            refuse a lower number than it has seen. None where the group keeps no journal.
        attempt: 1 for the first call of the handler with this delivery, one more for each repetition.
        exchange: the exchange that it was published to.
        properties: its other properties that are set, by their names in AMQP 0-9-1.
    """

    queue: str
    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    redelivered: bool = False
    generation: int | None = None
    attempt: int = 1
    exchange: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)

"""A message, as its handler gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

_M = TypeVar("_M", bound="_QueueMessage")


@dataclass(frozen=True, slots=True)
class _QueueMessage:
    """What a broker delivers from a queue."""

    queue: str
    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    redelivered: bool = False


@dataclass(frozen=True, slots=True)
class ShardMessage(_QueueMessage):
    """A message of a shard.

    Attributes:
        queue: the shard; the name of the exchange where it was consumed by that, since the broker does not tell the shard.
        routing_key: its routing key.
        body: its bytes.
        headers: its headers, as aio-pika decodes them.
        message_id: the id that the publisher gave it; None where it gave none.
        redelivered: whether the broker may have delivered it before.
    """


@dataclass(frozen=True, slots=True)
class GroupMessage(_QueueMessage):
    """A message of a queue of the group.

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

    generation: int | None = None
    attempt: int = 1
    exchange: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)


def message_of(kind: type[_M], delivered: Any, queue: str, **attributes: Any) -> _M:  # noqa: ANN401
    """Return a message of aiormq as its handler gets it. `attributes` are those that only this kind has."""
    properties = delivered.header.properties
    return kind(
        queue,
        delivered.delivery.routing_key or "",
        delivered.body,
        dict(properties.headers or {}),
        properties.message_id,
        bool(delivered.delivery.redelivered),
        **attributes,
    )

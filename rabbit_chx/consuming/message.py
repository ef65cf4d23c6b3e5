"""The messages that handlers receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

_M = TypeVar("_M", bound="_QueueMessage")


@dataclass(frozen=True, slots=True)
class _QueueMessage:
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
        queue: the shard; the name of the exchange if it was consumed by that name, since the broker does not reveal the shard.
        routing_key: its routing key; bytes that are not UTF-8 are surrogate escapes, as in all its texts.
        body: its bytes.
        headers: its headers, as aio-pika decodes them.
        message_id: the id that the publisher set; None if it set none.
        redelivered: whether the broker may have delivered it before.
    """


@dataclass(frozen=True, slots=True)
class GroupMessage(_QueueMessage):
    """A message of a queue of the group.

    Attributes:
        queue: the queue. A message that was parked during a hand-over has the name of its new queue.
        routing_key: its routing key; bytes that are not UTF-8 are surrogate escapes, as in all its texts.
        body: its bytes.
        headers: its headers, as aio-pika or pika decodes them.
        message_id: the id that the publisher set; None if it set none.
        redelivered: whether the broker may have delivered it before.
        generation: a number that grows whenever the queue changes hands. A store can reject writes with a lower number than it has
            seen. None if the group has no journal.
        attempt: 1 for the first call of the handler with this delivery, one more for each retry.
        exchange: the exchange that it was published to.
        properties: its other properties that are set, by their AMQP 0-9-1 names.
    """

    generation: int | None = None
    attempt: int = 1
    exchange: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)


def convert_message(kind: type[_M], delivered: Any, queue: str, **attributes: Any) -> _M:
    """Convert a message of aiormq. `attributes` are those that only this kind has."""
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

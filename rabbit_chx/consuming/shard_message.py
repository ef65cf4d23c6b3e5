"""A message of a shard, as its handler gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ShardMessage"]


@dataclass(frozen=True, slots=True)
class ShardMessage:
    """A message of a shard.

    Attributes:
        queue: the shard; the name of the exchange where it was consumed by that, since the broker does not tell the shard.
        routing_key: its routing key.
        body: its bytes.
        headers: its headers, as aio-pika decodes them.
        message_id: the id that the publisher gave it; None where it gave none.
        redelivered: whether the broker may have delivered it before.
    """

    queue: str
    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    redelivered: bool = False

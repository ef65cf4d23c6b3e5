"""The messages that a queue has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel


def taken(channel: BlockingChannel, queue: str) -> Iterator[tuple[Any, Any, Any]]:
    """Take the messages out of a queue until it has no more: of each the method, the properties and the body."""
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        yield got

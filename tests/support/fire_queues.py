"""The exchange and the queues that faults happen to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pika
from exchange_types import CHX

from rabbit_chx.broker import pika_parameters
from rabbit_chx.routing import HashRing, Release

EXCHANGE = "fire"
BINDINGS = (("n2", 3), ("n10", 1), ("n1", 2), ("n7", 1))
QUEUES = tuple(queue for queue, _ in BINDINGS)


def declare_fire(url: str, arguments: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Declare the exchange and its queues, all durable; what exists stays as it is.

    Args:
        url: the broker.
        arguments: arguments of some queues.
    """
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, CHX, durable=True)
        for queue, weight in BINDINGS:
            channel.queue_declare(queue, durable=True, arguments=dict((arguments or {}).get(queue, {})))
            channel.queue_bind(queue, EXCHANGE, str(weight))


def ring_of(release: str) -> HashRing:
    """Return the ring of the exchange as `declare_fire` has made it."""
    return HashRing.from_bindings(BINDINGS, release=Release(release))

"""The exchange `trips` of the pages about streams: three streams with 40 rows of 10 keys."""

from __future__ import annotations

from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Publisher

STREAMS = ("trips-0", "trips-1", "trips-2")


def declare_trips(channel: BlockingChannel, url: str) -> None:
    """Make the exchange, its streams and its rows.

    Args:
        channel: a channel to the vhost.
        url: the AMQP URI of the same vhost.
    """
    channel.exchange_declare("trips", CHX, durable=True)
    for stream in STREAMS:
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "trips", "1")
    with Publisher(url, "trips") as publisher:
        publisher.publish_many([f"user-{n % 10}" for n in range(40)], [f"trip {n}" for n in range(40)])

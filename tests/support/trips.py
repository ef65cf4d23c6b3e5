"""The exchange `trips` of the pages about streams: three streams with 40 rows of 10 keys."""

from __future__ import annotations

from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

STREAMS = ("trips-0", "trips-1", "trips-2")


def declare_trips(channel: BlockingChannel) -> None:
    """Make the exchange, its streams and its rows, each of which is a chunk."""
    channel.exchange_declare("trips", CHX, durable=True)
    for stream in STREAMS:
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "trips", "1")
    channel.confirm_delivery()
    for n in range(40):
        channel.basic_publish("trips", f"user-{n % 10}", f"trip {n}".encode())

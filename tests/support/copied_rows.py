"""Rows of a stream that an AMQP client copies into the same stream, with their message ids: a replay."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pika
from bounded import until
from pika.exceptions import AMQPError

from rabbit_chx.broker import pika_parameters

EXCHANGE = "copies"
TOPIC: Any = "topic"  # pika's stubs want an enumeration


def copy_rows(url: str, stream: str, rows: int, *, offset: int = 0) -> None:
    """Read rows of a stream over AMQP, and publish them into it with their properties.

    Args:
        url: the AMQP URI.
        stream: the stream; it is bound to an exchange that takes any key.
        rows: how many rows; offsets of the broker's own chunks do not count.
        offset: the offset of the first row.
    """
    source = pika.BlockingConnection(pika_parameters(url))
    copies = _taken(source, stream, rows, offset)
    # pika rejects what it has not given yet, which 3.10 does not have for streams.
    with suppress(AMQPError):
        source.close()
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, TOPIC, durable=True)
        channel.queue_bind(stream, EXCHANGE, "#")
        channel.confirm_delivery()
        for key, properties, body in copies:
            channel.basic_publish(EXCHANGE, key, body, properties)


def _taken(
    connection: pika.BlockingConnection, stream: str, rows: int, offset: int
) -> list[tuple[str, pika.BasicProperties, bytes]]:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=min(rows, 1_000))
    taken: list[tuple[str, pika.BasicProperties, bytes]] = []

    def take(_channel: Any, method: Any, properties: pika.BasicProperties, content: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        headers: Any = properties.headers
        if headers["x-stream-offset"] >= offset:  # else it is of the same chunk, and before
            taken.append((headers.get("x-routing-key", method.routing_key), properties, content))

    channel.basic_consume(stream, take, arguments={"x-stream-offset": offset})

    def have_come() -> bool:
        connection.process_data_events(time_limit=1)
        return len(taken) >= rows

    until(have_come, f"{rows} rows come", every_s=0)
    return taken[:rows]

"""Super streams that a test creates and deletes: over the stream protocol from RabbitMQ 3.13 on, and by AMQP on each release with streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pika
from exchange_types import DIRECT

from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Key, array, name_field, texts_field


def create_super_stream(
    connection: StreamConnection,
    super_stream: str,
    streams: Sequence[str],
    binding_keys: Sequence[str],
    arguments: Mapping[str, str] | None = None,
) -> None:
    """Create a super stream and its partitions, each with a binding key."""
    content = (
        name_field(super_stream, "the super stream name")
        + array(name_field(stream) for stream in streams)
        + array(name_field(key, "the binding key") for key in binding_keys)
        + texts_field(arguments or {}, "the argument")
    )
    connection._request_ok(Key.CREATE_SUPER_STREAM, content, "create a super stream", super_stream)


def delete_super_stream(connection: StreamConnection, super_stream: str) -> None:
    """Delete a super stream with its partitions and all of their rows."""
    content = name_field(super_stream, "the super stream name")
    connection._request_ok(Key.DELETE_SUPER_STREAM, content, "delete a super stream", super_stream)


def declare_super_stream(url: str, super_stream: str, streams: Mapping[str, str]) -> None:
    """Declare a super stream and its partitions by AMQP.

    Args:
        url: of AMQP, with the vhost.
        super_stream: its name.
        streams: the partition of each binding key, in their order.
    """
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(super_stream, DIRECT, durable=True, arguments={"x-super-stream": True})
        for number, (key, stream) in enumerate(streams.items()):
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(stream, super_stream, key, arguments={"x-stream-partition-order": number})

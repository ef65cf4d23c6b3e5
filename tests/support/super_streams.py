"""Super streams that a test creates and deletes over the stream protocol; from RabbitMQ 3.13 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

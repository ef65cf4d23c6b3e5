"""A stream of a test's vhost, and what writes into it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pika
from bounded import until
from exchange_types import FANOUT

from rabbit_chx import Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams import frames
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.log_lookup import ChunkFinder
from rabbit_chx.streams.nodes import open_any, open_at, settings_of
from rabbit_chx.testing import RunningBroker

_STORE_OFFSET = 10


def numbers_in(batch: Any) -> list[int]:
    """Return the numbers that are the bodies of rows."""
    return [int(body) for body in batch["value"].to_pylist()]


class Streamed:
    """A stream, bound to an exchange for AMQP publishers.

    Args:
        broker: the broker, with the vhost.
        name: the stream's name.
        arguments: of the stream, such as ``max-length-bytes``.
    """

    def __init__(self, broker: RunningBroker, name: str, arguments: Mapping[str, str]) -> None:
        self.broker = broker
        self.name = name
        self._arguments = arguments
        self.make()

    def make(self) -> None:
        """Declare the stream and the exchange."""
        with self.connection(None) as connection:
            connection.create_stream(self.name, self._arguments)
        with pika.BlockingConnection(pika_parameters(self.broker.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("rows", FANOUT, durable=True)
            channel.queue_bind(self.name, "rows")

    def bind(self, stream: str, exchange: str, key: str, arguments: dict[str, Any]) -> None:
        """Bind a stream to an exchange."""
        with pika.BlockingConnection(pika_parameters(self.broker.url)) as connection:
            connection.channel().queue_bind(stream, exchange, key, arguments)

    def make_again(self) -> None:
        """Delete the stream and make another one of its name."""
        with self.connection(None) as connection:
            connection.delete_stream(self.name)
        self.make()

    def publish(self, bodies: Sequence[str | bytes], keys: Sequence[str] | None = None) -> None:
        """Write rows, as many in a chunk as the broker likes."""
        with Publisher(self.broker.url, "rows") as publisher:
            publisher.publish_many(keys or ["k"] * len(bodies), list(bodies))

    def publish_singly(self, bodies: Sequence[str]) -> None:
        """Write rows, each confirmed before the next one, so that each is a chunk."""
        with pika.BlockingConnection(pika_parameters(self.broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("rows", "k", body.encode())

    def store_offsets(self) -> None:
        """Let the broker write chunks of its own: a consumer stores offsets."""
        texts = b"".join(len(text).to_bytes(2) + text for text in (b"a consumer", self.name.encode()))
        with self.connection(self.name) as connection:
            finder = ChunkFinder(connection)
            last = finder.chunk_at(self.name, "last")
            behind = last.end if last else 0
            for number in (1, 2, 3):
                connection.send(frames.frame(_STORE_OFFSET, texts + number.to_bytes(8)))
                time.sleep(0.05)  # those that come together are in one chunk
            found = until(
                lambda: finder.chunk_at(self.name, behind, chunk_selector="all"),
                "the broker stores an offset",
            )
            assert found is not None
            assert found.kind == "delta"

    @contextmanager
    def connection(self, stream: str | None) -> Iterator[StreamConnection]:
        """Connect to the node of a stream, or to any."""
        settings = settings_of(self.broker.stream_url)
        connection = (
            open_any(settings) if stream is None else open_at(settings, stream, leader=True, timeout_s=30)
        )
        try:
            yield connection
        finally:
            connection.close()

"""Rows as other clients write them into a stream, and the chunks that the broker makes of them.

``python tests/support/stream_writers.py AMQP_URL STREAM_URL`` records tests/vectors/stream-rows.json anew: see the README there.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import UUID

import aio_pika
import pika
import rstream
from chunk_columns import columns_of
from exchange_types import CHX
from routes import amqp10
from routes.scenario import Message
from super_streams import create_super_stream, delete_super_stream

from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams.chunks import read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import DeliveredChunk
from rabbit_chx.streams.nodes import stream_settings

CORPUS = Path(__file__).parents[1] / "vectors" / "stream-rows.json"
EXCHANGE = "rows"
INCLUDE = ("exchange", "message_id", "properties", "headers")
_TIMEOUT_S = 30


class Sent(NamedTuple):
    """What is to be found of a row that a program sent."""

    key: str | None
    value: bytes
    message_id: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})


def by_pika(url: str, _: str, stream: str) -> None:
    """Three rows through the hash exchange: a bare one, one with properties and headers, one with an empty body."""
    sent: list[tuple[str, bytes, pika.BasicProperties]] = [
        ("key-1", b"bare", pika.BasicProperties()),
        (
            "key-2",
            b"\xff\0 binary",
            pika.BasicProperties(
                content_type="text/plain", delivery_mode=2, priority=3, correlation_id="c", reply_to="r", message_id="m-2",
                timestamp=1_700_000_000, type="t", app_id="a", headers={"n": 5, "s": "text", "x-mine": True, "list": [1, 2]},
            ),
        ),
        ("é" * 100, b"", pika.BasicProperties(message_id="m-3")),
    ]  # fmt: skip
    with bound(url, stream) as channel:
        channel.confirm_delivery()
        for key, body, properties in sent:
            channel.basic_publish(EXCHANGE, key, body, properties, mandatory=True)


@contextmanager
def bound(url: str, stream: str) -> Iterator[Any]:
    """Bind a stream to the hash exchange for a block, and return a channel of pika."""
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.queue_bind(stream, EXCHANGE, "1")
        yield channel
        channel.queue_unbind(stream, EXCHANGE, "1")


def by_aio_pika(url: str, _: str, stream: str) -> None:
    """Rows through the hash exchange, a long one among them."""

    async def publish() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.get_exchange(EXCHANGE, ensure=False)
            for number, size in enumerate((5, 300)):
                message = aio_pika.Message(b"a" * size, message_id=f"a-{number}", headers={"n": number})
                await exchange.publish(message, f"key-{number}")

    with bound(url, stream):
        asyncio.run(asyncio.wait_for(publish(), _TIMEOUT_S))


def by_amqp_10(url: str, _: str, stream: str) -> None:
    """Rows over AMQP 1.0 through the hash exchange, with ids of each type."""
    ids = ["text", b"\xff", UUID(int=5), 7]
    messages = [
        (n, Message(f"key-{n}", {"n": n}, properties={"message_id": id_}, client="amqp-1.0"))
        for n, id_ in enumerate(ids)
    ]
    with bound(url, stream):
        assert amqp10.publish(url, EXCHANGE, messages) == 0


def by_rstream(_: str, stream_url: str, stream: str) -> None:
    """Rows over the stream protocol: AMQP and raw ones, and both in sub-entries."""

    async def publish() -> None:
        async with rstream.Producer(**_rstream_settings(stream_url)) as producer:
            await producer.send_wait(stream, rstream.AMQPMessage(body=b"bare"))
            await producer.send_wait(
                stream,
                rstream.AMQPMessage(
                    body=b"text",
                    properties=rstream.Properties(message_id=b"r-1", subject=b"s"),
                    application_properties={"key": "k-1"},
                ),
            )
            await producer.send_wait(stream, b"raw")
            inside: list[Any] = [rstream.AMQPMessage(body=b"inside %d" % number) for number in range(3)]
            for compression in (rstream.CompressionType.No, rstream.CompressionType.Gzip):
                await producer.send_sub_entry(stream, inside, compression)
            await producer.send_sub_entry(stream, [b"raw inside"], rstream.CompressionType.Gzip)

    asyncio.run(asyncio.wait_for(publish(), _TIMEOUT_S))


def by_rstream_super_stream(_: str, stream_url: str, stream: str) -> None:
    """Rows of a producer of a super stream, whose only partition is the stream: the key is where the program put it."""
    messages = [
        rstream.AMQPMessage(body=b"%d" % number, application_properties={"key": f"k-{number}"})
        for number in range(2)
    ]
    with closing(StreamConnection(stream_settings(stream_url))) as connection:
        create_super_stream(connection, f"super-{stream}", [stream], ["0"])
    _publish_to_super_stream(
        stream_url, f"super-{stream}", messages, lambda message: message.application_properties["key"]
    )


def publish_by_rstream(stream_url: str, super_stream: str, keys: Sequence[str]) -> None:
    """Publish a row for each key to a super stream. The key is the message id, as in the examples of the clients, and the body."""
    messages = [
        rstream.AMQPMessage(body=key.encode(), properties=rstream.Properties(message_id=key)) for key in keys
    ]
    _publish_to_super_stream(
        stream_url, super_stream, messages, lambda message: message.properties.message_id
    )


def _publish_to_super_stream(
    stream_url: str, super_stream: str, messages: Sequence[Any], key_of: Callable[[Any], Any]
) -> None:
    async def key(message: Any) -> Any:
        return key_of(message)

    async def publish() -> None:
        async with rstream.SuperStreamProducer(
            **_rstream_settings(stream_url),
            routing_extractor=key,
            routing=rstream.RouteType.Hash,
            super_stream=super_stream,
        ) as producer:
            for message in messages:
                await producer.send(message)

    asyncio.run(asyncio.wait_for(publish(), _TIMEOUT_S))


#: What writes rows into a stream, by the name of the client. The corpus has what they are.
WRITERS: dict[str, Callable[[str, str, str], None]] = {
    "pika": by_pika,
    "aio-pika": by_aio_pika,
    "amqp-1.0": by_amqp_10,
    "rstream": by_rstream,
    "rstream-super-stream": by_rstream_super_stream,
}


def _rstream_settings(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "username": unquote(parts.username or "guest"),
        "password": unquote(parts.password or "guest"),
        "vhost": unquote(parts.path[1:]) or "/",
        "load_balancer_mode": True,  # keeps it from following the name that the broker gives itself
    }


@contextmanager
def written(client: str, url: str, stream_url: str, stream: str) -> Iterator[tuple[list[Sent], list[bytes]]]:
    """What a client sent into a new stream, and the chunks that the broker delivers of it."""
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        connection.channel().exchange_declare(EXCHANGE, CHX, durable=True)
    with closing(StreamConnection(stream_settings(stream_url))) as connection:
        is_super = client == "rstream-super-stream"
        if not is_super:
            connection.create_stream(stream)
        sent, _ = recorded(client)
        WRITERS[client](url, stream_url, stream)
        yield sent, delivered(connection, stream, len(sent))
        if is_super:
            delete_super_stream(connection, f"super-{stream}")
        else:
            connection.delete_stream(stream)


def delivered(connection: StreamConnection, stream: str, count: int) -> list[bytes]:
    """The chunks that hold the first rows of a stream, as the broker delivers them."""
    connection.subscribe(1, stream, "first", credit=100)
    chunks: list[bytes] = []
    came, deadline = 0, time.monotonic() + _TIMEOUT_S
    while came < count:
        assert time.monotonic() < deadline, f"{came} of {count} rows came"
        for event in connection.events(1):
            if isinstance(event, DeliveredChunk):
                chunks.append(bytes(event.chunk))
                came += read_chunk(event.chunk).records
                connection.give_credit(1, 1)
    connection.unsubscribe(1)
    return chunks


def found(chunks: Sequence[bytes], sent: Sequence[Sent]) -> list[Sent]:
    """The rows of chunks as if they had been sent; of their headers those that were looked for."""
    rows = columns_of([read_chunk(memoryview(chunk)) for chunk in chunks], 0, 1 << 62, INCLUDE).to_pylist()
    return [
        Sent(
            None if row["key"] is None else row["key"].decode(),
            row["value"],
            row["message_id"],
            {name: value for name, value in row["headers"] or [] if name in one.headers},
        )
        for row, one in zip(rows, sent, strict=True)
    ]


def main(url: str, stream_url: str) -> None:
    """Record the chunks of each client's rows on a broker."""
    with closing(StreamConnection(stream_settings(stream_url))) as connection:
        corpus = {"origin": {"broker": connection.server_version}, "clients": _clients()}
    for package in ("pika", "aio-pika", "python-qpid-proton", "rstream"):
        corpus["origin"][package] = version(package)
    for client in WRITERS:
        with written(client, url, stream_url, f"vectors-{client}") as (_, chunks):
            corpus["clients"][client]["chunks"] = [chunk.hex() for chunk in chunks]
    CORPUS.write_text(json.dumps(corpus, indent=1, ensure_ascii=False) + "\n")


def _clients() -> dict[str, Any]:
    clients: dict[str, Any] = json.loads(CORPUS.read_text())["clients"]
    return clients


def recorded(client: str) -> tuple[list[Sent], list[bytes]]:
    """What a client sent, and the chunks that a broker made of it, as they were recorded."""
    of_client = _clients()[client]
    sent = [Sent(**{**row, "value": bytes.fromhex(row["value"])}) for row in of_client["sent"]]
    return sent, list(map(bytes.fromhex, of_client["chunks"]))


if __name__ == "__main__":
    main(*sys.argv[1:])

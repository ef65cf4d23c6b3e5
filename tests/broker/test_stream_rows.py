"""Rows that each client writes into a stream, read as columns; and our rows, read by another client."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pika
import pytest
from chunk_columns import columns_of
from stream_writers import EXCHANGE, WRITERS, delivered, found, written

from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams.chunks import read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.rows import encode_rows
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in

pytestmark = pytest.mark.broker

#: The client for AMQP 1.0 comes with `make parity`, which has that case.
CLIENTS = [client for client in WRITERS if client != "amqp-1.0"]
BODIES = [b"", b"short", b"long" * 100]
KEYS = ["", "key", "é" * 120]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_rows_of_each_client_are_read(vhost: RunningBroker, client: str) -> None:
    if client == "rstream-super-stream" and release_is_in(vhost.version, "<3.13"):
        pytest.skip(f"RabbitMQ {vhost.version} does not take what {client} does")
    with written(client, vhost.url, vhost.stream_url, f"of-{client}") as (sent, chunks):
        assert found(chunks, sent) == sent


@pytest.mark.parametrize("ids", [None, ["m-1", "m-2", "m-3"]])
def test_our_rows_are_read_by_us_and_by_pika(vhost: RunningBroker, ids: list[str] | None) -> None:
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_stream("ours")
        connection.declare_publisher(1, "ours", None)
        encoded = encode_rows(KEYS, BODIES, exchange=EXCHANGE, message_ids=ids)
        for frame in encoded.frames(1, np.arange(1, 4, dtype=np.uint64), 0, 3, connection.frame_max):
            connection.send(frame)
        chunks = delivered(connection, "ours", 3)
    rows = columns_of([read_chunk(memoryview(chunk)) for chunk in chunks], 0, 9, ["exchange", "message_id"])
    assert rows["key"].to_pylist() == [key.encode() for key in KEYS]
    assert rows["value"].to_pylist() == BODIES
    assert rows["exchange"].to_pylist() == [EXCHANGE] * 3
    assert rows["message_id"].to_pylist() == (ids or 3 * [None])

    with pika.BlockingConnection(pika_parameters(vhost.url)) as amqp:
        channel: Any = amqp.channel()
        channel.basic_qos(prefetch_count=10)
        consumed: list[Any] = []
        for method, properties, body in channel.consume(
            "ours", arguments={"x-stream-offset": "first"}, inactivity_timeout=30
        ):
            assert method is not None, f"pika got {len(consumed)} of 3 rows"
            consumed.append((method.exchange, method.routing_key, properties.message_id, body))
            channel.basic_ack(method.delivery_tag)
            if len(consumed) == 3:
                break
        channel.cancel()
    assert consumed == [
        (EXCHANGE, key, id_, body) for key, id_, body in zip(KEYS, ids or 3 * [None], BODIES, strict=True)
    ]

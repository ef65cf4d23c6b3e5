"""Rows of real clients in real streams are where the mirror predicts them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from placed_rows import count_placed
from stream_writers import publish_by_rstream
from super_streams import create_super_stream

from rabbit_chx import HashRing, StreamPublisher
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

STREAMS = ("trips-0", "trips-1", "trips-2")
RING = HashRing.from_bindings([(stream, 1) for stream in STREAMS])
KEYS = [f"user-{n}" for n in range(10)]


def test_each_row_through_an_exchange_is_in_the_predicted_stream(
    vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    bare_channel.exchange_declare("trips", CHX, durable=True)
    for stream in STREAMS:
        bare_channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        bare_channel.queue_bind(stream, "trips", "1")
    bare_channel.confirm_delivery()
    for key in KEYS:
        bare_channel.basic_publish("trips", key, b"trip")
    expected = Counter(RING.destination_for(key) for key in KEYS)
    for stream in STREAMS:
        assert count_placed(vhost.stream_url, stream, RING) == (expected[stream], set())


@pytest.mark.chx_broker(">=3.13", "super streams by protocol")
def test_each_row_of_a_super_stream_is_in_the_predicted_partition(vhost: RunningBroker) -> None:
    """Producers of rstream write no routing key, and hash otherwise than those for Java."""
    partitions, others = ["events-0", "events-1"], ["others-0", "others-1"]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "events", partitions, ["0", "1"])
        create_super_stream(connection, "others", others, ["0", "1"])
    with StreamPublisher(vhost.stream_url, super_stream="events") as publisher:
        publisher.publish_many(KEYS * 3, [f"{n}" for n in range(30)])
    found = [count_placed(vhost.stream_url, stream, SuperStream(partitions)) for stream in partitions]
    assert sum(right for right, _ in found) == 30

    publish_by_rstream(vhost.stream_url, "others", KEYS)
    placing = SuperStream(others)
    assert [count_placed(vhost.stream_url, each, placing) for each in others] == [(0, set())] * 2
    found = [count_placed(vhost.stream_url, each, placing, "message_id") for each in others]
    place = placing.partition_for
    wrong = {key.encode() for key in KEYS if place(key) != place(key, "rstream")}
    assert 0 < len(wrong) < len(KEYS)
    assert set.union(*(elsewhere for _, elsewhere in found)) == wrong
    assert sum(right for right, _ in found) == len(KEYS) - len(wrong)

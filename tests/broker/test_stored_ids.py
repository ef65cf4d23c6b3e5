"""Ids that a stream has are counted from its end backwards: those that are there once, those that are lost, and those that are doubled."""

from __future__ import annotations

import pika
import pyarrow as pa
import pytest
from streamed import Streamed

from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams import StreamPublisher
from rabbit_chx.streams.nodes import settings_of
from rabbit_chx.streams.stored_ids import Stored, count_stored, row_hashes
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

#: More than are read at first.
ROWS = 120_000


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    return Streamed(vhost, "s", {})


def publish(vhost: RunningBroker, name: str, ids: range) -> None:
    with StreamPublisher(vhost.stream_url, stream="s", name=name) as publisher:
        publisher.publish_many(["k"] * len(ids), ["v"] * len(ids), ids=ids)


def publish_by_amqp(vhost: RunningBroker, *message_ids: str) -> None:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for message_id in message_ids:
            channel.basic_publish("rows", "k", b"v", pika.BasicProperties(message_id=message_id))


def counted(vhost: RunningBroker, first: int, last: int, name: str = "load.1") -> tuple[int, int, int]:
    rows = last - first + 1
    hashes = row_hashes(pa.array([b"k"] * rows), pa.array([b"v"] * rows))
    found = count_stored(list(settings_of(vhost.stream_url)), "s", name, first, hashes)
    assert isinstance(found, Stored)
    return found.once, found.lost, found.doubled


@pytest.mark.usefixtures("stream")
def test_what_is_there_once_and_what_is_lost(vhost: RunningBroker) -> None:
    assert counted(vhost, 1, 10) == (0, 10, 0)
    publish(vhost, "load.1", range(1, ROWS + 1))
    assert counted(vhost, 1, ROWS) == (ROWS, 0, 0)
    assert counted(vhost, ROWS - 9, ROWS) == (10, 0, 0)
    assert counted(vhost, ROWS - 9, ROWS + 10) == (10, 10, 0)


@pytest.mark.usefixtures("stream")
def test_rows_of_other_names_do_not_count(vhost: RunningBroker) -> None:
    publish_by_amqp(
        vhost, "loadx1:1", "load.1", "load.1:", "load.1:2x", "a load.1:3", "load.1:4:4", "load.1:-5"
    )
    publish_by_amqp(vhost, f"load.1:{2**63 - 1}", "load.1:6")
    assert counted(vhost, 1, 6) == (1, 5, 0)

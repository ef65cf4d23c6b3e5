"""StreamPublisher on a real broker: what is in the streams afterwards. The line is cut in unit/streams and in fire/streams."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError, NotFoundError, RabbitChxError
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.publisher import StreamPublisher
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in

pytestmark = pytest.mark.broker

ROWS = 100_000
IDS = range(1, ROWS + 1)
KEYS, BODIES = [f"k{n}" for n in IDS], [f"body {n}" for n in IDS]


def stored(vhost: RunningBroker, stream: str = "s") -> dict[str, list[Any]]:
    """The columns of all rows."""
    columns: dict[str, list[Any]] = {"key": [], "value": [], "message_id": [], "exchange": []}
    with StreamReader(vhost.stream_url, stream, include=("message_id", "exchange")) as reader:
        for batch in reader:
            for name in columns:
                columns[name] += batch[name].to_pylist()
    return columns


@pytest.mark.usefixtures("connection")
def test_rows_are_stored_once_by_two_runs(vhost: RunningBroker) -> None:
    for known in (0, ROWS):
        with StreamPublisher(vhost.stream_url, stream="s", name="load") as publisher:
            report = publisher.publish_many(KEYS, BODIES, ids=IDS)
        assert (report.rows, report.confirmed, report.known) == (ROWS, ROWS, known)
        assert (report.resent, report.repaired, report.reconnects) == (0, 0, 0)
    found = stored(vhost)
    assert found["message_id"] == [f"load:{n}" for n in IDS]
    assert found["key"] == list(map(str.encode, KEYS))
    assert found["value"] == list(map(str.encode, BODIES))


def test_a_missing_stream_or_super_stream_is_created_with_the_defaults_of_the_broker(
    vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    with pytest.raises(NotFoundError):
        StreamPublisher(vhost.stream_url, stream="made")
    for rows in (1, 2):  # the second time it exists, and keeps its row
        with StreamPublisher(vhost.stream_url, stream="made", create=1) as publisher:
            publisher.publish_many(["k"], ["b"])
        assert len(stored(vhost, "made")["key"]) == rows
    bare_channel.queue_declare("made", durable=True, arguments={"x-queue-type": "stream"})
    bare_channel.queue_declare("queue", durable=True)
    with pytest.raises(RabbitChxError, match="'queue'"):
        StreamPublisher(vhost.stream_url, stream="queue", create=1)
    if not release_is_in(vhost.version, ">=3.13"):
        with pytest.raises(InputError, match=r"needs 3\.13 or newer"):
            StreamPublisher(vhost.stream_url, super_stream="all", create=3)
        return
    for _ in range(2):  # the second time it exists
        with StreamPublisher(vhost.stream_url, super_stream="all", create=3) as publisher:
            assert publisher.streams == ("all-0", "all-1", "all-2")
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        assert connection.binding_keys("all", publisher.streams) == ("0", "1", "2")


def test_streams_behind_a_hash_exchange_get_what_the_exchange_would_give_them(
    vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    streams = ["s.1", "s.2", "s.3"]
    keys, bodies = KEYS[:2_000], BODIES[:2_000]
    bare_channel.exchange_declare("orders", CHX, durable=True)
    for stream in streams:
        bare_channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        bare_channel.queue_bind(stream, "orders", "2")
    with Broker(vhost.url, ring_source=vhost.ring_via) as live:
        ring = live.ring("orders")
    with StreamPublisher(vhost.stream_url, ring=ring, exchange="orders") as publisher:
        publisher.publish_many(keys, bodies)
    ours = {stream: stored(vhost, stream) for stream in streams}
    bare_channel.confirm_delivery()
    for key, body in zip(keys, bodies, strict=True):
        bare_channel.basic_publish("orders", key, body.encode())
    for stream in streams:
        both = stored(vhost, stream)
        assert both["key"] == ours[stream]["key"] * 2
        assert both["value"] == ours[stream]["value"] * 2
        assert set(both["exchange"]) == {"orders"}

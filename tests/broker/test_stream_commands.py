"""`replay` and `stream_parity` on real brokers with rows of real clients."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from stream_writers import publish_by_rstream
from super_streams import create_super_stream
from trips import STREAMS, declare_trips

from rabbit_chx import HashRing, Publisher, StreamPublisher, StreamReader
from rabbit_chx.cli import main
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.streams import StreamParity, stream_parity
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.keys import KeyColumn, columns_with
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

RING = HashRing.from_bindings([(stream, 1) for stream in STREAMS])
KEYS = [f"user-{n}" for n in range(10)]


@dataclass(frozen=True)
class Trips:
    """A vhost with the exchange `trips`."""

    broker: RunningBroker
    channel: BlockingChannel

    @property
    def at(self) -> tuple[str, ...]:
        """The options of the broker."""
        return ("--url", self.broker.stream_url, "--management-url", str(self.broker.management_url))

    @property
    def live(self) -> tuple[str, ...]:
        """The options of the broker and of its rings."""
        return (*self.at, "--ring-via", shlex.join(quick_prefix(self.broker)))


@pytest.fixture
def trips(vhost: RunningBroker, bare_channel: BlockingChannel) -> Trips:
    """The vhost with 40 rows in three streams."""
    declare_trips(bare_channel)
    return Trips(vhost, bare_channel)


def parity(
    broker: RunningBroker, stream: str, placing: KeyMap, exchange: str, by: KeyColumn = "key"
) -> StreamParity:
    """The comparison of the rows of a stream."""
    with StreamReader(broker.stream_url, stream, include=columns_with(by)) as reader:
        return stream_parity(stream, reader, placing, exchange, key_column=by)


def test_each_row_is_in_the_predicted_stream(trips: Trips) -> None:
    expected = Counter(RING.destination_for(key) for key in KEYS)
    for stream in STREAMS:
        found = parity(trips.broker, stream, RING, "trips")
        assert (found.rows, found.right) == (4 * expected[stream], 4 * expected[stream])


def rows_of(capsys: pytest.CaptureFixture[str], *command: str) -> list[dict[str, Any]]:
    """The documents of `replay`."""
    assert main(["replay", *command, "--output", "json"]) == 0, capsys.readouterr()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_rows_through_another_exchange_are_found_by_the_exchange_of_their_publisher(
    trips: Trips, capsys: pytest.CaptureFixture[str]
) -> None:
    trips.channel.exchange_declare("in", FANOUT)
    trips.channel.exchange_bind("trips", "in")
    with Publisher(trips.broker.url, "in") as publisher:
        publisher.publish_many(["user-7"], [b"through"])
    given = ("trips", "user-7", *trips.live)
    assert "through" not in [row["value"] for row in rows_of(capsys, *given)]
    (row,) = rows_of(capsys, *given, "--published-to", "in")
    assert row["value"] == "through"
    stream = str(RING.destination_for("user-7"))
    found = parity(trips.broker, stream, RING, "in")
    assert (found.right, found.wrong, found.other_exchange) == (1, 0, found.rows - 1)


@pytest.mark.chx_broker(">=3.13", "super streams by protocol")
def test_super_streams_are_replayed_and_other_exchanges_refused(
    trips: Trips, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers of rstream write no routing key, and hash otherwise than those for Java."""
    partitions, others = ["events-0", "events-1"], ["others-0", "others-1"]
    with closing(StreamConnection(stream_settings(trips.broker.stream_url))) as connection:
        create_super_stream(connection, "events", partitions, ["0", "1"])
        create_super_stream(connection, "others", others, ["0", "1"])
    with StreamPublisher(trips.broker.stream_url, super_stream="events") as publisher:
        publisher.publish_many(KEYS * 3, [f"{n}" for n in range(30)])
        # The stream protocol lists the queues of any exchange: this one's rows are placed by a ring, and not by murmur3.
    for where in (trips.at, trips.at[:2]):
        assert main(["replay", "super-stream:trips", "user-4", *where]) == 2
        assert "'trips' is not a super stream" in capsys.readouterr().err
    found = [parity(trips.broker, stream, SuperStream(partitions), "events") for stream in partitions]
    assert sum(each.rows for each in found) == sum(each.right for each in found) == 30
    rows = rows_of(capsys, "super-stream:events", "user-4", *trips.at)
    assert [(row["key"], row["value"]) for row in rows] == [("user-4", text) for text in ("4", "14", "24")]

    publish_by_rstream(trips.broker.stream_url, "others", KEYS)
    placing = SuperStream(others)
    assert sum(parity(trips.broker, each, placing, "others").without_key for each in others) == len(KEYS)
    found = [parity(trips.broker, each, placing, "others", "message_id") for each in others]
    place = placing.partition_for
    wrong = {key for key in KEYS if place(key) != place(key, "rstream")}
    assert 0 < len(wrong) < len(KEYS)
    assert {row.key.decode() for each in found for row in each.examples} == wrong
    assert sum(each.right for each in found) == len(KEYS) - len(wrong)
    right = next(key for key in KEYS if key not in wrong)
    (row,) = rows_of(capsys, "super-stream:others", right, *trips.at, "--by-message-id")
    assert (row["key"], row["value"], row["stream"]) == (right, right, place(right))

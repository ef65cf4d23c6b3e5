"""`stream show`, `verify` of the rows that streams have, and `replay`, on real brokers with rows of real clients."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from exchange_types import FANOUT
from exposition import parsed_exposition
from found_broker import need
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from stream_writers import publish_by_rstream
from streamed import Streamed
from super_streams import create_super_stream
from trips import STREAMS, declare_trips

from rabbit_chx import HashRing, Publisher, StreamPublisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, docker_broker, skip_unless_ci, temporary_vhost
from rabbit_chx.testing.broker_search import release_is_in

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
        assert self.broker.management_url is not None, "these tests need RABBIT_CHX_TEST_MANAGEMENT_URL"
        return ("--url", self.broker.stream_url, "--management-url", self.broker.management_url)

    @property
    def live(self) -> tuple[str, ...]:
        """The options of the broker and of its rings."""
        return (*self.at, "--ring-via", shlex.join(quick_prefix(self.broker)))


@pytest.fixture
def trips(vhost: RunningBroker) -> Iterator[Trips]:
    """The vhost with 40 rows in three streams."""
    with pika.BlockingConnection(pika_parameters(f"{vhost.url}?heartbeat=0")) as connection:
        declare_trips(connection.channel())
        yield Trips(vhost, connection.channel())


def rows_of(capsys: pytest.CaptureFixture[str], *command: str) -> list[dict[str, Any]]:
    """The documents of `replay`."""
    assert main(["replay", *command, "--output", "json"]) == 0, capsys.readouterr()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_row_is_in_the_predicted_queue(trips: Trips, answer: Callable[..., Any]) -> None:
    found = answer("verify", "trips", "--stream", "*", *trips.live)
    assert [found[name] for name in ("rows", "right", "wrong", "without_key", "other_exchange")] == [
        40,
        40,
        0,
        0,
        0,
    ]
    assert (found["ring"]["provenance"], found["determined"]) == ("read", True)
    expected = Counter(RING.destination_for(key) for key in KEYS)
    assert {each["stream"]: each["right"] for each in found["streams"]} == {
        stream: 4 * count for stream, count in expected.items()
    }
    later = answer("verify", "trips", "--stream", "*", *trips.live, "--until", "1d", code=3)
    assert (later["rows"], later["determined"]) == (0, False)


def test_rows_through_another_exchange_are_found_by_the_exchange_of_their_publisher(
    trips: Trips, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pika.BlockingConnection(pika_parameters(trips.broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("in", FANOUT)
        channel.exchange_bind("trips", "in")
    with Publisher(trips.broker.url, "in") as publisher:
        publisher.publish_many(["user-7"], [b"through"])
    given = ("user-7", "--exchange", "trips", *trips.live)
    assert "through" not in [row["value"] for row in rows_of(capsys, *given)]
    (row,) = rows_of(capsys, *given, "--published-to", "in")
    assert row["value"] == "through"
    stream = str(RING.destination_for("user-7"))
    assert answer("verify", "--stream", stream, *trips.live)["exchange"] == "trips"  # as most rows say
    found = answer("verify", "trips", "--stream", stream, "--published-to", "in", *trips.live)
    assert (found["right"], found["wrong"]) == (1, 0)


def test_super_streams_are_verified_and_other_exchanges_refused(
    trips: Trips, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if not release_is_in(trips.broker.version, ">=3.13"):
        pytest.skip("the stream protocol makes super streams from 3.13 on")
    settings = stream_settings(trips.broker.stream_url)
    with closing(StreamConnection(settings)) as connection:
        create_super_stream(connection, "events", ["events-0", "events-1"], ["0", "1"])
    with StreamPublisher(trips.broker.stream_url, super_stream="events") as publisher:
        publisher.publish_many(KEYS * 3, [f"{n}" for n in range(30)])
    for where in (trips.at, trips.at[:2]):
        found = answer("verify", "--super-stream", "events", *where)
        assert (found["rows"], found["right"], found["exchange"]) == (30, 30, "events")
        assert found["super_stream"]["partitions"] == ["events-0", "events-1"]
    one = answer("verify", "--super-stream", "events", "--stream", "events-1", *trips.at)
    assert [each["stream"] for each in one["streams"]] == ["events-1"]
    rows = rows_of(capsys, "user-4", "--super-stream", "events", *trips.at)
    assert [(row["key"], row["value"]) for row in rows] == [("user-4", text) for text in ("4", "14", "24")]
    shown = answer("stream", "show", "events", *trips.at)["streams"]
    assert [(each["name"], each["exchange"]) for each in shown] == [
        ("events-0", "events"),
        ("events-1", "events"),
    ]
    # The stream protocol lists the queues of any exchange: this one's rows are placed by a ring, and not by murmur3.
    for where in (trips.at, trips.at[:2]):
        assert main(["verify", "--super-stream", "trips", *where]) == 2
        assert "'trips' is not a super stream" in capsys.readouterr().err


def test_rows_that_another_client_placed_otherwise_are_wrong(
    vhost: RunningBroker, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers of rstream write no routing key, and hash otherwise than those for Java."""
    if not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("the stream protocol makes super streams from 3.13 on")
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "events", ["events-0", "events-1"], ["0", "1"])
    publish_by_rstream(vhost.stream_url, "events", KEYS)
    given, where = ("--super-stream", "events"), ("--url", vhost.stream_url)
    found = answer("verify", *given, *where, code=3)
    assert (found["rows"], found["without_key"]) == (len(KEYS), len(KEYS))
    found = answer("verify", *given, *where, "--by-message-id", code=1)
    super_stream = SuperStream(["events-0", "events-1"])
    wrong = {
        key for key in KEYS if super_stream.partition_for(key) != super_stream.partition_for(key, "rstream")
    }
    assert 0 < len(wrong) < len(KEYS)
    assert {example["key"] for example in found["examples"]} == wrong
    assert (found["right"], found["wrong"]) == (len(KEYS) - len(wrong), len(wrong))
    assert found["findings"] == []  # a super stream has no ring
    right = next(key for key in KEYS if key not in wrong)
    (row,) = rows_of(capsys, right, *given, *where, "--by-message-id")
    assert (row["key"], row["value"], row["stream"]) == (right, right, super_stream.partition_for(right))


def test_the_rows_of_keys_come_from_the_streams_that_have_them(
    trips: Trips, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = ("user-7", "user-1")
    expected = [
        (RING.destination_for(key), f"user-{n % 10}", f"trip {n}")
        for n in range(40)
        for key in keys
        if f"user-{n % 10}" == key
    ]
    rows = rows_of(capsys, *keys, "--exchange", "trips", *trips.live)
    found = [(row["stream"], row["key"], row["value"]) for row in rows]
    assert sorted(found) == sorted(expected)
    assert len({stream for stream, _, _ in expected}) == 2
    for stream in STREAMS:  # each in the order of its stream
        offsets = [row["offset"] for row in rows if row["stream"] == stream]
        assert offsets == sorted(offsets)
    file = tmp_path / "ring.json"
    file.write_text(RING.to_json())
    for stream in STREAMS:
        if stream != RING.destination_for("user-7"):
            trips.channel.queue_delete(stream)
    rows = rows_of(capsys, "user-7", "--exchange", "trips", "--ring", str(file), *trips.at)
    assert [row["value"] for row in rows] == ["trip 7", "trip 17", "trip 27", "trip 37"]
    assert main(["replay", "user-7", "user-1", "--exchange", "trips", "--ring", str(file), *trips.at]) == 2


def test_a_replay_begins_and_ends_at_the_given_times(
    trips: Trips, capsys: pytest.CaptureFixture[str]
) -> None:
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    with Publisher(trips.broker.url, "trips") as publisher:
        publisher.publish_many(["user-7"] * 2, [b"later", b"\xff"])
    given = ("user-7", "--exchange", "trips", *trips.live)
    after = rows_of(capsys, *given, "--since", between.isoformat())
    assert [row.get("value", row.get("value_base64")) for row in after] == ["later", "/w=="]
    assert datetime.fromisoformat(after[0]["timestamp"]) >= between
    before = rows_of(capsys, *given, "--until", between.isoformat())
    assert [row["value"] for row in before] == ["trip 7", "trip 17", "trip 27", "trip 37"]
    assert len(rows_of(capsys, *given, "--since", "1h")) == 6
    assert main(["replay", *given, "--since", (between + timedelta(days=1)).isoformat()]) == 0
    nothing = capsys.readouterr()
    assert (nothing.out, nothing.err) == (
        "",
        "rabbit-chx: no rows with the key 'user-7': 0 rows were read; rows that were written before a change of the ring may be in another stream\n",
    )


def test_what_is_in_streams(vhost: RunningBroker, answer: Callable[..., Any]) -> None:
    stream, where = Streamed(vhost, "s", {}), ("--url", vhost.stream_url)
    with stream.connection(None) as connection:
        connection.create_stream("empty")
    before = datetime.now(UTC) - timedelta(seconds=2)
    stream.publish(["a", "b"])
    stream.store_offsets()
    stream.publish(["c"])
    shown, empty = answer("stream", "show", "s", "empty", *where)["streams"]
    assert (empty["name"], empty["first"], empty["last"], empty["offsets"]) == ("empty", None, None, 0)
    assert shown["first"]["offset"] == 0
    assert shown["last"]["offset"] == shown["offsets"] - 1 > 2  # the notes of the broker take offsets
    assert (
        before
        < datetime.fromisoformat(shown["first"]["time"])
        <= datetime.fromisoformat(shown["last"]["time"])
    )
    assert (shown["writers"], shown["exchange"]) == (None, None)


def test_the_writers_are_those_of_the_management_api(
    trips: Trips, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    vhost = trips.broker
    if not release_is_in(vhost.version, ">=3.13"):
        pytest.skip("the management API tells it from 3.13 on")
    if not vhost.owned:
        skip_unless_ci("it enables a plugin, so it needs a broker that the tests started")
    vhost.run("rabbitmq-plugins", "enable", "rabbitmq_stream_management")
    with StreamPublisher(vhost.stream_url, stream=STREAMS[0], name="loader") as publisher:
        publisher.publish_many(["k"], ["b"], ids=[7])
    (shown,) = answer("stream", "show", STREAMS[0], *trips.at)["streams"]
    assert shown["writers"]["loader"] == 7
    assert len(shown["writers"]) == 2  # with the AMQP channel
    assert main(["stream", "show", STREAMS[0], *trips.at]) == 0
    assert "2 of 255" in capsys.readouterr().out
    group = ("--stream-group", "billing")
    (before,) = answer("stream", "show", STREAMS[0], *group, *trips.at)["streams"]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.store_offset("billing", STREAMS[0], before["last"]["offset"] - 1)
        deadline = time.monotonic() + 60
        while connection.query_offset("billing", STREAMS[0]) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert before["lag_rows"] == before["offsets"]
    shown_as = ("--output", "prometheus")
    assert main(["stream", "show", STREAMS[0], *group, *trips.at, *shown_as]) == 0
    metrics = parsed_exposition(capsys.readouterr().out)
    assert metrics["rabbit_chx_stream_publisher_references"].value(stream=STREAMS[0]) == 2
    assert metrics["rabbit_chx_stream_offsets"].value(stream=STREAMS[0]) >= before["offsets"]
    assert 0 < metrics["rabbit_chx_stream_oldest_row_age_seconds"].value(stream=STREAMS[0]) < 600
    lag = metrics["rabbit_chx_stream_group_lag_rows"].value(group="billing", stream=STREAMS[0])
    assert 1 <= lag < before["lag_rows"]
    assert metrics["rabbit_chx_stream_group_lag_seconds"].value(group="billing") < 600
    assert main(["stream", "show", STREAMS[0], *trips.at[:2], *shown_as]) == 0
    assert set(parsed_exposition(capsys.readouterr().out)) == {
        "rabbit_chx_stream_offsets",
        "rabbit_chx_stream_oldest_row_age_seconds",
    }


@pytest.mark.docker
def test_3_10_shows_no_writers_and_says_which_release_does(
    answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """There is neither a page of writers nor a version of the commands."""
    need("docker")
    with docker_broker("3.10") as broker, temporary_vhost(broker) as inside:
        with pika.BlockingConnection(pika_parameters(inside.url)) as connection:
            declare_trips(connection.channel())
            trips = Trips(inside, connection.channel())
        assert answer("verify", "trips", "--stream", "*", *trips.live)["right"] == 40
        rows = rows_of(capsys, "user-7", "--exchange", "trips", "--since", "1h", *trips.live)
        assert [row["value"] for row in rows] == ["trip 7", "trip 17", "trip 27", "trip 37"]
        assert main(["stream", "show", *STREAMS, "--output", "json", *trips.at]) == 0
        found = capsys.readouterr()
        shown = json.loads(found.out)["streams"]
        assert sum(each["offsets"] for each in shown) >= 40
        assert {each["writers"] for each in shown} == {None}
        assert found.err.count("it needs RabbitMQ 3.13 or newer") == 1

"""Where micro-batches of streams begin and end, without a Spark: streams that go and come back."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import Any

import pytest
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import InputError, MissingRowsError, NotFoundError
from rabbit_chx.streams import nodes
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.testing import RunningBroker
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import sources
from spark_connector.reading.micro_batches import MicroBatches
from spark_connector.reading.sources import Sources
from spark_connector.reading.spark_readers import Range, rows_of

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

STREAMS = ("log.0", "log.1")


@pytest.fixture
def options(
    vhost: RunningBroker, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Of a reading of two streams behind an exchange, each with 23 rows."""
    monkeypatch.setattr(sources, "_BINDINGS_S", 0.0)
    channel.exchange_declare("rows", FANOUT, durable=True)
    for stream in STREAMS:
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "rows")
    with Publisher(vhost.url, "rows") as publisher:
        publisher.publish_many(["k"] * 23, ["row"] * 23)
    return {
        "url": str(vhost.stream_url),
        "exchange": "rows",
        "managementUrl": str(vhost.management_url),
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }


def test_a_stream_that_is_unbound_and_bound_again_goes_on_where_it_was(
    options: dict[str, str], channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    batches = MicroBatches(ReadOptions.parse(options, streaming=True))
    read = batches.after(batches.begin(), None, None)
    assert {stream: place.next for stream, place in read.items()} == dict.fromkeys(STREAMS, 23)
    channel.queue_unbind("log.0", "rows")
    with caplog.at_level(logging.WARNING):
        assert batches.after(batches.after(read, None, None), None, None) == read
    assert caplog.text.count("is not part of exchange 'rows' any more") == 1
    channel.queue_bind("log.0", "rows")
    assert batches.after(read, None, None) == read
    batches.close()


def test_the_streams_of_an_exchange_are_found_without_the_management_api(
    options: dict[str, str], channel: BlockingChannel
) -> None:
    channel.queue_declare("no stream", durable=True)
    channel.queue_bind("no stream", "rows")
    del options["managementUrl"]
    with closing(Sources(ReadOptions.parse(options))) as found:
        assert sorted(found.ends()) == list(STREAMS)
    with (
        closing(Sources(ReadOptions.parse({**options, "exchange": "amq.topic"}))) as nothing,
        pytest.raises(InputError, match=r"no stream is bound to exchange 'amq\.topic'"),
    ):
        nothing.ends()
    with (
        closing(Sources(ReadOptions.parse({**options, "exchange": "no"}))) as nowhere,
        pytest.raises(NotFoundError, match="list the queues of exchange 'no'"),
    ):
        nowhere.ends()


def test_a_leader_is_asked_for_again_when_the_connections_are_new(options: dict[str, str]) -> None:
    batches = MicroBatches(ReadOptions.parse(options, streaming=True))
    batches.hold()
    batches.close()  # as after a lost connection
    places = batches.after(batches.begin(), 10, None)
    assert sum(place.next for place in places.values()) == 10
    batches.close()


def test_a_stream_that_is_deleted_before_its_task(options: dict[str, str], channel: BlockingChannel) -> None:
    channel.queue_delete("log.0")
    gone = Range("log.0", 0, 23, None)
    assert list(rows_of(gone, ReadOptions.parse(options))) == []
    with pytest.raises(MissingRowsError, match="With failOnDataLoss=false the reading goes on"):
        list(rows_of(gone, ReadOptions.parse({**options, "failOnDataLoss": "true"})))


def planned(options: ReadOptions) -> list[Range]:
    """All rows of the streams, as `MicroBatchReader` gives them to tasks."""
    with closing(MicroBatches(options)) as batches:
        begin = batches.begin()
        end = batches.after(begin, None, None)
    return [
        Range(stream, begin[stream].next, place.next, begin[stream].before, (place.before,))
        for stream, place in end.items()
        if place.before is not None
    ]


def test_a_task_opens_one_connection(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ConnectionSettings] = []

    class Counted(StreamConnection):
        def __init__(self, settings: ConnectionSettings, **how: Any) -> None:
            opened.append(settings)
            super().__init__(settings, **how)

    parsed = ReadOptions.parse({**options, "failOnDataLoss": "true"}, streaming=True)
    ranges = planned(parsed)
    monkeypatch.setattr(nodes, "StreamConnection", Counted)
    for number, each in enumerate(ranges, start=1):
        assert sum(batch.num_rows for batch in rows_of(each, parsed)) == 23
        assert len(opened) == number


@pytest.mark.extended
@pytest.mark.parametrize(
    ("rows", "words"), [(0, "it ends at 0"), (5, "rewritten|it ends at 5"), (40, "rewritten")]
)
def test_a_stream_that_is_made_again_before_its_task(
    options: dict[str, str], vhost: RunningBroker, channel: BlockingChannel, rows: int, words: str
) -> None:
    strict = ReadOptions.parse({**options, "failOnDataLoss": "true"}, streaming=True)
    (gone,) = [each for each in planned(strict) if each.stream == "log.0"]
    channel.queue_delete("log.0")
    channel.queue_declare("log.0", durable=True, arguments={"x-queue-type": "stream"})
    with Publisher(vhost.url, "") as publisher:
        publisher.publish_many(["log.0"] * rows, ["other"] * rows)
    began = time.monotonic()
    with pytest.raises(MissingRowsError, match=words):
        list(rows_of(gone, strict))
    found = rows_of(gone, ReadOptions.parse(options, streaming=True))
    assert sum(batch.num_rows for batch in found) == min(rows, 23)
    assert time.monotonic() - began < 25

"""The streams of an exchange that micro-batches read, without a Spark: they may go and come back."""

from __future__ import annotations

import logging

import pytest
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Publisher
from rabbit_chx.testing import RunningBroker
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import sources
from spark_connector.reading.micro_batches import MicroBatches

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

STREAMS = ("log.0", "log.1")


def test_a_stream_that_is_unbound_and_bound_again_goes_on_where_it_was(
    vhost: RunningBroker,
    channel: BlockingChannel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sources, "_BINDINGS_S", 0.0)
    channel.exchange_declare("rows", FANOUT, durable=True)
    for stream in STREAMS:
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "rows")
    with Publisher(vhost.url, "rows") as publisher:
        publisher.publish_many(["k"] * 23, ["row"] * 23)
    options = {
        "url": str(vhost.stream_url),
        "exchange": "rows",
        "managementUrl": str(vhost.management_url),
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
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

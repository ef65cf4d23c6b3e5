"""The streams that micro-batches read, without a Spark: those of an exchange may go and come back; a connection is kept."""

from __future__ import annotations

import logging

import pytest
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import through
from streamed import Streamed
from tcp_proxy import Proxy

from rabbit_chx import Publisher
from rabbit_chx.streams import log_lookup
from rabbit_chx.testing import RunningBroker
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import micro_batches
from spark_connector.reading.micro_batches import MicroBatches

pytestmark = pytest.mark.broker

STREAMS = ("log.0", "log.1")


def test_a_stream_that_is_unbound_and_bound_again_goes_on_where_it_was(
    vhost: RunningBroker,
    channel: BlockingChannel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(micro_batches, "_BINDINGS_S", 0.0)
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


def test_looks_share_a_connection_and_open_another_when_it_is_lost(
    stream: Streamed, line: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = through(stream.broker.stream_url, line.port)
    texts = {"url": url, "stream": "s", "startingOffsets": "earliest"}
    batches = MicroBatches(ReadOptions.parse(texts, streaming=True))
    places = batches.after(batches.begin(), None, None)
    with monkeypatch.context() as offline:
        offline.setattr(log_lookup, "open_any", None)
        offline.setattr(log_lookup, "open_at", None)
        for number in range(3):
            stream.publish([str(number)])
            places = batches.after(places, None, None)
    assert places["s"].next == 3
    line.cut()
    assert batches.after(places, None, None) == places
    batches.close()

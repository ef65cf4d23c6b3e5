"""Queues that Spark drains, with a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pika
import pytest
from bounded import until
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, Row, SparkSession

from rabbit_chx import Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker
from spark_connector import drain

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "a DataFrame of Arrow data")]

KINDS = ("classic", "quorum")


@dataclass(frozen=True)
class Queues:
    """A vhost with the empty queues `classic` and `quorum`, bound to the exchange `x`, the latter by way of `y`."""

    url: str
    channel: BlockingChannel

    def fill(self, queue: str, count: int, first: int = 0) -> None:
        """Add messages whose bodies are numbers."""
        with Publisher(self.url, exchange="") as publisher:
            publisher.publish_many([queue] * count, [b"%d" % n for n in range(first, first + count)])

    def ready(self, queue: str) -> int:
        """How many messages nobody holds."""
        return self.channel.queue_declare(queue, passive=True).method.message_count or 0

    def until_ready(self, queue: str, count: int) -> None:
        """Wait until a queue has so many messages: a quorum queue gives back a moment later than it says."""
        until(lambda: self.ready(queue) == count, f"{queue} has {count} messages", 20)


@pytest.fixture
def queues(vhost_url: str) -> Iterator[Queues]:
    with pika.BlockingConnection(pika_parameters(f"{vhost_url}?heartbeat=0")) as connection:
        channel = connection.channel()
        for exchange in ("x", "y"):
            channel.exchange_declare(exchange, FANOUT, durable=True)
        for kind, exchange in zip(KINDS, ("x", "y"), strict=True):
            channel.queue_declare(kind, durable=True, arguments={"x-queue-type": kind})
            channel.queue_bind(kind, exchange)
        channel.exchange_bind("y", "x")
        yield Queues(vhost_url, channel)


def numbers(df: DataFrame) -> list[int]:
    return [int(row.value) for row in df.collect()]


def collected(spark: SparkSession, queues: Queues, **options: object) -> list[Row]:
    """What a drain writes."""
    rows: list[Row] = []
    drain(spark, {"url": queues.url, **options}, lambda df: rows.extend(df.collect()))
    return rows


def test_the_named_queues_and_those_of_an_exchange_are_read(
    spark: SparkSession, vhost: RunningBroker, queues: Queues
) -> None:
    queues.channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    queues.channel.queue_bind("stream", "x")
    for options in (
        {"queue": "quorum, classic"},
        {"exchange": "x", "managementUrl": vhost.management_url},
    ):
        for number, queue in enumerate(KINDS):
            queues.fill(queue, 100, first=1_000 * number)
        rows = collected(spark, queues, **options, include="properties", includeHeaders=True)
        assert Counter(row.queue for row in rows) == {"classic": 100, "quorum": 100}
        assert all((row.properties, row.headers) == ({"delivery_mode": "2"}, None) for row in rows)


def test_a_drain_takes_out_what_was_there(spark: SparkSession, queues: Queues) -> None:
    for queue in KINDS:
        queues.fill(queue, 1_200)
    batches: list[list[int]] = []

    def write(df: DataFrame) -> None:
        batches.append(numbers(df))
        queues.fill("quorum", 1, first=-1)  # what comes later stays

    options = {"url": queues.url, "queue": "classic,quorum", "maxRows": 1_000}
    report = drain(spark, options, write)
    assert [len(batch) for batch in batches] == [1_000, 1_000, 400]
    assert [number for batch in batches for number in batch] == [*range(1_200), *range(1_200)]
    assert (report.acknowledged, report.batches, report.redelivered, report.left) == (2_400, 3, 0, {})
    assert report.messages == {"classic": 1_200, "quorum": 1_200}
    assert str(report).startswith("2,400 messages of 2 queues written and acknowledged in 3 batches, 0 redel")
    queues.until_ready("classic", 0)
    queues.until_ready("quorum", 3)
    assert drain(spark, options, DataFrame.count, max_seconds=0).left == {"quorum": 3}
    queues.until_ready("quorum", 3)
    assert drain(spark, options, DataFrame.count, max_messages=2).left == {"quorum": 1}
    queues.until_ready("quorum", 1)
    for unfinished in (lambda df: df.write.mode("append"), lambda df: df.select("value")):
        with pytest.raises(InputError, match="so nothing is stored yet: let it end with an action"):
            drain(spark, options, unfinished)
    queues.until_ready("quorum", 1)


@pytest.mark.parametrize("queue", KINDS)
def test_a_write_that_fails_gives_back(spark: SparkSession, queue: str, queues: Queues) -> None:
    queues.fill(queue, 1_000)
    batches: list[list[int]] = []

    def write(df: DataFrame) -> None:
        batches.append(numbers(df))
        if len(batches) == 3:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full") as caught:
        drain(spark, {"url": queues.url, "queue": queue, "maxRows": 300}, write)
    assert "before this, 600 messages of 1 queues written and acknowledged" in caught.value.__notes__[0]
    queues.until_ready(queue, 400)
    queues.fill(queue, 10, first=1_000)
    rows = collected(spark, queues, queue=queue)
    if queue == "quorum":  # before 4.3 it gives back in any order
        rows.sort(key=lambda row: int(row.value))
    assert [int(row.value) for row in rows] == list(range(600, 1_010))
    assert Counter(row.redelivered for row in rows) == {True: 300, False: 110}
    assert rows[0].asDict() == {
        "key": bytearray(queue.encode()),
        "value": bytearray(b"600"),
        "queue": queue,
        "redelivered": True,
    }

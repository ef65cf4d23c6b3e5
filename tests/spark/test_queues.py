"""Queues that Spark drains, with a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
import queue_jobs
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, Row, SparkSession
from spark_driver import DriverEndedError, SparkDriver
from stream_queries import wait_until

import spark_connector
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
        wait_until(lambda: self.ready(queue) == count, f"{queue} has not {count} messages", 20)


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


@pytest.fixture
def known(spark: SparkSession) -> SparkSession:
    """A Spark that knows the format."""
    spark_connector.register(spark)
    return spark


def numbers(df: DataFrame) -> list[int]:
    return [int(row.value) for row in df.collect()]


def collected(spark: SparkSession, queues: Queues, **options: object) -> list[Row]:
    """What a drain writes."""
    rows: list[Row] = []
    drain(spark, {"url": queues.url, **options}, lambda df: rows.extend(df.collect()))
    return rows


def test_the_named_queues_and_those_of_an_exchange_are_read(
    known: SparkSession, vhost: RunningBroker, queues: Queues
) -> None:
    queues.channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    queues.channel.queue_bind("stream", "x")
    for options in (
        {"queue": "quorum, classic"},
        {"exchange": "x", "managementUrl": vhost.management_url},
    ):
        for number, queue in enumerate(KINDS):
            queues.fill(queue, 100, first=1_000 * number)
        rows = collected(known, queues, **options)
        assert Counter(row.queue for row in rows) == {"classic": 100, "quorum": 100}


def test_all_that_a_message_has(known: SparkSession, queues: Queues) -> None:
    properties = pika.BasicProperties(
        content_type="text/plain",
        headers={"n": 1, "raw": b"\xff", "deep": {"list": [1, "two", None]}, "yes": True, "none": None},
        delivery_mode=2,
        message_id="m-1",
        timestamp=1_767_225_600,
    )
    queues.channel.basic_publish("x", "a.b", b"", properties)
    queues.until_ready("classic", 1)
    queues.channel.basic_publish("", "classic", b"bare")
    queues.until_ready("classic", 2)
    full, bare = collected(
        known, queues, queue="classic", include="message_id,exchange,properties", includeHeaders=True
    )
    assert (full.key, full.value, full.exchange, full.message_id) == (b"a.b", b"", "x", "m-1")
    assert full.properties == {
        "content_type": "text/plain",
        "delivery_mode": "2",
        "message_id": "m-1",
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    assert full.headers == {
        "n": "1",
        "raw": "ff",
        "deep": '{"list": [1, "two", null]}',
        "yes": "true",
        "none": None,
    }
    assert (bare.exchange, bare.message_id, bare.properties, bare.headers) == ("", None, None, None)


def test_a_drain_takes_out_what_was_there(known: SparkSession, queues: Queues) -> None:
    for queue in KINDS:
        queues.fill(queue, 1_200)
    batches: list[list[int]] = []

    def write(df: DataFrame) -> None:
        batches.append(numbers(df))
        queues.fill("quorum", 1, first=-1)  # what comes later stays

    options = {"url": queues.url, "queue": "classic,quorum", "maxRows": 1_000}
    report = drain(known, options, write)
    assert [len(batch) for batch in batches] == [1_000, 1_000, 400]
    assert [number for batch in batches for number in batch] == [*range(1_200), *range(1_200)]
    assert (report.acknowledged, report.batches, report.redelivered, report.left) == (2_400, 3, 0, {})
    assert report.messages == {"classic": 1_200, "quorum": 1_200}
    assert str(report).startswith("2,400 messages of 2 queues written and acknowledged in 3 batches, 0 redel")
    queues.until_ready("classic", 0)
    queues.until_ready("quorum", 3)
    assert drain(known, options, DataFrame.count, max_seconds=0).left == {"quorum": 3}
    queues.until_ready("quorum", 3)
    assert drain(known, options, DataFrame.count, max_messages=2).left == {"quorum": 1}
    queues.until_ready("quorum", 1)
    for unfinished in (lambda df: df.write.mode("append"), lambda df: df.select("value")):
        with pytest.raises(InputError, match="so nothing is stored yet: let it end with an action"):
            drain(known, options, unfinished)
    queues.until_ready("quorum", 1)


@pytest.mark.parametrize("queue", KINDS)
def test_a_write_that_fails_gives_back(known: SparkSession, queue: str, queues: Queues) -> None:
    queues.fill(queue, 1_000)
    batches: list[list[int]] = []

    def write(df: DataFrame) -> None:
        batches.append(numbers(df))
        if len(batches) == 3:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full") as caught:
        drain(known, {"url": queues.url, "queue": queue, "maxRows": 300}, write)
    assert "before this, 600 messages of 1 queues written and acknowledged" in caught.value.__notes__[0]
    queues.until_ready(queue, 400)
    queues.fill(queue, 10, first=1_000)
    rows = collected(known, queues, queue=queue)
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


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SparkDriver]:
    driver = SparkDriver(tmp_path / "spark", "local[1]")
    yield driver
    driver.stop()


@pytest.mark.timeout(300)
def test_what_a_driver_holds_when_it_is_killed_is_given_back(
    known: SparkSession, driver: SparkDriver, tmp_path: Path, queues: Queues
) -> None:
    queues.fill("quorum", 3_000)
    draining = driver.begin(queue_jobs.drain, url=queues.url, queue="quorum", folder=tmp_path, stop_at=3)
    wait_until((tmp_path / "holds").exists, "no batch is written")
    queues.until_ready("quorum", 1_500)
    driver.kill()
    with pytest.raises(DriverEndedError):
        driver.answer(draining, 1)
    queues.until_ready("quorum", 2_000)
    rows = str(tmp_path / "rows")
    report = drain(
        known, {"url": queues.url, "queue": "quorum"}, lambda df: df.write.mode("append").parquet(rows)
    )
    assert (report.acknowledged, report.redelivered) == (2_000, 500)
    found = Counter(numbers(known.read.parquet(rows)))
    assert sorted(found) == list(range(3_000))
    assert sorted(number for number, count in found.items() if count > 1) == list(range(1_000, 1_500))

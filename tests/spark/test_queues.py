"""Queues that Spark peeks at and drains, with a real broker."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest
import queue_jobs
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_driver import DriverEndedError, SparkDriver
from tcp_proxy import Proxy

import spark_connector
from rabbit_chx import Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.testing import RunningBroker
from spark_connector import drain
from spark_connector.options.queue_options import QueueOptions
from spark_connector.reading.queue_reader import peek

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "a DataFrame of Arrow data")]

KINDS = ("classic", "quorum")
peeks_at_a_quorum_queue = pytest.mark.chx_broker(">=4.3")  # refused before


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
        wait(lambda: self.ready(queue) == count, 20)


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


def peeked(spark: SparkSession, url: str, **options: object) -> DataFrame:
    given = {"url": url, "mode": "peek", **{name: str(value) for name, value in options.items()}}
    return spark.read.format("rabbitmq").options(**given).load()


def begin_stream(spark: SparkSession, **options: str) -> None:
    stream = spark.readStream.format("rabbitmq").options(**options).load()
    stream.writeStream.format("noop").start().processAllAvailable()


def numbers(df: DataFrame) -> list[int]:
    return [int(row.value) for row in df.collect()]


def wait(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


@pytest.mark.parametrize("queue", ["classic", pytest.param("quorum", marks=peeks_at_a_quorum_queue)])
def test_peeking_leaves_everything_in_its_place(known: SparkSession, queue: str, queues: Queues) -> None:
    queues.fill(queue, 1_500)
    df = peeked(known, queues.url, queue=queue)
    assert numbers(df) == list(range(1_500))
    queues.until_ready(queue, 1_500)
    queues.fill(queue, 10, first=1_500)
    rows = df.collect()  # each action looks again
    assert [int(row.value) for row in rows] == list(range(1_510))
    assert Counter(row.redelivered for row in rows) == {True: 1_500, False: 10}
    assert rows[0].asDict() == {
        "key": bytearray(queue.encode()),
        "value": bytearray(b"0"),
        "queue": queue,
        "redelivered": True,
    }
    queues.until_ready(queue, 1_510)


@peeks_at_a_quorum_queue
def test_several_queues_and_those_of_an_exchange(
    known: SparkSession, vhost: RunningBroker, queues: Queues
) -> None:
    queues.channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    queues.channel.queue_bind("stream", "x")
    for number, queue in enumerate(KINDS):
        queues.fill(queue, 100, first=1_000 * number)
    several = peeked(known, queues.url, queue="quorum, classic")
    behind = peeked(known, queues.url, exchange="x", managementUrl=vhost.management_url)
    assert several.rdd.getNumPartitions() == behind.rdd.getNumPartitions() == 2
    for df in (several, behind):
        counted = {row.queue: row["count"] for row in df.groupBy("queue").count().collect()}
        assert counted == {"classic": 100, "quorum": 100}
    left = drain(
        known, {"url": queues.url, "exchange": "x", "managementUrl": vhost.management_url}, DataFrame.count
    )
    assert left.messages == {"classic": 100, "quorum": 100}


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
    full, bare = peeked(
        known, queues.url, queue="classic", include="message_id,exchange,properties", includeHeaders=True
    ).collect()
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


def test_no_more_than_was_asked_for(caplog: pytest.LogCaptureFixture, queues: Queues) -> None:
    queues.fill("quorum", 1_000)
    options = {"url": queues.url, "queue": "quorum", "mode": "peek", "maxRows": "700"}
    with caplog.at_level(logging.WARNING):
        assert peek(QueueOptions.parse(options, peeks=True), "quorum").num_rows == 700
    assert "queue 'quorum' had 1000 messages, and 700 are shown" in caplog.text
    queues.until_ready("quorum", 1_000)


def test_what_cannot_be_peeked_at(known: SparkSession, queues: Queues) -> None:
    queues.channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    queues.fill("classic", 2)
    queues.channel.basic_qos(prefetch_count=1)
    queues.channel.basic_consume("classic", lambda *_: None, exclusive=True)
    for queue, words in (
        ("log", "queue 'log' is a stream, which keeps its messages: read it with the option stream='log'"),
        ("nope", "no queue 'nope'"),
        ("classic", "one consumer has the queue for itself: stop it first"),
    ):
        with pytest.raises(PySparkException, match=words):
            peeked(known, queues.url, queue=queue).collect()
    for mode, words in (
        ({"mode": "peek"}, "take batches out of the queue with"),
        ({}, "call drain in a loop instead"),
    ):
        with pytest.raises(PySparkException, match=words):
            begin_stream(known, url=queues.url, queue="classic", **mode)


def test_a_drain_takes_out_what_was_there(known: SparkSession, queues: Queues) -> None:
    for queue in KINDS:
        queues.fill(queue, 1_200)
    batches: list[list[int]] = []

    def write(df: DataFrame) -> None:
        batches.append(numbers(df))
        queues.fill("quorum", 1, first=-1)  # what comes later stays

    report = drain(known, {"url": queues.url, "queue": "classic,quorum", "maxRows": 1_000}, write)
    assert [len(batch) for batch in batches] == [1_000, 1_000, 400]
    assert [number for batch in batches for number in batch] == [*range(1_200), *range(1_200)]
    assert (report.acknowledged, report.batches, report.redelivered, report.left) == (2_400, 3, 0, {})
    assert report.messages == {"classic": 1_200, "quorum": 1_200}
    assert str(report).startswith("2,400 messages of 2 queues written and acknowledged in 3 batches, 0 redel")
    queues.until_ready("classic", 0)
    queues.until_ready("quorum", 3)


def test_a_drain_with_bounds(known: SparkSession, queues: Queues) -> None:
    queues.fill("quorum", 100)
    options = {"url": queues.url, "queue": "quorum", "maxRows": 30}
    report = drain(known, options, DataFrame.count, max_messages=70)
    assert (report.messages, report.left, report.batches) == ({"quorum": 70}, {"quorum": 30}, 3)
    assert drain(known, options, DataFrame.count, max_seconds=0).left == {"quorum": 30}
    queues.until_ready("quorum", 30)
    assert str(drain(known, options, DataFrame.count)).startswith("30 messages")
    assert drain(known, options, DataFrame.count).batches == 0


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
    report = drain(known, {"url": queues.url, "queue": queue}, lambda df: batches.append(numbers(df)))
    assert (report.acknowledged, report.redelivered) == (400, 300)
    assert batches[-1] == list(range(600, 1_000))


def test_what_drain_refuses(known: SparkSession, queues: Queues) -> None:
    queues.channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    queues.fill("classic", 5)
    for queue, kind, words in (
        ("log", InputError, "is a stream"),
        ("nope", NotFoundError, "no queue 'nope'"),
    ):
        with pytest.raises(kind, match=words):
            drain(known, {"url": queues.url, "queue": queue}, DataFrame.count)
    for unfinished in (lambda df: df.write.mode("append"), lambda df: df.select("value")):
        with pytest.raises(InputError, match="so nothing is stored yet: let it end with an action"):
            drain(known, {"url": queues.url, "queue": "classic"}, unfinished)
    queues.until_ready("classic", 5)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SparkDriver]:
    """A driver that repeats a task which fails."""
    driver = SparkDriver(tmp_path / "spark", "local[1,2]")
    yield driver
    driver.stop()


@peeks_at_a_quorum_queue
@pytest.mark.timeout(300)
def test_what_a_process_holds_when_it_is_killed_is_given_back(
    known: SparkSession, driver: SparkDriver, tmp_path: Path, queues: Queues
) -> None:
    queues.fill("quorum", 3_000)
    way = Proxy(queues.url)
    way.to_client.bytes_per_s = 20_000  # so that a task takes seconds
    settings = ConnectionSettings.from_uri(queues.url)
    try:
        slow = queues.url.replace(f":{settings.port}/", f":{way.port}/")
        peeking = driver.begin(queue_jobs.peek, url=slow, queue="quorum")
        wait(lambda: queues.ready("quorum") < 3_000 and driver.workers(way.port))
        for worker in driver.workers(way.port):
            os.kill(worker.pid, signal.SIGKILL)
        way.to_client.bytes_per_s = 0
        assert driver.answer(peeking, 60) == list(range(3_000))  # of the second attempt
    finally:
        way.close()
    queues.until_ready("quorum", 3_000)

    draining = driver.begin(queue_jobs.drain, url=queues.url, queue="quorum", folder=tmp_path, stop_at=3)
    wait((tmp_path / "holds").exists)
    queues.until_ready("quorum", 1_500)
    driver.kill()
    with pytest.raises(DriverEndedError):
        driver.answer(draining, 1)
    queues.until_ready("quorum", 2_000)
    rows = str(tmp_path / "rows")
    report = drain(
        known, {"url": queues.url, "queue": "quorum"}, lambda df: df.write.mode("append").parquet(rows)
    )
    assert (report.acknowledged, report.redelivered) == (2_000, 2_000)  # the look of before counts, too
    found = Counter(numbers(known.read.parquet(rows)))
    assert sorted(found) == list(range(3_000))
    assert sorted(number for number, count in found.items() if count > 1) == list(range(1_000, 1_500))

"""`routing=client`: a real Spark writes straight to the queues, and a ring that changes fails the write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exchange_types import MODULUS
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from quick_rings import quick_prefix

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.routing import HashRing, ModulusHashExchange
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher, publish

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 2_000


@pytest.fixture
def options(vhost: RunningBroker, channel: BlockingChannel) -> dict[str, str]:
    """Of a write that the client routes, to the exchange `x`; the queue `late` is not bound yet."""
    channel.queue_declare("late", durable=True)
    ring_via = " ".join(quick_prefix(vhost))
    return {"url": vhost.url, "exchange": "x", "routing": "client", "ringVia": ring_via}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Rows in two partitions."""
    return spark.range(0, ROWS, 1, 2).selectExpr("concat('key ', id % 97) AS key", "string(id) AS value")


def binding_when(marker: str, url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step before the write, by which a task binds another queue as soon as it has rows: once."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        from contextlib import suppress

        import pika

        for batch in batches:
            with suppress(FileExistsError):
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                    connection.channel().queue_bind("late", "x", "3")
            yield batch

    return step


def where(consumed: Consumed) -> dict[bytes, str]:
    return {message.body: message.queue for message in consumed()}


@pytest.mark.extended
def test_rows_are_where_the_exchange_would_have_put_them(
    rows: DataFrame, options: dict[str, str], vhost: RunningBroker, consumed: Consumed, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    rows.write.format("rabbitmq").options(url=vhost.url, exchange="x").mode("append").save()
    expected = where(consumed)
    rows.write.format("rabbitmq").options(**options, reportPath=str(path)).mode("append").save()
    assert where(consumed) == expected
    report = json.loads(path.read_text())
    assert (report["confirmed"], report["ring_provenance"], report["changed_ring"]) == (ROWS, "read", None)
    del options["ringVia"]
    with Broker(vhost.url, ring_source=quick_prefix(vhost)) as broker:
        publish(rows, options, ring=lambda: broker.ring("x"))
    assert where(consumed) == expected


def test_a_modulus_exchange_needs_no_ring_source(
    rows: DataFrame, vhost: RunningBroker, channel: BlockingChannel, consumed: Consumed
) -> None:
    names = ["q1", "q2", "q3"]
    with Broker(vhost.url, vhost.management_url) as broker:
        if broker.release.numbers < (4, 3, 0):
            pytest.skip("before 4.3 the type needs a plugin")
        channel.exchange_declare("bills", MODULUS, durable=True)
        for name in names:
            channel.queue_bind(name, "bills", "")
        options = {"url": vhost.url, "exchange": "bills"}

        def read() -> ModulusHashExchange:
            exchange = broker.exchange("bills")
            assert isinstance(exchange, ModulusHashExchange)
            return exchange

        report = publish(rows, options, ring=read())
        expected = where(consumed)
        assert set(expected.values()) == set(names)
        assert report.predicted == Counter(expected.values())
        client = {**options, "routing": "client"}
        assert publish(rows, client, ring=read).ring_provenance == "read"
        assert where(consumed) == expected
        with pytest.raises(InputError, match="nothing reads the ring before and after the write"):
            publish(rows, client, ring=read())


@pytest.mark.extended
def test_a_binding_that_is_added_during_a_batch_fails_it(
    rows: DataFrame, options: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    changed = rows.mapInArrow(binding_when(str(tmp_path / "bound"), options["url"]), rows.schema)
    writer = changed.write.format("rabbitmq").options(**options, reportPath=str(path))
    with pytest.raises(PySparkException, match="the ring has changed during the write"):
        writer.mode("append").save()
    report = json.loads(path.read_text())
    assert (report["failed"], report["confirmed"]) == (True, ROWS)
    before, after = (HashRing.from_json(json.dumps(ring)) for ring in report["changed_ring"])
    assert (len(before.buckets), len(after.buckets)) == (6, 9)


@pytest.mark.extended
@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
def test_each_batch_of_a_stream_is_compared(rows: DataFrame, options: dict[str, str], tmp_path: Path) -> None:
    source, reports = str(tmp_path / "in"), tmp_path / "reports"
    rows.write.parquet(source)
    stream = rows.sparkSession.readStream.schema(rows.schema).parquet(source)
    changed = stream.mapInArrow(binding_when(str(tmp_path / "bound"), options["url"]), rows.schema)
    writer = changed.writeStream.format("rabbitmq").options(**options, reportPath=str(reports))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(PySparkException, match="the ring has changed during the write"):
        writer.start().awaitTermination(120)
    first = json.loads((reports / "batch-0.json").read_text())
    assert (first["failed"], first["confirmed"]) == (True, ROWS)
    assert writer.start().awaitTermination(120), "the repeated batch does not end"  # by the ring as it is now
    again = json.loads((reports / "batch-0.json").read_text())
    assert (again["failed"], again["confirmed"], again["changed_ring"]) == (False, ROWS, None)


def test_foreach_batch_reads_the_ring_before_and_after_each_batch(
    rows: DataFrame, options: dict[str, str]
) -> None:
    old, new = HashRing.from_buckets(["q1", "q2"]), HashRing.from_buckets(["q1", "q2", "q3"])
    read = iter([old, old, old, new, old])
    reports: list[Any] = []
    del options["ringVia"]
    write = batch_publisher(options, ring=lambda: next(read), on_report=reports.append)
    write(rows, 0)
    with pytest.raises(PublishError, match="belong to q2 now"):
        write(rows, 1)
    assert [report.batch_id for report in reports] == [0]
    assert next(read, None) is None

"""Measure confirmed rows per second from Spark into a hash exchange: ours, the limit, the tutorial way.

The limit pushes ready-made bytes in the same Spark stage (see `spark_raw`). The tutorial way is what people
write: `foreachPartition`, a pika BlockingConnection, `confirm_delivery`, and row by row
`basic_publish(..., mandatory=True)`. All three write to the same broker, in the same run, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, Row, SparkSession
from spark_raw import raw_sink

import spark_connector
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

EXCHANGE = "bench"
QUEUES = ("q1", "q2", "q3", "q4")
PARTITIONS = 2


def ours(rows: DataFrame, url: str) -> None:
    """Write through the connector."""
    rows.write.format("rabbitmq").options(url=url, exchange=EXCHANGE).mode("append").save()


def tutorial(rows: DataFrame, url: str) -> None:
    """Write as the tutorials do."""

    def publish(partition: Iterable[Row]) -> None:
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            for row in partition:
                channel.basic_publish(EXCHANGE, row.key, row.value, persistent, mandatory=True)

    rows.foreachPartition(publish)


def prepared(
    spark: SparkSession, count: int, partitions: int = PARTITIONS, body_bytes: int = 100
) -> DataFrame:
    """Return a cached frame of `count` rows with a key and a body."""
    rows = spark.range(0, count, 1, partitions).selectExpr(
        "concat('order-', lpad(id, 8, '0')) AS key", f"encode(repeat('x', {body_bytes}), 'utf-8') AS value"
    )
    rows.cache().count()
    return rows


def spark_on(cores: int) -> SparkSession:
    """Return a local Spark with `cores` cores that knows our format and logs only errors."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark_connector.register(spark)
    return spark


@contextmanager
def bench_exchange() -> Iterator[tuple[RunningBroker, BlockingChannel]]:
    """Yield a broker with the hash exchange and its queues in a vhost of their own, and a channel to it."""
    with (
        find_broker() as broker,
        temporary_vhost(broker) as place,
        pika.BlockingConnection(pika_parameters(f"{place.url}?heartbeat=0")) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "x-consistent-hash", durable=True)  # type: ignore[arg-type]
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, "1")
        yield place, channel


def measured(write: Callable[[], None], channel: BlockingChannel, count: int) -> float:
    """Return the rows per second of a write into empty queues. Exit if a row is missing from the queues."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    time.sleep(1)  # the broker is still busy with the run before
    started = time.perf_counter()
    write()
    seconds = time.perf_counter() - started
    arrived = sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    if arrived != count:
        raise SystemExit(f"{arrived} messages are in the queues instead of {count}")
    return count / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    quick = parser.parse_args().quick
    many, few, rounds = (50_000, 3_000, 1) if quick else (200_000, 15_000, 5)
    with bench_exchange() as (place, channel):
        spark = spark_on(PARTITIONS)
        large, small = prepared(spark, many), prepared(spark, few)
        push = raw_sink(place.url, EXCHANGE, 100)
        ours(small, place.url)  # start the Python workers
        ways: dict[str, tuple[Callable[[], None], int]] = {
            'format("rabbitmq")': (lambda: ours(large, place.url), many),
            "ready-made bytes in the same stage": (lambda: push(large, many), many),
            "foreachPartition + pika, confirmed one by one": (lambda: tutorial(small, place.url), few),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (write, count) in ways.items():
                rates[name].append(measured(write, channel, count))
        spark.stop()
        print(
            f"\n{place.origin}; {PARTITIONS} tasks, 100-byte bodies, {len(QUEUES)} classic queues, {rounds} rounds"
        )
    median = [statistics.median(values) for values in rates.values()]
    table = [
        (
            name,
            ways[name][1],
            *(round(rate) for rate in (middle, min(values), max(values))),
            f"{median[0] / middle:.2f}",
        )
        for (name, values), middle in zip(rates.items(), median, strict=True)
    ]
    headings = ("rows", "rows/s (median)", "min", "max", "ours is times as fast")
    columns = (TableColumn("way", numeric=False), *(TableColumn(heading) for heading in headings))
    print(render_table(columns, table))


if __name__ == "__main__":
    main()

"""Measure Spark and streams, both ways: confirmed rows per second into four streams, and rows per second out of them.

In: the same rows over AMQP through the hash exchange, over the stream protocol at least once, and exactly once, with the shuffle and
the sort that it needs: as single rows, in sub-entries, and with `verify=full`, which reads everything back. Beside them the bytes of the
segments on disk. A write into streams has more rows: a job takes about half a second, whatever it writes. Out: the sum of the sizes of
all values, compared with the same rows in Parquet files. All in turns, in one run; a run counts only if every row is there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import pika
from pyspark.sql import DataFrame, SparkSession
from spark_write import spark_on

from rabbit_chx import Broker, HashRing
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost
from spark_connector import place_for_streams

EXCHANGE = "orders"
STREAMS = tuple(f"orders-{number}" for number in range(4))
CORES, BODY_BYTES = 2, 100
AMQP = "AMQP, through the exchange"
AT_LEAST_ONCE = "stream protocol, at least once"
#: Orders as JSON, of which a codec can make half, and not a tenth as of one letter.
BODY = """concat('{"order":', lpad(id, 8, '0'), ',"customer":"c-', lpad(int(rand(1) * 1e5), 5, '0'), '","cents":',
    lpad(int(rand(2) * 1e6), 7, '0'), ',"currency":"EUR","at":"2026-11-29T12:', lpad(int(rand(3) * 60), 2, '0'), ':',
    lpad(int(rand(4) * 60), 2, '0'), 'Z"}')"""
WAYS_IN = (
    AMQP,
    AT_LEAST_ONCE,
    "stream protocol, exactly once",
    "the same, sub-entries of 10",
    "the same, sub-entries of 100",
    "the same, sub-entries of 100, lz4",
    "exactly once, verify=full",
)


def prepared(spark: SparkSession, rows: int) -> DataFrame:
    """Return a cached frame of so many rows with a key and a body."""
    frame = spark.range(0, rows, 1, 8).selectExpr(
        "concat('order-', lpad(id, 8, '0')) AS key",
        f"encode({BODY}, 'utf-8') AS value",
    )
    frame.cache().count()
    return frame


def declared(place: RunningBroker) -> HashRing:
    """Make the exchange and empty streams, and return the ring."""
    with pika.BlockingConnection(pika_parameters(place.url)) as connection:
        channel = connection.channel()
        channel.exchange_delete(EXCHANGE)
        channel.exchange_declare(EXCHANGE, "x-consistent-hash", durable=True)  # type: ignore[arg-type]
        for stream in STREAMS:
            channel.queue_delete(stream)
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(stream, EXCHANGE, "1")
    with Broker(place.url, ring_source=place.ring_via) as broker:
        return broker.ring(EXCHANGE)


def ways_in(
    rows: DataFrame, place: RunningBroker, ring: HashRing, versions: count[int]
) -> dict[str, Callable[[], None]]:
    """Return the ways to write the rows."""
    by_ring = {"exchange": EXCHANGE, "ring": ring.to_json()}

    def write(frame: DataFrame, **options: str | int) -> None:
        frame.write.format("rabbitmq").options(**by_ring, **options).mode("append").save()

    def once(**options: str | int) -> None:
        placed = place_for_streams(rows, ring, key="key")
        write(
            placed,
            url=place.stream_url,
            delivery="exactly-once",
            appId="bench",
            version=next(versions),
            **options,
        )

    ways = (
        lambda: write(rows, url=place.url),
        lambda: write(rows, url=place.stream_url),
        once,
        lambda: once(subEntryRows=10),
        lambda: once(subEntryRows=100),
        lambda: once(subEntryRows=100, compression="lz4"),
        lambda: once(verify="full"),
    )
    return dict(zip(WAYS_IN, ways, strict=True))


def on_disk(place: RunningBroker) -> int:
    """Return the bytes of the segments of the streams on the node."""
    script = "cat /var/lib/rabbitmq/mnesia/*/stream/*orders-*/*.segment | wc -c"
    command = [*(place.ring_via or ()), "sh", "-c", script]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)  # our own broker


def read(frame: DataFrame) -> int:
    """Return the size of all values in bytes."""
    return int(frame.selectExpr("sum(length(value))").first()[0])  # type: ignore[index]


def measured(work: Callable[[], int | None], rows: int) -> float:
    """Return the rows per second. Exit if the work returns that it has read something else."""
    time.sleep(1)  # the broker is still busy with the run before
    started = time.perf_counter()
    size = work()
    seconds = time.perf_counter() - started
    if size is not None:
        check(size, rows)
    return rows / seconds


def check(size: int, rows: int) -> None:
    """Exit if it is not the size of so many rows."""
    if size != rows * BODY_BYTES:
        raise SystemExit(f"{size} bytes instead of {rows * BODY_BYTES}: not every row is there once")


def show(what: str, rows: Mapping[str, int], rates: Mapping[str, Sequence[float]]) -> str:
    """Return the rates as a table."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    first = next(iter(medians.values()))
    headings = ("rows", "rows/s (median)", "min", "max", "times the first")
    return render_table(
        (TableColumn(what, numeric=False), *map(TableColumn, headings)),
        [
            (
                name,
                rows[name],
                *map(round, (medians[name], min(values), max(values))),
                f"{medians[name] / first:.2f}",
            )
            for name, values in rates.items()
        ],
    )


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    parser.add_argument("--writes", action="store_true", help="only writes, in 3 rounds: about 6 minutes")
    arguments = parser.parse_args()
    quick = arguments.quick
    few, many, rounds = (50_000, 500_000, 1) if quick else (300_000, 4_000_000, 3 if arguments.writes else 5)
    rows_in = {name: few if name == AMQP else many for name in WAYS_IN}
    disk: dict[str, float] = {}
    rates_in: dict[str, list[float]] = defaultdict(list)
    rates_out: dict[str, list[float]] = defaultdict(list)
    with find_broker() as found, temporary_vhost(found) as place, tempfile.TemporaryDirectory() as folder:
        spark = spark_on(CORES)
        small, large = prepared(spark, few), prepared(spark, many)
        versions = count(1)
        streams = (
            spark.read.format("rabbitmq").options(url=place.stream_url, stream=",".join(STREAMS))
        )  # fmt: skip
        for of_round in range(rounds + 1):
            for name in WAYS_IN:
                frame = small if name == AMQP else large
                rate = measured(ways_in(frame, place, declared(place), versions)[name], rows_in[name])
                check(read(streams.load()), rows_in[name])
                disk[name] = on_disk(place) / rows_in[name]
                if of_round:  # the first one starts the Python workers
                    rates_in[name].append(rate)
        if not arguments.writes:
            ways_in(large, place, declared(place), versions)[AT_LEAST_ONCE]()
            large.write.parquet(f"{folder}/rows")
        ways_out = {
            'read.format("rabbitmq")': lambda: read(streams.load()),
            "read.parquet": lambda: read(spark.read.parquet(f"{folder}/rows")),
        }
        for _ in range(0 if arguments.writes else rounds):
            for name, work in ways_out.items():
                rates_out[name].append(measured(work, many))
        spark.stop()
        print(f"\n{place.origin}; {CORES} cores, {BODY_BYTES}-byte bodies, {rounds} rounds")
    print(show("in", rows_in, rates_in))
    print("\n".join(f"{name}: {size:.0f} bytes a row on disk" for name, size in disk.items()))
    if rates_out:
        print(show("out", dict.fromkeys(rates_out, many), rates_out))


if __name__ == "__main__":
    main()

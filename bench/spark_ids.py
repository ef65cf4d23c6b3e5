"""Measure what ``messageId=auto`` costs: writes with and without it, and the CPU of the ids alone."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from spark_write import EXCHANGE, PARTITIONS, bench_exchange, measured, prepared, spark_on

from rabbit_chx.rendering import TableColumn, render_table
from spark_connector.columns import MessageColumns
from spark_connector.writing.messages import MessageIds

BATCH = 10_000


def write(rows: DataFrame, url: str, message_id: str) -> None:
    """Write through the connector."""
    options = {"url": url, "exchange": EXCHANGE, "messageId": message_id}
    rows.write.format("rabbitmq").options(**options).mode("append").save()


def cpu_us(rows: int) -> float:
    """Return the microseconds of CPU per row of a partition with bodies of 100 random bytes."""
    ids = MessageIds("w" * 36, 0, 0)
    columns = MessageColumns(value=1, key=0, exchange=None, headers=None, properties={})
    keys = pa.array([f"order-{n:08}" for n in range(BATCH)])
    seconds = 0.0
    for _ in range(rows // BATCH):
        random = os.urandom(100 * BATCH)
        bodies = pa.array([random[at : at + 100] for at in range(0, len(random), 100)], pa.binary())
        batch = pa.RecordBatch.from_arrays([keys, bodies], names=["key", "value"])
        started = time.process_time()
        ids.of(batch, columns, ())
        seconds += time.process_time() - started
    return seconds / rows * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    quick = parser.parse_args().quick
    count, rounds = (50_000, 3) if quick else (200_000, 5)
    for rows in (BATCH, 1_000_000, 5_000_000 if not quick else 1_000_000):
        print(f"{rows:,} rows in a partition: {cpu_us(rows):.2f} us of CPU per row")
    rates: dict[str, list[float]] = {"none": [], "auto": []}
    with bench_exchange() as (place, channel):
        spark = spark_on(PARTITIONS)
        frame = prepared(spark, count)
        write(frame, place.url, "auto")  # start the Python workers
        for _ in range(rounds):
            for message_id, measured_rates in rates.items():
                measured_rates.append(measured(partial(write, frame, place.url, message_id), channel, count))
        spark.stop()
        print(f"\n{place.origin}; {PARTITIONS} tasks, {count:,} rows of 100 bytes, {rounds} rounds")
    none = statistics.median(rates["none"])
    table = [
        (
            name,
            *(
                round(rate)
                for rate in (statistics.median(measured_rates), min(measured_rates), max(measured_rates))
            ),
            f"{none / statistics.median(measured_rates):.2f}",
        )
        for name, measured_rates in rates.items()
    ]
    headings = ("rows/s (median)", "min", "max", "times as long")
    print(render_table((TableColumn("messageId", numeric=False), *map(TableColumn, headings)), table))


if __name__ == "__main__":
    main()

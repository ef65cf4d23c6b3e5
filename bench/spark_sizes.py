"""Measure rows per second from Spark by the number of partitions and the size of the bodies, and the limit.

The limit pushes ready-made bytes in the same Spark stage (see `spark_raw`).
"""

from __future__ import annotations

import argparse
import statistics

from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from spark_raw import raw_sink
from spark_write import EXCHANGE, bench_exchange, measured, ours, prepared, spark_on

from rabbit_chx.rendering import TableColumn, render_table

KIB = 1 << 10
MIB = 1 << 20
#: Rows by body size: at most a few hundred megabytes, and a few seconds.
ROWS = {10: 200_000, 100: 200_000, KIB: 100_000, 64 * KIB: 4_000, MIB: 256}
PARTITIONS = (1, 2, 4, 8)


def rates(
    spark: SparkSession, channel: BlockingChannel, url: str, shape: tuple[int, int, int], rounds: int
) -> tuple[float, float]:
    """Return the median rows/s of ours and of the limit; a shape is (rows, bytes of a body, partitions)."""
    count, body_bytes, partitions = shape
    rows = prepared(spark, count, partitions, body_bytes)
    push = raw_sink(url, EXCHANGE, body_bytes)
    of_ours, of_limit = [], []
    for _ in range(rounds):
        of_ours.append(measured(lambda: ours(rows, url), channel, count))
        of_limit.append(measured(lambda: push(rows, count), channel, count))
    rows.unpersist()
    return statistics.median(of_ours), statistics.median(of_limit)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    quick = parser.parse_args().quick
    rounds = 1 if quick else 3
    shapes = [(ROWS[100], 100, partitions) for partitions in PARTITIONS]
    shapes += [(count, size, 2) for size, count in ROWS.items()]
    table = []
    with bench_exchange() as (place, channel):
        spark = spark_on(max(PARTITIONS))
        ours(prepared(spark, 10_000, max(PARTITIONS)), place.url)  # start the Python workers
        for count, body_bytes, partitions in shapes:
            shape = (max(64, count // 10) if quick else count, body_bytes, partitions)
            rate, limit = rates(spark, channel, place.url, shape, rounds)
            row = (partitions, body_bytes, shape[0], round(rate), f"{rate * body_bytes / MIB:.1f}")
            table.append((*row, round(limit), f"{rate / limit:.2f}"))
            print(*table[-1], flush=True)
        spark.stop()
        print(f"\n{place.origin}; local[{max(PARTITIONS)}], {rounds} rounds, medians")
    headings = ("partitions", "body bytes", "rows", "rows/s", "MiB/s", "limit rows/s", "of the limit")
    print(render_table(tuple(TableColumn(heading) for heading in headings), table))


if __name__ == "__main__":
    main()

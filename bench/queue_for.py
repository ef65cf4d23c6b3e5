"""Compare `queue_for` with the transport alone: an arrow_udf that returns a string of the same size.

All ways read the same cached keys and discard the result, in turns, in one Spark. The cost of a way is its
time minus the time of reading the keys without a UDF.

    python bench/queue_for.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyspark.sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rabbit_chx import HashRing
from rabbit_chx.rendering.document import TableColumn, render_table
from spark_connector import queue_for

ROWS = 5_000_000
CORES = 2
RING = HashRing.from_bindings([(f"orders.{n}", 1) for n in range(10)])


def transport_only() -> Callable[[str], pyspark.sql.Column]:
    """Return an arrow_udf whose kernel does almost nothing."""

    def kernel(keys):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # without annotations it is a scalar UDF
        import pyarrow as pa

        return pa.repeat(pa.scalar("orders.5", pa.string()), len(keys))

    functions: Any = import_module("pyspark.sql.functions")
    function: Callable[[str], pyspark.sql.Column] = functions.arrow_udf(kernel, "string")
    return function


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys, for a look")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default: 3)")
    options = parser.parse_args()
    rows = ROWS // 10 if options.quick else ROWS
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    keys = spark.range(0, rows, 1, CORES).selectExpr("concat('order-', lpad(id, 8, '0')) AS key").cache()
    if keys.where(queue_for("key", RING).isNull()).count():
        raise SystemExit("a key has no queue, so the speed means nothing")
    ways = {
        "the keys alone": F.col("key"),
        "arrow_udf, transport only": transport_only()("key"),
        "queue_for": queue_for("key", RING),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):  # the first does not count
        for name, column in ways.items():
            started = time.perf_counter()
            keys.select(column.alias("column")).write.format("noop").mode("overwrite").save()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    spark.stop()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    alone, transport = medians["the keys alone"], medians["arrow_udf, transport only"]
    table = [
        (
            name,
            f"{median:.2f}",
            f"{min(seconds[name]):.2f}",
            f"{max(seconds[name]):.2f}",
            round((median - alone) / rows * 1e9),
            f"{(median - alone) / (transport - alone):.2f}",
        )
        for name, median in medians.items()
    ]
    columns = (
        TableColumn("way", numeric=False),
        *map(TableColumn, ("s (median)", "min", "max", "ns/row", "times the transport")),
    )
    print(f"\n{rows:,} keys of 14 bytes, a ring of 10 buckets, {CORES} tasks, {options.rounds} rounds")
    print(render_table(columns, table))


if __name__ == "__main__":
    main()

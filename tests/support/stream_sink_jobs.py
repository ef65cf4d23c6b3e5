"""Writes of numbered rows into the super stream `orders`, what breaks them, and what is in the streams afterwards.

A `SparkDriver` is sent the functions that take a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from super_streams import create_super_stream

from rabbit_chx.routing import SuperStream
from rabbit_chx.streams import StreamReader
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

STREAMS = ("orders-0", "orders-1", "orders-2")
PLACING = SuperStream(STREAMS)
_WAIT_S = 120.0


def orders_in(vhost: RunningBroker) -> str:
    """Make the super stream in a vhost, and return its stream URL."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "orders", STREAMS, [str(number) for number in range(len(STREAMS))])
    return vhost.stream_url


def load_into(url: str) -> dict[str, Any]:
    """Return the options of a write into it, exactly once, that is read back."""
    return {
        "url": url, "superStream": "orders", "delivery": "exactly-once", "appId": "load", "version": 1, "verify": "full",
    }  # fmt: skip


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows in no order."""
    numbers = spark.range(0, rows, 1, 4)
    return numbers.selectExpr("concat('key ', id % 977) AS key", "concat(id, repeat('.', 60)) AS value")


def expected(rows: int) -> list[tuple[str, bytes, bytes]]:
    """Return what is stored if each row of `frame` is there once: stream, key and value, sorted."""
    pairs = [(b"key %d" % (number % 977), b"%d" % number + b"." * 60) for number in range(rows)]
    return sorted((str(PLACING.partition_for(key)), key, value) for key, value in pairs)


def found(url: str, streams: Iterable[str] = STREAMS) -> list[tuple[str, bytes, bytes]]:
    """Return every row of every stream, in the order of the stream."""
    rows: list[Any] = []
    for stream in streams:
        with StreamReader(url, stream) as reader:
            for batch in reader:
                keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
                rows += zip([stream] * len(batch), keys, values, strict=True)
    return rows


def rows_in(url: str) -> int:
    """Return how many rows are in the streams, about: the offsets of the broker's own chunks count."""
    total = 0
    for stream in STREAMS:
        with StreamReader(url, stream) as reader:
            total += reader.end_offset
    return total


def wait_for_rows(url: str, rows: int, still: Callable[[], bool] = lambda: True) -> None:
    """Wait until so many rows are in the streams."""
    until = time.monotonic() + _WAIT_S
    while rows_in(url) < rows:
        assert still(), "the job has ended before"
        assert time.monotonic() < until, f"{rows_in(url)} of {rows} rows came"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Hold:
    """Lets the rows of some partitions wait until a file is there.

    Attributes:
        partitions: their numbers.
        until: the file.
        after: how many rows of a partition pass before.
    """

    partitions: frozenset[int]
    until: Path
    after: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on. Spark calls this in the task."""
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        given = 0
        for batch in batches:
            deadline = time.monotonic() + _WAIT_S
            while (
                task.partitionId() in self.partitions
                and given >= self.after
                and not self.until.exists()
                and time.monotonic() < deadline
            ):
                time.sleep(0.05)
            yield batch
            given += batch.num_rows


@dataclass(frozen=True, slots=True)
class SlowFirst:
    """Makes the first attempt of partition 0 slow behind its first rows, so that Spark starts a copy of it.

    The copy waits until the first attempt has published its first rows.

    Attributes:
        rows: how many rows are not slow.
        pause_s: how long it waits before each batch behind them.
        published: the file that it makes then.
    """

    rows: int
    pause_s: float
    published: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on. Spark calls this in the task."""
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        is_copy, given = task.attemptNumber() > 0, 0
        deadline = time.monotonic() + _WAIT_S
        while is_copy and not self.published.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        for batch in batches:
            if task.partitionId() == 0 and not is_copy and given >= self.rows:
                self.published.touch()
                time.sleep(self.pause_s)
            yield batch
            given += batch.num_rows


def write(
    spark: SparkSession, *, rows: int, options: Mapping[str, Any], step: Step | None = None
) -> dict[str, Any]:
    """Write `frame` with `publish`, and return the report as JSON has it."""
    import json

    from spark_connector import place_for_streams, publish

    placed = place_for_streams(frame(spark, rows), PLACING)
    stepped = placed if step is None else placed.mapInArrow(step, placed.schema)
    report: dict[str, Any] = json.loads(publish(stepped, options).to_json())
    return report

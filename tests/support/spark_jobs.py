"""What a `SparkDriver` is sent: writes of numbered rows, as a batch and as a stream, and the steps that slow or break them.

A row's number is the first word of its body. Its key is that of `key_of`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

KEYS = 977
_PART = 500
_PAUSE_S = 0.1
_LONG_PAUSE_S = 2.0
_FIRST_PART_S = 30.0


def key_of(number: int) -> str:
    """Return the routing key of a row."""
    return f"key {number % KEYS}"


@dataclass(frozen=True, slots=True)
class Trickle:
    """Lets rows through a few at a time until a file is there, and then as fast as they come.

    Attributes:
        until: the file.
        pause_s: how long it waits before each part of its rows.
        slower_from: the file from which on it waits longer, so that no task ends while a fault begins; None for none.
    """

    until: Path
    pause_s: float = _PAUSE_S
    slower_from: Path | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on. Spark calls this in the task."""
        for part in _parts(batches):
            if not self.until.exists():
                slower = self.slower_from is not None and self.slower_from.exists()
                time.sleep(_LONG_PAUSE_S if slower else self.pause_s)
            yield part


@dataclass(frozen=True, slots=True)
class FailHalfWay:
    """Lets the first attempt of some partitions be slow, and then fail.

    Attributes:
        partitions: their numbers.
        rows: how many rows they have let through when they fail.
        when: the file that they wait for then, so that some of the rows are published.
    """

    partitions: frozenset[int]
    rows: int
    when: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on. Spark calls this in the task."""
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        fails = task.partitionId() in self.partitions and task.attemptNumber() == 0
        seen = 0
        for part in _parts(batches):
            seen += part.num_rows
            if fails:
                time.sleep(_PAUSE_S)
            yield part
            if fails and seen >= self.rows:
                while not self.when.exists():
                    time.sleep(_PAUSE_S)
                raise RuntimeError("half way")


@dataclass(frozen=True, slots=True)
class SlowFirst:
    """Makes the first attempt of partition 0 slow, so that Spark starts a copy of it.

    Attributes:
        pause_s: how long it waits after its first rows. Before each later part it waits this much longer, so that the copy wins on a
            busy machine, too.
        begun: a file that tells the copy that the first rows are published. It waits for that, for half a minute at most.
        rows: how many rows it lets through before it waits.
    """

    pause_s: float
    begun: Path
    rows: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the rows on. Spark calls this in the task."""
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        is_slow = (task.partitionId(), task.attemptNumber()) == (0, 0)
        end = time.monotonic() + _FIRST_PART_S
        while task.partitionId() == 0 and not (is_slow or self.begun.exists() or time.monotonic() > end):
            time.sleep(_PAUSE_S)
        passed, pauses = 0, 0
        for part in _parts(batches):
            if is_slow and passed >= self.rows:
                pauses += 1
                time.sleep(pauses * self.pause_s)
                self.begun.touch()
            passed += part.num_rows
            yield part


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _PART):
            yield batch.slice(start, _PART)


def write(
    spark: SparkSession,
    *,
    way: str,
    rows: int,
    partitions: int,
    options: Mapping[str, str],
    step: Step | None = None,
) -> None:
    """Write the rows 0, 1, ... as a batch: a key's rows are in one partition, in their order.

    Args:
        spark: the session.
        way: ``"format"`` or ``"publish"``; `publish` writes its report to `reportPath` as the format does.
        rows: how many.
        partitions: how many tasks publish them.
        options: those of the connector.
        step: what the rows pass before they are written.
    """
    from spark_connector import publish

    frame = _placed(_keyed(spark.range(0, rows, 1, partitions)), partitions, step)
    if way == "publish":
        publish(frame, options)
    else:
        frame.write.format("rabbitmq").options(**options).mode("append").save()


def stream_files(
    spark: SparkSession,
    *,
    way: str,
    source: Path,
    checkpoint: Path,
    options: Mapping[str, str],
    step: Step | None = None,
    forever: bool = False,
) -> None:
    """Write the rows whose numbers are in the lines of files, a micro-batch for each file.

    Args:
        spark: the session.
        way: ``"format"``, or ``"foreachBatch"``, where each key's rows are placed and sorted.
        source: the folder of the files.
        checkpoint: the folder of the query's checkpoint.
        options: those of the connector.
        step: what the rows pass before they are written.
        forever: whether the query waits for more files; else it ends with the last one that is there.
    """
    from spark_connector import batch_publisher

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    keyed = _keyed(lines.selectExpr("cast(value AS bigint) AS id"))
    if way == "foreachBatch":
        publish_batch = batch_publisher(options)
        writer = keyed.writeStream.foreachBatch(
            lambda batch, number: publish_batch(_placed(batch, 4, step), number)
        )
    else:
        messages = keyed.select("key", "value")
        writer = _stepped(messages, step).writeStream.format("rabbitmq").options(**options)
    _run(writer, checkpoint, forever=forever)


def stream_forever(
    spark: SparkSession,
    *,
    rows_per_batch: int,
    every_s: float,
    checkpoint: Path,
    options: Mapping[str, str],
) -> None:
    """Write rows 0, 1, ... in micro-batches of equal size, until the query is stopped.

    Args:
        spark: the session.
        rows_per_batch: how many rows a micro-batch has.
        every_s: seconds from one micro-batch to the next.
        checkpoint: the folder of the query's checkpoint.
        options: those of the connector.
    """
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    rows = _keyed(source.option("numPartitions", 2).load().selectExpr("value AS id")).select("key", "value")
    writer = rows.writeStream.format("rabbitmq").options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(processingTime=f"{int(1000 * every_s)} milliseconds").start().awaitTermination()


def stop_streams(spark: SparkSession) -> None:
    """Stop every query of the session."""
    for query in spark.streams.active:
        query.stop()


def cancel(spark: SparkSession) -> None:
    """Cancel what runs."""
    spark.sparkContext.cancelAllJobs()


def live_heap(spark: SparkSession) -> int:
    """Collect the garbage of the driver's JVM, and return the bytes that are left."""
    jvm: Any = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def write_once(
    spark: SparkSession,
    *,
    rows: int,
    ring: str,
    options: Mapping[str, str],
    step: Step | None = None,
) -> None:
    """Write the rows 0, 1, ... into streams, each once.

    Args:
        spark: the session.
        rows: how many.
        ring: the JSON of the ring that places them.
        options: those of the connector.
        step: what the rows pass before they are written.
    """
    keyed = _keyed(spark.range(0, rows, 1, 4)).select("key", "value")
    placed = _placed_for_streams(keyed, ring, step)
    placed.write.format("rabbitmq").options(**options).mode("append").save()


def stream_to_stream(
    spark: SparkSession,
    *,
    source: Mapping[str, str],
    ring: str,
    checkpoint: Path,
    options: Mapping[str, str],
    step: Step | None = None,
    forever: bool = False,
) -> None:
    """Read streams, and write their rows into others, each once.

    Args:
        spark: the session.
        source: the options of the reading.
        ring: the JSON of the ring that places the rows.
        checkpoint: the folder of the query's checkpoint.
        options: those of the writing.
        step: what the rows pass before they are written.
        forever: whether the query waits for more rows; else it ends with the last one that is there.
    """
    rows = spark.readStream.format("rabbitmq").options(**source).load().select("key", "value")
    writer = _placed_for_streams(rows, ring, step).writeStream.format("rabbitmq").options(**options)
    _run(writer, checkpoint, forever=forever)


def _keyed(ids: DataFrame) -> DataFrame:
    return ids.selectExpr(
        "id", f"concat('key ', id % {KEYS}) AS key", "concat(id, ' ', repeat('.', 80)) AS value"
    )


def _placed(keyed: DataFrame, partitions: int, step: Step | None) -> DataFrame:
    messages = keyed.repartition(partitions, "key").sortWithinPartitions("id").select("key", "value")
    return _stepped(messages, step)


def _placed_for_streams(rows: DataFrame, ring: str, step: Step | None) -> DataFrame:
    from rabbit_chx import HashRing
    from spark_connector import place_for_streams

    return _stepped(place_for_streams(rows, HashRing.from_json(ring)), step)


def _stepped(frame: DataFrame, step: Step | None) -> DataFrame:
    return frame if step is None else frame.mapInArrow(step, frame.schema)


def _run(writer: DataStreamWriter, checkpoint: Path, *, forever: bool) -> None:
    writer = writer.option("checkpointLocation", str(checkpoint))
    trigger: Any = {"processingTime": "100 milliseconds"} if forever else {"availableNow": True}
    writer.trigger(**trigger).start().awaitTermination()

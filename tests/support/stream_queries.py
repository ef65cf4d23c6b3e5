"""Streaming queries over streams, and what their micro-batches had: run in this process, or in a driver that is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Rows = list[tuple[str, int, str]]


def start(
    spark: SparkSession,
    folder: str,
    options: Mapping[str, str],
    *,
    available_now: bool,
    before: Callable[[int], None] | None = None,
) -> StreamingQuery:
    """Start a query that writes each micro-batch into a file, in place of what it wrote there before.

    Args:
        spark: the session.
        folder: it gets the checkpoint, and a file for each micro-batch.
        options: those of the source.
        available_now: whether it ends with what is there, else it goes on.
        before: is called with the number of a micro-batch whose rows were read, and are not yet written.
    """

    def write(frame: DataFrame, batch: int) -> None:
        rows = [(row.stream, row.offset, bytes(row.value).decode()) for row in frame.collect()]
        if before is not None:
            before(batch)
        begun = Path(folder, f"begun-{batch}.json")
        begun.write_text(json.dumps(rows))
        begun.replace(Path(folder, f"batch-{batch}.json"))  # those who look meanwhile see it whole

    frame = spark.readStream.format("rabbitmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    writer = (
        writer.trigger(availableNow=True)
        if available_now
        else writer.trigger(processingTime="100 milliseconds")
    )
    return writer.start()


def hang_in(spark: SparkSession, folder: str, options: Mapping[str, str], batch: int) -> None:
    """Run a query that hangs in a micro-batch, behind its entry in the offset log and before that in the commit log."""

    def hang(number: int) -> None:
        if number == batch:
            Path(folder, "hangs").touch()
            time.sleep(600)

    start(spark, folder, options, available_now=True, before=hang).awaitTermination()


def python_came_late(error: Exception) -> bool:
    """Whether a query failed before any code of ours ran, as its Python took longer than Spark waits for it on a busy machine.

    It waits 10 s, without an option (PythonWorkerFactory.createSimpleWorker). The query may be started again.
    """
    return "failed to connect back" in str(error)


def batches(folder: Path) -> list[Rows]:
    """Return the rows of each micro-batch."""
    count = len(list(folder.glob("batch-*.json")))
    return [
        [tuple(row) for row in json.loads((folder / f"batch-{number}.json").read_text())]
        for number in range(count)
    ]


def values(found: list[Rows]) -> list[str]:
    """Return the values in their order."""
    return [value for rows in found for _, _, value in rows]


def wait_until(true: Callable[[], Any], what: str, seconds: float = 90.0) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.05)

"""Tasks whose input is cut: by an error behind the placing or before it, by the end of their job. What is stored then, and after a second run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from bounded import Beside, until
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from spark_messages import SCHEMA
from super_streams import declare_super_stream

import spark_connector
from rabbit_chx import StreamReader, SuperStream
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.rows import ROW_BITS
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher, place_for_streams, publish
from spark_connector.writing.stream_layout import StreamLayout

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.timeout(300),
]

STREAMS = ("cut-0", "cut-1")
PLACING = SuperStream(STREAMS)
#: Rows in all, of which each stream has nearly a half, and those after which a task is held. A task of a batch publishes 32,768 rows or more
#: when it has as many again: 80,000 with each size of Arrow's batches. Buffers hold some batches back, in PySpark 3.5 one at each stage.
OF_BATCHES, OF_QUERIES = (260_000, 122_000), (60_000, 25_000)
HELD_S = 120.0
#: Rows of a sub-entry, compression, what is verified, and rows of a batch of Arrow.
FORMS = {
    "single": ("", "none", "tail", 10_000),
    "2": ("2", "none", "tail", 997),
    "7": ("7", "lz4", "tail", 10_000),
    "50": ("50", "gzip", "full", 500),
    "199": ("199", "none", "tail", 4_000),
    "300": ("300", "zstd", "tail", 3_001),
}
FAULTS = ("error behind the placing", "error before the placing", "job ended")
WAYS = {
    "publish": [],
    "foreachBatch": [],
    "format": [pytest.mark.pyspark("4.0", "format('rabbitmq')")],
    "query": [pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")],
}
#: Those of `make test`.
CORE = {
    ("publish", "error behind the placing", "7"),
    ("query", "error behind the placing", "single"),
}


class Case(NamedTuple):
    """A way to write, what cuts the input, and how the rows are sent."""

    way: str
    fault: str
    form: str

    @property
    def param(self) -> Any:
        """It for a test."""
        marks = [*WAYS[self.way], *([] if self in CORE else [pytest.mark.slow])]
        return pytest.param(self, marks=marks, id="-".join(self).replace(" ", "_"))


def gate(folder: Path, cut_at: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what holds all tasks in the middle of their rows until a file is there. By another file one of them raises meanwhile."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # pickled by value
        task: Any = TaskContext.get()
        partition, seen, end = task.partitionId(), 0, time.monotonic() + HELD_S
        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                part = batch.slice(start, 500)
                seen += part.num_rows
                while seen > cut_at and time.monotonic() < end and not (folder / "released").exists():
                    (folder / f"held-{partition}").touch()
                    if partition and (folder / "raises").exists():
                        raise RuntimeError("an error of a user")
                    time.sleep(0.05)
                yield part

    return pass_on


class Writes:
    """Runs of one write."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, case: Case) -> None:
        rows, compression, verify, batch_rows = FORMS[case.form]
        self._spark, self._folder, self._way, self._fault = spark, folder, case.way, case.fault
        self._options = {"url": url, "superStream": "cut", "delivery": "exactly-once", "appId": "load"}
        self._options |= {"verify": verify, "subEntryRows": rows, "compression": compression}
        self.batch_rows = batch_rows
        self._source = folder / "in"
        self.rows, self.cut_at = OF_BATCHES if self.is_batch else OF_QUERIES
        spark.range(0, self.rows, 1, 2).selectExpr(
            "concat('key ', id % 977) AS key", "concat(id, repeat('.', 20)) AS value"
        ).write.parquet(str(self._source))

    def _placed(self, rows: DataFrame) -> DataFrame:
        step, is_before = gate(self._folder, self.cut_at), "before" in self._fault
        if is_before:
            rows = rows.mapInArrow(step, rows.schema)
        placed = place_for_streams(rows, PLACING)
        return placed if is_before else placed.mapInArrow(step, placed.schema)

    def run(self) -> None:
        """Run the write to its end."""
        if self.is_batch:
            placed = self._placed(self._spark.read.parquet(str(self._source)))
            options = {**self._options, "version": "1"}
            if self._way == "publish":
                assert publish(placed, options).confirmed == self.rows
            else:
                placed.write.format("rabbitmq").options(**options).mode("append").save()
            return
        stream = self._spark.readStream.schema("key string, value string")
        placed = self._placed(stream.parquet(str(self._source)))
        if self._way == "query":
            writer = placed.writeStream.format("rabbitmq").options(**self._options)
        else:
            writer = placed.writeStream.foreachBatch(batch_publisher(self._options))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def meet_fault(self) -> None:
        """Run the write until the fault has ended it."""
        beside = Beside(self._cause)
        beside.start()
        with suppress(Exception):  # of Spark, another one for each way; a query that was stopped has none
            self.run()
        (self._folder / "released").touch()
        beside.finish()

    def _cause(self) -> None:
        held = [self._folder / f"held-{partition}" for partition in (0, 1)]
        until(
            lambda: all(path.exists() for path in held), "the tasks are in the middle of their rows", HELD_S
        )
        if self.sends_before_the_end:
            until(lambda: any(self.stored), "full pieces are stored", HELD_S)
        if self._fault != "job ended":
            (self._folder / "raises").touch()
            return
        self._spark.sparkContext.cancelAllJobs()
        for query in self._spark.streams.active:
            query.stop()

    @property
    def sends_before_the_end(self) -> bool:
        """Whether tasks send rows before they have all of them."""
        return self.is_batch and "before" not in self._fault

    @property
    def is_batch(self) -> bool:
        """Whether the write is that of a batch, whose rows Spark has sorted."""
        return self._way in ("publish", "format")

    @property
    def stored(self) -> list[int]:
        """How many rows the streams have."""
        name = StreamLayout.of(PLACING, SCHEMA).name("load")
        with closing(StreamConnection(stream_settings(self._options["url"]))) as connection:
            return [connection.publisher_sequence(name, stream) % (1 << ROW_BITS) for stream in STREAMS]


def rows_found(url: str) -> Counter[tuple[str, bytes]]:
    found: Counter[tuple[str, bytes]] = Counter()
    for stream in STREAMS:
        with StreamReader(url, stream) as reader:
            for batch in reader:
                values: list[Any] = batch["value"].to_pylist()
                found.update((stream, value) for value in values)
    return found


@pytest.mark.parametrize("case", [Case(*each).param for each in product(WAYS, FAULTS, FORMS)])
def test_a_cut_input_stores_each_row_once_when_the_write_is_run_again(
    spark: SparkSession,
    vhost: RunningBroker,
    configure: Callable[[str, str], None],
    tmp_path: Path,
    case: Case,
) -> None:
    if case.way in ("format", "query"):
        spark_connector.register(spark)
    declare_super_stream(vhost.url, "cut", dict(zip("01", STREAMS, strict=True)))
    writes = Writes(spark, vhost.stream_url, tmp_path, case)
    configure("spark.sql.execution.arrow.maxRecordsPerBatch", str(writes.batch_rows))
    writes.meet_fault()
    sub_entry = int(FORMS[case.form][0] or 1)
    assert all(rows % sub_entry == 0 and rows <= writes.cut_at for rows in writes.stored), (
        "a cut sub-entry is stored"
    )
    if not writes.sends_before_the_end:
        assert writes.stored == [0, 0], "rows are stored that were sorted without the others"
    writes.run()
    found = rows_found(vhost.stream_url)
    assert len(found) == writes.rows
    assert set(found.values()) == {1}

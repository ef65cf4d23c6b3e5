"""A task: its properties from Spark, whether its input was cut, and the marks of tasks that have begun."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from struct import pack
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

from rabbit_chx.connection.failures import call_in_thread
from rabbit_chx.errors import RabbitChxError
from spark_connector.executor_functions import OnExecutor, scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# -- The input of a task, and whether its end is the end of the rows
# A task whose JVM side ends early (an error before the write, a killed executor, an aborted job) closes the input of its Python worker, and
# PySpark's workers take the end of the file for the end of the rows. Behind all rows the JVM writes a signal, which a worker reads when its
# function has returned (pyspark/worker.py, `main`, PySpark 3.5 to 4.3). There is no public interface to it, so it is all in this module.

_SIGNAL = pack("!i", SpecialLengths.END_OF_STREAM)
#: Seconds to wait for the signal, which the JVM writes together with the last rows.
_WAIT_S = 60.0
_MARK = "_rabbit_chx_end"
#: Spark may have taken the first mark before the task was interrupted.
_MARKS = 2


def find_input() -> Any:  # a buffered file
    """Return the input of the worker that calls this; None if it is not where PySpark 3.5 to 4.3 have it."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # the only way to the callers
    while frame is not None:
        module = getattr(frame.f_globals.get("__spec__"), "name", "")  # its __name__ may be __main__
        if (module, frame.f_code.co_name) == ("pyspark.worker", "main"):
            file = frame.f_locals.get("infile")
            return file if hasattr(file, "peek") else None
        frame = frame.f_back
    return None


def whole(batches: Iterable[pa.RecordBatch], file: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an input; a RabbitChxError at their end if it was cut. Without a file the end is not looked at."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if file is not None and not _has_signal(file):
        raise _cut_error(rows)


def _has_signal(file: Any) -> bool:
    """Return whether an input, whose rows are read, goes on with the signal, which stays there.

    Any part of it is proof: behind a cut nothing follows.
    """
    looked = call_in_thread(
        lambda: file.peek(len(_SIGNAL)), "the input of a task"
    )  # whose waits have no bound
    with suppress(OSError):  # or a time-out
        seen = looked.result(_WAIT_S)[: len(_SIGNAL)]
        return bool(seen) and _SIGNAL.startswith(seen)
    return False


def _cut_error(rows: int) -> RabbitChxError:
    return RabbitChxError(
        f"the input of this task was cut after {rows:,} rows, by an error before the write or the end of the job: see the executor's log. "
        "What depends on later rows is not stored: run the write again"
    )


# -- PySpark 3.5, where an interrupted task ends its input as if it were whole (ContextAwareIterator.scala)


def mark_ends(df: DataFrame) -> DataFrame:
    """Return rows with marks behind those of each partition. Spark passes no row on once a task is interrupted, so the last mark is proof."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = [StructField(field.name, field.dataType) for field in df.schema.fields]  # null in a mark
    schema = StructType([*fields, StructField(_MARK, BooleanType())])
    return df.mapInArrow(OnExecutor(_add_marks, to_arrow_schema(schema)), schema)


def _add_marks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in whole(batches, find_input()):
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.bool_())], schema.names)
    for _ in range(_MARKS):
        nulls: list[Any] = [pa.array([None], kind) for kind in schema.types[:-1]]
        yield pa.RecordBatch.from_arrays([*nulls, pa.array([True])], schema.names)


def without_marks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `mark_ends`; a RabbitChxError at their end if a mark is missing."""
    rows = marks = 0
    for batch in batches:
        *columns, flags = batch.columns
        marks += len(flags) - flags.null_count
        rows += flags.null_count
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names[:-1]).slice(0, flags.null_count)
    if marks < _MARKS:
        raise _cut_error(rows)


# Local properties that Spark sets for the jobs of a micro-batch (MicroBatchExecution.scala and
# StreamExecution.scala). They are not a public API, so they may be missing.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark sets the whole configuration of a session as local properties of its jobs (SQLExecution.scala,
# withSQLConfPropagated). This is not a public API either. The id of the application is always among them.
_APPLICATION_ID = "spark.app.id"
_SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Task:
    """A task attempt.

    Attributes:
        attempt: 0 for the first attempt, and more for a repeat or a speculative copy.
        number: Spark's own number of the task attempt, unique in the application; None outside Spark.
        write_id: id of the write, or of the streaming query, which a restart keeps; empty if unknown.
        batch_id: number of the micro-batch; None outside a stream, or if unknown.
        app: id of the application, or ``-`` if unknown.
        speculation: whether ``spark.speculation`` is on; None if unknown.
    """

    stage: int = 0
    partition: int = 0
    attempt: int = 0
    number: int | None = None
    write_id: str = ""
    batch_id: int | None = None
    app: str = "-"
    speculation: bool | None = None

    @classmethod
    def current(cls, write_id: str | None = None, batch_id: int | None = None) -> Task:
        """Return the running task; without a `write_id` it is that of a stream, whose query Spark reports, and without a `batch_id` the batch.

        Spark reports neither to jobs that another thread starts, such as one of a pool in ``foreachBatch``.
        """
        context = TaskContext.get()
        if context is None:  # no Spark, so no copies either
            return cls(write_id=write_id or "", batch_id=batch_id, speculation=False)
        if write_id is None:
            batch = context.getLocalProperty(_BATCH_ID)
            # One without the other does not identify a message.
            write_id = (context.getLocalProperty(_QUERY_ID) or "") if batch else ""
            if batch_id is None and batch:
                batch_id = int(batch)
        app = context.getLocalProperty(_APPLICATION_ID)
        speculation = context.getLocalProperty(_SPECULATION) or ("false" if app else None)
        return cls(
            context.stageId(),
            context.partitionId(),
            context.attemptNumber(),
            context.taskAttemptId(),
            write_id,
            batch_id,
            app or "-",
            None if speculation is None else speculation.lower() == "true",
        )

    def fill(self, pattern: str) -> str:
        """Return the connection name of a pattern such as ``spark:{app}:{stage}.{partition}``."""
        return pattern.format(write=self.write_id, batch=self.batch_id or 0, **asdict(self))


def query_of(spark: SparkSession) -> str | None:
    """Return the id of the streaming query whose micro-batch the calling thread of the driver writes; None if Spark does not report it."""
    try:
        return spark.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # noqa: BLE001  # Connect raises its own error, which differs by version
        return None


@contextmanager
def mark_running(task: Task) -> Iterator[bool]:
    """Mark the task as running. The mark stays if the task fails or is killed.

    Yield whether an earlier task left a mark for this partition of this write. Rows of the partition may then be in the queues, even in
    attempt 0: Spark counts attempts from 0 again when it runs a stage again.
    """
    folder = scratch_folder()
    name = f"begun-{task.write_id}-{task.batch_id or 0}-{task.partition}"
    mark = None if folder is None else folder / f"{name}.{task.number}"
    earlier = False
    with suppress(OSError):
        if folder is not None and mark is not None:
            folder.mkdir(exist_ok=True)
            earlier = any(path != mark for path in folder.glob(f"{name}.*"))
            mark.touch()
    yield earlier
    with suppress(OSError):
        if mark is not None:
            mark.unlink(missing_ok=True)

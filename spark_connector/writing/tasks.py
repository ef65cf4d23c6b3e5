"""A task: its properties from Spark, and the counter of its rows."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from struct import pack
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext, __version__
from pyspark.serializers import SpecialLengths

from rabbit_chx.connection.failures import call_in_thread
from rabbit_chx.errors import InputError, PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.publishing.publish_report import NACK
from spark_connector.executor_functions import OnExecutor, scratch_folder, strip_traceback, with_report
from spark_connector.options.write_options import WriteOptions, check_speculation
from spark_connector.reports import MAX_SAMPLES, RowSample, TaskReport
from spark_connector.writing.messages import MessageIds, Messages, build_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_connector.writing.preflight import WritePlan

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


_log = logging.getLogger(__name__)

#: Seconds between two lines of a long task in the log.
_PROGRESS_S = 30.0
_BEGUN_BEFORE = (
    "Spark ran a stage of this write again, or a batch: earlier tasks did not finish, though attempts are counted "
    "from 0 again; their rows may be in the queues twice"
)
_UNSEEN_END = "this PySpark does not show whether the rows of a task were all of them: that Spark failed no task is the only proof"

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


class TaskCounter:
    """Reads and counts the rows of one task, for both writers; `skipped` ones are read and not published."""

    def __init__(self, plan: WritePlan, task: Task) -> None:
        self.rows = 0
        self.skipped = 0
        self.notes: tuple[str, ...] = ()
        #: The bytes of key, value and twice the filter value that a row may have; None for AMQP.
        self.most_row_bytes: int | None = None
        self._plan = plan
        self._options = plan.options
        self._kind = "queue" if plan.options.queue else "exchange"
        self._task = task
        self._samples: list[RowSample] = []
        self._next_line_at = time.monotonic() + _PROGRESS_S
        #: Returns the counts so far, for an error that has none.
        self.published: Callable[[], PublishReport] = PublishReport

    def run(
        self,
        publish: Callable[[Iterable[pa.RecordBatch]], TaskReport],
        batches: Iterable[pa.RecordBatch],
        *,
        repeats_matter: bool = True,
    ) -> TaskReport:
        """Call `publish` with the rows, and return its report. Its errors contain the partition and the counts, and have no traceback.

        `repeats_matter` if copies and repeats of the task publish rows twice.
        """
        where = f"partition {self._task.partition}"
        try:
            with mark_running(self._task) as begun_before:
                if repeats_matter:
                    self._note_repeats(begun_before=begun_before)
                return publish(whole(batches, self._find_input()))
        except PublishError as cause:
            where += _find_refusing_queue(cause.report, self._options)
            error: RabbitChxError = PublishError(f"{where}: {cause}", cause.report)
            report: PublishReport = cause.report
        except Exception as cause:  # noqa: BLE001  # it is raised below
            bare = strip_traceback(cause)
            error = type(bare)(f"{where}: {bare}")
            report = self.published()
        raise with_report(error, report)  # from here, so that Spark shows one line and not the traceback

    def _find_input(self) -> Any:
        """Return the input whose end is looked at; None without Spark.

        Raises:
            InputError: delivery is exactly-once, and this PySpark does not show whether an input was cut.
        """
        file = find_input()
        if file is None and TaskContext.get() is not None:
            if self._options.exactly_once:
                raise InputError(
                    f"delivery is exactly-once, and this PySpark ({__version__}) does not show whether the rows of a task are all of them: "
                    "use one of the versions of docs/reference/support.md as it was released, or at-least-once"
                )
            self.notes += (_UNSEEN_END,)
        return file

    def _note_repeats(self, *, begun_before: bool) -> None:
        task = self._task
        self.notes = check_speculation(self._options, speculation=task.speculation)
        if task.attempt:
            _log.warning(
                "%s %r, partition %d: attempt %d publishes all rows again; any of them may be in the queues already",
                self._kind,
                self._options.target,
                task.partition,
                task.attempt,
                extra={"exchange": self._options.target},
            )
        elif begun_before:
            self.notes += (_BEGUN_BEFORE,)

    def messages(
        self, batches: Iterable[pa.RecordBatch], ids: MessageIds | None = None
    ) -> Iterator[Messages]:
        """Yield the good rows of each batch as messages; `ids` computes their message ids."""
        for batch in batches:
            messages = build_messages(
                batch,
                self._plan.columns,
                self._options,
                partition=self._task.partition,
                first_row=self.rows,
                ids=ids,
                samples=MAX_SAMPLES - len(self._samples),
                most_row_bytes=self.most_row_bytes,
            )
            self.rows += batch.num_rows
            self.skipped += messages.skipped
            self._samples += messages.samples
            if len(messages):
                yield messages

    def on_progress(self, report: PublishReport) -> None:
        """Log the progress now and then."""
        if time.monotonic() >= self._next_line_at:
            self.log("so far", report)
            self._next_line_at = time.monotonic() + _PROGRESS_S

    def log(self, when: str, report: PublishReport) -> None:
        """Log the progress."""
        task = self._task
        rate = report.confirmed / report.seconds if report.seconds else 0.0
        counts = {
            "skipped": self.skipped,
            "returned": report.returned,
            "republished": report.republished,
            "reconnects": report.reconnects,
            "s blocked": round(report.blocked_seconds),
        }
        rare = "".join(f", {count:,} {name}" for name, count in counts.items() if count)
        line = (
            f"{self._kind} {self._options.target!r}, partition {task.partition}, attempt {task.attempt}, {when}: "
            f"{report.confirmed:,} of {self.rows:,} rows confirmed, {rate:,.0f} rows/s{rare}"
        )
        if _log.hasHandlers() and _log.isEnabledFor(logging.INFO):
            _log.info("%s", line)
        elif report.seconds >= _PROGRESS_S:
            # Nobody has configured logging in Spark's worker: the stderr of the executor, which the UI links, is all there is.
            sys.stderr.write(f"{line}\n")

    def report(self, report: PublishReport, samples: Sequence[RowSample] = (), **more: Any) -> TaskReport:
        """Return the report of the task, with further fields; `samples` are rows that were returned."""
        task = self._task
        return TaskReport(
            task.partition,
            task.attempt,
            task.write_id,
            task.batch_id if self._plan.streaming else None,
            rows=self.rows,
            skipped=self.skipped,
            publish_report=replace(report, samples=()),  # those show keys
            samples=(*self._samples, *samples)[:MAX_SAMPLES],
            task_id=task.number,
            notes=self.notes,
            **more,
        )


def _find_refusing_queue(report: PublishReport, options: WriteOptions) -> str:
    """Return the name of the queue that refuses, by the ring: the broker does not report it."""
    refused = next((sample for sample in report.samples if sample.code == NACK), None)
    if refused is None or options.ring is None:
        return ""
    # The client's own routing has made the queue's name the routing key.
    queue = refused.key if options.client_routing else options.ring.destination_for(refused.key)
    return f" (queue {queue!r} by the ring)"

"""Publish a DataFrame from the caller's process and return a report; works on PySpark 3.5 as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import __version__
from pyspark.accumulators import AddingAccumulatorParam

from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.publishing import PublishReport
from spark_connector.executor_functions import (
    for_each_partition,
    parse_task_error,
    speculation_of,
    with_report,
)
from spark_connector.options.write_options import WriteOptions, to_texts
from spark_connector.placing.rings import GivenRing, WatchedRing
from spark_connector.reports import FinishedTask, WriteReport, total_report
from spark_connector.writing.commit import abort_write, commit_write
from spark_connector.writing.preflight import PreflightCache, WritePlan, plan_write
from spark_connector.writing.task_writer import run_task
from spark_connector.writing.tasks import mark_ends, query_of, without_marks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


def publish(df: DataFrame, options: Mapping[str, object], ring: GivenRing | None = None) -> WriteReport:
    """Publish every row, wait for the confirms, and return the report.

    Options, columns and broker are checked before anything of `df` is computed. The frame is computed once. Delivery is at least once, as
    with ``format("rabbitmq")``: a failed write may leave any part of the rows in the queues.

    Args:
        df: the rows; docs/reference/spark-options.md lists the columns.
        options: the options of docs/reference/spark-options.md by name; a number or a boolean needs no quotes.
        ring: the ring of the exchange, the table of its slots, or an ``x-modulus-hash`` exchange, or the JSON of one of them, instead of the
            option `ring`; the report then counts rows by predicted queue. A function that reads it (``lambda: broker.ring("orders")``, or
            ``broker.slots``; for ``x-modulus-hash`` ``broker.exchange``) is called before the write and after it: a note reports keys that have
            changed queue. With ``routing=client`` it is called after every write, and a ring that differs is an error.

    Raises:
        InputError: an option or a column is not valid, or AMQP cannot carry a row (`RowError`).
        BrokerRefusedError: the broker refuses the user, or the exchange has another type.
        UnreachableError: no address answers.
        PublishError: not every row was confirmed, or the ring by which rows were routed has changed.

    Each error after the first task has started, also one of Spark, has a `report`: a `PublishReport` with the rows of the finished tasks and of
    the failed one (over Spark Connect of the failed one alone). Rows of other tasks may be in the queues.
    """
    if df.isStreaming:
        raise InputError(
            "publish takes a batch: for a stream, use writeStream.format('rabbitmq') or foreachBatch(batch_publisher(...))"
        )
    watched = WatchedRing(ring)
    plan = plan_write(
        to_texts(options, watched.ring),
        df.schema,
        speculation=speculation_of(df.sparkSession),
        ring=watched,
    )
    return _publish(df, plan, FinishedTasks.of(df.sparkSession), watched)


def batch_publisher(
    options: Mapping[str, object],
    ring: GivenRing | None = None,
    on_report: Callable[[WriteReport], object] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that publishes each micro-batch as `publish` does.

    After a restart Spark repeats the unfinished batch under the same number, and its rows are delivered again.

    Args:
        options: as for `publish`; `reportPath` must be a folder.
        ring: as for `publish`; a function is called once, and again after each batch. With ``routing=client`` it is called before and after each batch.
        on_report: called with the report of each batch, which has its `batch_id`. If it raises, the query fails and the batch is repeated.
            With Spark Connect it runs on the server, so it must be picklable.

    Raises:
        InputError: an option or the ring is not valid.

    Example::

        stream.writeStream.foreachBatch(batch_publisher(options, on_report=print)).start()
    """
    watched = WatchedRing(ring)
    # All options are checked before the query starts.
    in_client = WriteOptions.parse(to_texts(options, watched.ring)).client_routing
    cache = PreflightCache()
    finished: FinishedTasks | None = None

    def publish_batch(batch: DataFrame, batch_id: int) -> None:
        nonlocal finished
        if in_client and watched.can_be_read:
            watched.read_again()
        plan = plan_write(
            to_texts(options, watched.ring),
            batch.schema,
            streaming=True,
            speculation=speculation_of(batch.sparkSession),
            cache=cache,
            ring=watched,
        )
        finished = finished or FinishedTasks.of(batch.sparkSession)
        plan = replace(plan, batch_id=batch_id, write_id=query_of(batch.sparkSession))
        report = _publish(batch, plan, finished, watched, batch_id)
        if on_report is not None:
            on_report(report)

    return publish_batch


def _publish(
    df: DataFrame, plan: WritePlan, finished: FinishedTasks, ring: WatchedRing, batch_id: int | None = None
) -> WriteReport:
    task = publish_task
    # What depends on the end of the rows: the order in which a task sorts them, and the last sub-entry.
    if __version__ < "4" and plan.options.exactly_once and (plan.streaming or plan.options.sub_entry_rows):
        df = mark_ends(df)
        task = publish_marked_task
    try:
        tasks = for_each_partition(df, task, plan, finished)
    except Exception as cause:
        error = parse_task_error(cause)
        abort_write(plan, finished.tasks, batch_id=batch_id, cause=error)
        of_failed_task = getattr(error, "report", PublishReport())
        vars(error or cause)["report"] = of_failed_task + total_report(finished.tasks)
        if error is None:
            raise
    else:
        return commit_write(plan, tasks, batch_id, ring)
    finally:
        finished.clear()
    raise error  # from here: Spark's error is long and has no further information


def publish_task(plan: WritePlan, finished: FinishedTasks, batches: Iterator[pa.RecordBatch]) -> FinishedTask:
    """Publish one partition. Runs in Python workers. `finished` receives what is returned as well, in case the job fails later."""
    rows = 0

    def count_rows() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    task = run_task(plan, count_rows())
    counts = task.publish_report
    accounted = task.skipped + counts.confirmed + counts.returned + counts.unknown
    if not rows == task.rows == accounted:
        error = RabbitChxError(
            f"partition {task.partition}: Spark gave {rows:,} rows, and the report has {task.rows:,}, of which "
            f"{counts.confirmed:,} confirmed, {counts.returned:,} returned, {counts.unknown:,} unknown, {task.skipped:,} skipped"
        )
        raise with_report(error, counts)
    finished.add(task)
    return task


def publish_marked_task(
    plan: WritePlan, finished: FinishedTasks, batches: Iterator[pa.RecordBatch]
) -> FinishedTask:
    """Publish one partition of `mark_ends`."""
    return publish_task(plan, finished, without_marks(batches))


class FinishedTasks:
    """The finished tasks of a job: tasks add themselves, and the driver reads them; empty with Spark Connect, which has no accumulators."""

    def __init__(self, accumulator: Accumulator[list[Any]] | None) -> None:
        self._accumulator = accumulator

    @classmethod
    def of(cls, spark: SparkSession) -> FinishedTasks:
        """Return one for consecutive jobs of a session."""
        try:
            context = spark.sparkContext
        except Exception:  # noqa: BLE001  # Connect raises its own error, which differs by version
            return cls(None)
        return cls(context.accumulator([], AddingAccumulatorParam([])))

    def clear(self) -> None:
        """Remove all tasks: PySpark keeps each accumulator until its process ends. Runs on the driver."""
        if self._accumulator is not None:
            self._accumulator.value = []

    def add(self, task: FinishedTask) -> None:
        """Add the current task. Spark delivers it when the task ends, and drops it if the task fails."""
        if self._accumulator is not None:
            self._accumulator.add([task])

    @property
    def tasks(self) -> tuple[FinishedTask, ...]:
        """The latest task of each partition."""
        if self._accumulator is None:
            return ()
        by_partition = {task.partition: task for task in self._accumulator.value}
        return tuple(by_partition.values())

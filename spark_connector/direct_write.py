"""Publish a DataFrame and return a report: as the format does, but in the caller's process and on PySpark 3.5, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, PublishError, RabbitChxError
from spark_connector.executor_functions import for_each_partition
from spark_connector.options.python_options import texts
from spark_connector.placing.watched_ring import WatchedRing
from spark_connector.reports.task_reports import TaskReports
from spark_connector.task_errors import raised_in_task, with_finished
from spark_connector.writing.broker_look import Look
from spark_connector.writing.write_plan import WritePlan, speculation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from spark_connector.placing.watched_ring import GivenRing
    from spark_connector.reports.write_report import TaskReport, WriteReport

__all__ = ["batch_publisher", "publish"]


def publish(df: DataFrame, options: Mapping[str, object], ring: GivenRing | None = None) -> WriteReport:
    """Publish every row, confirmed, and say what became of them.

    Options, columns and broker are checked before the first task starts, and nothing of `df` is computed if they are
    wrong. The frame is computed once. Delivery is at least once, as with ``format("rabbitmq")``: a failure may leave
    any part of the rows in the queues.

    Args:
        df: the rows; columns as in docs/spark.md.
        options: as in docs/spark.md; numbers and booleans may stand as such.
        ring: the ring of the exchange, or its JSON, instead of the option `ring`: counts rows by predicted queue. A
            function that reads it (``lambda: broker.ring("orders")``) is called before the write, and once more after
            it where connections were lost: the report says whether the ring is still the same.

    Raises:
        InputError: an option, a column, or a row that AMQP cannot carry.
        BrokerRefusedError: the broker refuses the user, or the exchange is not what it should be.
        UnreachableError: nobody answers.
        PublishError: not every row was confirmed. Its report has the rows of the tasks that finished and of the one
            that failed (over Spark Connect those of the failed one alone); rows of other tasks may be in the queues.
    """
    if df.isStreaming:
        raise InputError(
            "publish takes a batch: for a stream, use writeStream.format('rabbitmq') or foreachBatch(batch_publisher(...))"
        )
    watched = WatchedRing(ring)
    plan = WritePlan.checked(
        texts(options, watched.ring), df.schema, overwrite=False, speculation=speculation_of(df.sparkSession)
    )
    return _publish(df, plan, TaskReports.of(df.sparkSession), watched)


def batch_publisher(
    options: Mapping[str, object],
    ring: GivenRing | None = None,
    on_report: Callable[[WriteReport], object] | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that publishes each micro-batch as `publish` does.

    After a restart Spark repeats the batch that was not finished, with the same id: its rows are delivered again.

    Args:
        options: as for `publish`; a `reportPath` has to be a folder.
        ring: likewise; a function is called once, and after each batch in which connections were lost.
        on_report: called with the report of each batch; `batch_id` is in it. Where it raises, the query fails and
            the batch is repeated. With Spark Connect it runs on the server, and has to be picklable.

    Raises:
        InputError: an option.

    Example::

        stream.writeStream.foreachBatch(batch_publisher(options, on_report=print)).start()
    """
    from spark_connector.options.write_options import WriteOptions

    watched = WatchedRing(ring)
    WriteOptions.parse(texts(options, watched.ring))  # before the query starts
    look = Look()
    finished: TaskReports | None = None

    def publish_batch(batch: DataFrame, batch_id: int) -> None:
        nonlocal finished
        plan = WritePlan.checked(
            texts(options, watched.ring),
            batch.schema,
            overwrite=False,
            streaming=True,
            speculation=speculation_of(batch.sparkSession),
            look=look,
        )
        finished = finished or TaskReports.of(batch.sparkSession)
        report = _publish(batch, plan, finished, watched, batch_id)
        if on_report is not None:
            on_report(report)

    return publish_batch


def _publish(
    df: DataFrame, plan: WritePlan, finished: TaskReports, ring: WatchedRing, batch_id: int | None = None
) -> WriteReport:
    try:
        tasks = for_each_partition(df, publish_partition, plan, finished)
    except Exception as cause:
        error = raised_in_task(cause)
        plan.abort(finished.reports, batch_id=batch_id, cause=error)
        if error is None:
            raise
        if isinstance(error, PublishError):
            error.report = with_finished(error.report, finished.reports)
    else:
        return plan.commit(tasks, batch_id, ring)
    finally:
        finished.clear()
    raise error  # from here: what Spark wraps around it is long and says nothing more


def publish_partition(
    plan: WritePlan, finished: TaskReports, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Publish one partition. Runs in Python workers.

    Raises:
        RabbitChxError: as `write_partition`, or rows are missing in its report.
    """
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    report = plan.write(counted())
    if not rows == report.rows == report.skipped + report.confirmed + report.returned:
        raise RabbitChxError(
            f"partition {report.partition}: Spark gave {rows:,} rows, and the report has {report.rows:,}, of which "
            f"{report.confirmed:,} confirmed, {report.returned:,} returned, {report.skipped:,} skipped"
        )
    finished.add(report)
    return report

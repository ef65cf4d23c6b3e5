"""The writers that Spark calls: in each task, and to commit or abort. Needs PySpark 4.0 or newer.

Spark pickles them for the executors, as code: the error of an executor without this package then contains the remedy.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rabbit_chx.errors import InputError, PublishError, RabbitChxError
from spark_connector.executor_functions import reduce_as_code, with_report, without_traceback
from spark_connector.reports import total_report
from spark_connector.writing.commit import abort_write, commit_write
from spark_connector.writing.preflight import WritePlan, plan_write
from spark_connector.writing.task_writer import run_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from spark_connector.reports import FinishedTask
else:  # since PySpark 4.1
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)


class _TaskDone(WriterCommitMessage):
    """The commit message of a task: what became of its rows, and the start, notes and ring, which the new plan of a micro-batch's commit lacks."""

    def __init__(self, task: FinishedTask, plan: WritePlan) -> None:
        self.task = task
        self.started = plan.started
        self.notes = plan.notes
        self.ring = plan.options.ring if plan.ring_reader else None  # else the options have it


class _SparkWriter:
    """`write` runs in the tasks, `commit` or `abort` on the driver's machine."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _TaskDone(run_task(self._plan, iterator), self._plan)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803  # Spark's name
    ) -> None:
        """Write the report when every task is done.

        Raises:
            PublishError: a task has no report, as with ``trigger(continuous=...)``.
        """
        plan, done = self._plan_of(messages)
        if not done or len(done) < len(messages):
            raise _incomplete(plan, done, len(messages), batchId)
        commit_write(plan, done, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803
    ) -> None:
        """Write the report when a task failed permanently (its message is None). Messages in the queues stay there."""
        plan, done = self._plan_of(messages)
        if (plan.options.client_routing or plan.options.exactly_once) and len(done) == len(messages):
            return  # the commit has failed, and has saved the report with the cause
        abort_write(plan, done, len(messages), batch_id=batchId)

    def _plan_of(self, messages: list[WriterCommitMessage | None]) -> tuple[WritePlan, list[FinishedTask]]:
        """Return the plan and the tasks that are done. The first task tells the ring that it read, its start and its notes:
        Spark makes the plan again to commit a micro-batch, without reading a broker.
        """
        done = [message for message in messages if isinstance(message, _TaskDone)]
        plan = self._plan
        if done:
            first = done[0]
            options = replace(plan.options, ring=first.ring or plan.options.ring)
            plan = replace(plan, options=options, started=first.started, notes=first.notes)
        return plan, [message.task for message in done]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return reduce_as_code(type(self), self._plan)


def _incomplete(
    plan: WritePlan, done: list[FinishedTask], tasks: int, batch_id: int | None
) -> RabbitChxError:
    """Return the error for a commit in which a task has no report: nothing proves that its rows are published."""
    what = "this write" if batch_id is None else f"batch {batch_id}"
    remedy = "look for the error of a task in the log of the executors"
    if plan.streaming:
        remedy = (
            "Spark does not call the writer of a Python data source with trigger(continuous=...): use trigger(processingTime=...) or "
            f"trigger(availableNow=True); else {remedy}"
        )
    report = total_report(done)
    error = PublishError(
        f"{len(done)} of {tasks} tasks of {what} have reported, so their rows may be missing in {plan.options.target!r}, and {what} is not "
        f"committed: {remedy}",
        report,
        exchange=plan.options.target,
    )
    return with_report(error, report)


class BatchWriter(_SparkWriter, DataSourceArrowWriter):  # type: ignore[misc]  # Spark's own `write` takes rows
    """Writes the partitions of one DataFrame."""


class MicroBatchWriter(_SparkWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the partitions of a micro-batch. Needs PySpark 4.1."""


#: In this module Spark creates the writer of a stream once more, to commit or abort a batch. The same arguments arrive as in the planner,
#: and nothing else in PySpark's interface tells the two apart.
_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"


@without_traceback
def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, speculation: bool | None
) -> BatchWriter:
    """Check a write, and return its writer."""
    return BatchWriter(plan_write(options, schema, overwrite=overwrite, speculation=speculation))


@without_traceback
def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, speculation: bool | None
) -> MicroBatchWriter:
    """Check the write of a micro-batch, and return its writer. Where a batch is committed, nothing is checked: its rows are published.

    Raises:
        InputError: this PySpark does not pass the rows of a micro-batch as Arrow batches.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise InputError(
            "writeStream.format('rabbitmq') needs PySpark 4.1 or newer, which passes Arrow batches to a sink: upgrade, or use "
            "writeStream.foreachBatch(spark_connector.batch_publisher(options))"
        )
    if _COMMITTING in sys.modules:
        return MicroBatchWriter(WritePlan.parse(options, schema, streaming=True))
    return MicroBatchWriter(
        plan_write(options, schema, overwrite=overwrite, streaming=True, speculation=speculation)
    )

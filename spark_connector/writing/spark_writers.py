"""The writers that Spark calls: in each task, and to commit or abort. Needs PySpark 4.0 or newer.

Spark pickles a writer for the executors. Our writers are pickled as code: an executor without our packages
then names what it lacks, instead of failing on a module name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from spark_connector.executor_functions import pickled_as_code
from spark_connector.writing.task import Task
from spark_connector.writing.task_writer import TaskWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    from spark_connector.reports.task_report import TaskReport
    from spark_connector.writing.write_plan import WritePlan
else:  # since PySpark 4.1
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)


class _TaskDone(WriterCommitMessage):
    """What a task tells the driver: its report, and what the planner knew.

    Spark commits a micro-batch with a plan that it makes again, which does not know the start, the notes and the ring.
    """

    def __init__(self, report: TaskReport, plan: WritePlan) -> None:
        self.report = report
        self.started = plan.started
        self.notes = plan.notes
        self.ring = plan.options.ring if plan.options.ring_via else None  # else the options have it


class _SparkWriter:
    """What all writers have in common."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def _write(self, batches: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
        task = Task.current(self._plan.write_id)
        return _TaskDone(TaskWriter(self._plan, task).write(batches), self._plan)

    def _commit(self, messages: list[WriterCommitMessage | None], batch_id: int | None = None) -> None:
        plan, done = self._planned(messages)
        plan.commit(done, batch_id)

    def _abort(self, messages: list[WriterCommitMessage | None], batch_id: int | None = None) -> None:
        plan, done = self._planned(messages)
        if plan.options.client_routing and len(done) == len(messages):
            return  # the commit has failed, and has saved the report that says why
        plan.abort(done, len(messages), batch_id)

    def _planned(self, messages: list[WriterCommitMessage | None]) -> tuple[WritePlan, list[TaskReport]]:
        done = [message for message in messages if isinstance(message, _TaskDone)]
        plan = self._plan
        if done:
            first = done[0]
            options = replace(plan.options, ring=first.ring or plan.options.ring)
            plan = replace(plan, options=options, started=first.started, notes=first.notes)
        return plan, [message.report for message in done]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return pickled_as_code(type(self), self._plan)


class BatchWriter(_SparkWriter, DataSourceArrowWriter):
    """Writes the partitions of one DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # Spark's own has it
        """Publish the rows of a partition. Spark calls this in the task."""
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the report. Spark calls this on the driver's machine once every task is done."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the report. Spark calls this on the driver's machine when a task failed for good.

        Messages that are in the queues stay there.
        """
        self._abort(messages)


class _StreamWriter(_SparkWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Write the report. Spark calls this on the driver's machine once every task of the batch is done."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the report. Spark calls this on the driver's machine when the batch failed.

        Messages that are in the queues stay there.
        """
        self._abort(messages, batchId)


class StreamArrowWriter(_StreamWriter, DataSourceStreamArrowWriter):
    """Writes the partitions of a micro-batch. Needs PySpark 4.1."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Publish the rows of a partition. Spark calls this in the task."""
        return self._write(iterator)


class StreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """Writes the partitions of a micro-batch on PySpark 4.0, which passes rows instead of Arrow batches."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Publish the rows of a partition. Spark calls this in the task."""
        from spark_connector.writing.row_batches import batches_of_rows

        return self._write(batches_of_rows(iterator, self._plan.schema))


def stream_writer(plan: WritePlan) -> DataSourceStreamWriter | StreamArrowWriter:
    """Return the writer of micro-batches that this PySpark supports: of Arrow batches, or else of rows."""
    return (
        StreamArrowWriter(plan)
        if hasattr(datasource, "DataSourceStreamArrowWriter")
        else StreamRowWriter(plan)
    )

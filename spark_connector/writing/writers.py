"""The writers that Spark calls in a task and where it commits. Needs PySpark 4.0 or newer.

Spark pickles a writer for the executors. Ours are pickled in such a way that a Python without our packages
says so in words, instead of failing on a module name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from spark_connector.executor_functions import pickled_as_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    from spark_connector.reports.write_report import TaskReport
    from spark_connector.writing.write_plan import WritePlan
else:  # since PySpark 4.1
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

__all__ = ["BatchWriter", "StreamArrowWriter", "StreamRowWriter", "stream_writer"]


class _TaskDone(WriterCommitMessage):
    """What a task tells the driver; with it what the planner knew, as Spark commits a stream with a plan made anew."""

    def __init__(self, report: TaskReport, plan: WritePlan) -> None:
        self.report = report
        self.started = plan.started
        self.notes = plan.notes


class _Writer:
    """What all of them have in common."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def _write(self, batches: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
        return _TaskDone(self._plan.write(batches), self._plan)

    def _commit(self, messages: list[WriterCommitMessage | None], batch_id: int | None = None) -> None:
        plan, done = self._planned(messages)
        plan.commit(done, batch_id)

    def _abort(self, messages: list[WriterCommitMessage | None], batch_id: int | None = None) -> None:
        plan, done = self._planned(messages)
        plan.abort(done, len(messages), batch_id)

    def _planned(self, messages: list[WriterCommitMessage | None]) -> tuple[WritePlan, list[TaskReport]]:
        done = [message for message in messages if isinstance(message, _TaskDone)]
        plan = replace(self._plan, started=done[0].started, notes=done[0].notes) if done else self._plan
        return plan, [message.report for message in done]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return pickled_as_code(type(self), self._plan)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes the partitions of one DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # Spark's own has it
        """Run in the task."""
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Run on the driver's machine once every task is done."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Run on the driver's machine when a task failed for good. Nothing can be taken back."""
        self._abort(messages)


class _StreamWriter(_Writer):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Run on the driver's machine once every task of the batch is done."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Run on the driver's machine when the batch failed. Nothing can be taken back."""
        self._abort(messages, batchId)


class StreamArrowWriter(_StreamWriter, DataSourceStreamArrowWriter):
    """Writes the partitions of a micro-batch. Needs PySpark 4.1."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Run in the task."""
        return self._write(iterator)


class StreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """The same for PySpark 4.0, which hands over rows."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Run in the task."""
        from spark_connector.writing.row_batches import batches_of_rows

        return self._write(batches_of_rows(iterator, self._plan.schema))


def stream_writer(plan: WritePlan) -> DataSourceStreamWriter | StreamArrowWriter:
    """The best that this PySpark knows."""
    return (
        StreamArrowWriter(plan)
        if hasattr(datasource, "DataSourceStreamArrowWriter")
        else StreamRowWriter(plan)
    )

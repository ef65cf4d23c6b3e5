"""A write that was checked and may begin: what its writers do, whatever Spark calls them."""

from __future__ import annotations

import logging
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports.notes import notes_on
from spark_connector.reports.report_file import check_report_path, save_report
from spark_connector.reports.write_report import TaskReport, WriteReport
from spark_connector.spark_errors import without_traceback
from spark_connector.writing.broker_look import Look
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.preflight import check_broker, check_secret_name, check_speculation
from spark_connector.writing.task_writer import write_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_connector.placing.watched_ring import WatchedRing

__all__ = ["WritePlan", "speculation_of"]

_log = logging.getLogger(__name__)

#: Spark makes the writer of a stream once more where it commits a batch, and the messages are out by then.
_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"


def speculation_of(spark: SparkSession) -> bool:
    """Whether ``spark.speculation`` is on, as the user's session knows it, classic or Connect."""
    conf: Any = spark.conf
    return bool(conf.get("spark.speculation", "false").lower() == "true")


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options and columns that fit each other, and a broker that was looked at.

    Attributes:
        columns: which column is what.
        options: how to write.
        schema: the columns as Spark has them.
        streaming: whether there is a write for each micro-batch.
        write_id: of the write; None in a stream, where the tasks are told the query.
        notes: for the report.
        started: when this was planned, in seconds since 1970.
    """

    columns: MessageColumns
    options: WriteOptions
    schema: StructType
    streaming: bool = False
    write_id: str | None = None
    notes: tuple[str, ...] = ()
    started: float = field(default_factory=time.time)

    @classmethod
    def checked(
        cls,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,
        streaming: bool = False,
        speculation: bool | None = None,
        look: Look | None = None,
    ) -> WritePlan:
        """Check everything that can be checked before the first task.

        Args:
            options: as given.
            schema: of the rows.
            overwrite: whether Spark wants to replace what is there.
            streaming: whether there is a write for each micro-batch.
            speculation: whether ``spark.speculation`` is on; None where only the tasks are told.
            look: at the broker, where the caller keeps that of a streaming query.

        Raises:
            InputError: an option or a column.
            BrokerRefusedError: the broker refuses the user, or the exchange is not what it should be.
            UnreachableError: nobody answers there.
        """
        # An error is raised from here, where no variable holds the options and their password.
        try:
            return cls._checked(
                options, schema, overwrite=overwrite, streaming=streaming, speculation=speculation, look=look
            )
        except Exception as cause:  # noqa: BLE001  # it is raised below
            error = without_traceback(cause, show_text=isinstance(cause, ImportError))
        del options
        raise error from None

    @classmethod
    def _checked(
        cls,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,
        streaming: bool,
        speculation: bool | None,
        look: Look | None,
    ) -> WritePlan:
        if overwrite:
            mode = "outputMode('complete')" if streaming else "mode('overwrite')"
            raise InputError(
                f"{mode}: messages in queues cannot be overwritten; use 'append', and purge the queues yourself "
                "if that is meant"
            )
        parsed = WriteOptions.parse(options)
        columns = MessageColumns.of(schema, parsed)
        notes: tuple[str, ...] = ()
        if not (streaming and _COMMITTING in sys.modules):
            check_report_path(parsed.report_path, streaming=streaming)
            if speculation is not None:
                notes = check_speculation(parsed, speculation=speculation)
            notes += check_secret_name(parsed)
            if streaming and look is None:
                look = Look.of_query(parsed, options)
            notes += check_broker(parsed, patient=streaming, look=look)
            for note in notes:
                _log.warning("%s", note)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, schema, streaming, write_id, notes)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish a partition; runs in the task."""
        return write_partition(batches, self.columns, self.options, write_id=self.write_id)

    def commit(
        self, tasks: Iterable[TaskReport], batch_id: int | None = None, ring: WatchedRing | None = None
    ) -> WriteReport:
        """Report; runs on the driver's machine once every task is done, and never raises: the messages are out.

        Args:
            tasks: their reports.
            batch_id: of the micro-batch.
            ring: that is read again where connections were lost.
        """
        done = tuple(tasks)
        lost = any(task.reconnects for task in done)
        ring_now = ring.look_again() if ring is not None and lost else None
        found = tuple(note for note in notes_on(done, self.options, ring_now) if note not in self.notes)
        for note in found:
            _log.warning("%s", note)
        report = self._report(done, batch_id, found)
        _log.info("%s", report)
        save_report(report, self.options.report_path, streaming=self.streaming)
        return report

    def abort(
        self,
        tasks: Iterable[TaskReport],
        expected: int | None = None,
        batch_id: int | None = None,
        cause: Exception | None = None,
    ) -> WriteReport:
        """Say what stays behind; runs on the driver's machine when a task failed for good, and never raises.

        Args:
            tasks: those that finished.
            expected: how many tasks there are; None where Spark does not say.
            batch_id: of the micro-batch.
            cause: why the write failed, if it is known.
        """
        done = tuple(tasks)
        unfinished = None if expected is None else expected - len(done)
        notes = () if cause is None else (f"the write failed: {cause}",)
        report = self._report(done, batch_id, notes, failed=True, unfinished=unfinished)
        _log.warning(
            "exchange %r: the write failed; %d rows of %d finished tasks are in the queues and stay there, "
            "and so may rows of %s others",
            self.options.exchange,
            report.confirmed,
            len(done),
            "the" if unfinished is None else f"the {unfinished}",
        )
        save_report(report, self.options.report_path, streaming=self.streaming)
        return report

    def _report(
        self,
        tasks: tuple[TaskReport, ...],
        batch_id: int | None,
        notes: tuple[str, ...],
        *,
        failed: bool = False,
        unfinished: int | None = 0,
    ) -> WriteReport:
        ring = self.options.ring
        return WriteReport.of(
            self.options.exchange,
            tasks,
            ring.provenance if ring else None,
            write_id=self.write_id or "",
            batch_id=batch_id,
            seconds=time.time() - self.started,
            notes=(*self.notes, *notes),
            failed=failed,
            unfinished=unfinished,
        )

"""A write that has been checked and may begin, and what happens when it ends."""

from __future__ import annotations

import logging
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports.notes import notes_on
from spark_connector.reports.report_file import check_report_path, save_report
from spark_connector.reports.write_report import WriteReport
from spark_connector.spark_errors import without_traceback
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.preflight import check_broker, check_secret_name
from spark_connector.writing.preflight_answer import PreflightAnswer
from spark_connector.writing.speculation import check_speculation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

    from spark_connector.placing.watched_ring import WatchedRing
    from spark_connector.reports.task_report import TaskReport

__all__ = ["WritePlan"]

_log = logging.getLogger(__name__)

#: In this module Spark makes the writer of a stream once more, to commit a batch. The messages are out by then.
_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options and columns that fit each other, and a broker that has been asked.

    Attributes:
        columns: the positions of the columns in a batch.
        options: how to write.
        schema: the columns as Spark describes them.
        streaming: whether each micro-batch of a stream is written with this plan.
        write_id: id of the write; None in a stream, where Spark tells each task the id of the query.
        notes: notes for the report.
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
        answer: PreflightAnswer | None = None,
    ) -> WritePlan:
        """Return a plan after everything is checked that can be checked before the first task.

        Args:
            options: the texts of the options by name.
            schema: the columns of the rows.
            overwrite: whether Spark is asked to replace existing data, which is refused.
            streaming: whether the write is that of a stream.
            speculation: whether ``spark.speculation`` is on; None if only the tasks know.
            answer: the remembered answer of the broker, if the caller keeps it for a streaming query.

        Raises:
            InputError: an option or a column cannot be used.
            BrokerRefusedError: the broker refuses the user, or the exchange has another type.
            UnreachableError: no address answers.
        """
        # Errors are raised here, where no local variable holds the options and their password.
        try:
            return cls._checked(
                options,
                schema,
                overwrite=overwrite,
                streaming=streaming,
                speculation=speculation,
                answer=answer,
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
        answer: PreflightAnswer | None,
    ) -> WritePlan:
        if overwrite:
            mode = "outputMode('complete')" if streaming else "mode('overwrite')"
            raise InputError(
                f"{mode}: messages in queues cannot be overwritten; use 'append', and purge the queues yourself "
                "if that is meant"
            )
        parsed = WriteOptions.parse(options)
        if streaming and parsed.write_name is not None:
            raise InputError(
                "option 'writeName' is for batch writes: the ids of a stream have the streaming query, which a restart keeps; "
                "leave the name out"
            )
        columns = MessageColumns.of(schema, parsed)
        notes: tuple[str, ...] = ()
        if not (streaming and _COMMITTING in sys.modules):
            check_report_path(parsed.report_path, streaming=streaming)
            if speculation is not None:
                notes = check_speculation(parsed, speculation=speculation)
            notes += check_secret_name(parsed)
            if streaming and answer is None:
                answer = PreflightAnswer.of_query(parsed, options)
            notes += check_broker(parsed, patient=streaming, answer=answer)
            for note in notes:
                _log.warning("%s", note)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, schema, streaming, write_id, notes)

    def commit(
        self, tasks: Iterable[TaskReport], batch_id: int | None = None, ring: WatchedRing | None = None
    ) -> WriteReport:
        """Return, log and save the report of a write whose tasks are all done.

        Runs on the driver's machine, and never raises: the messages are out.

        Args:
            tasks: the reports of the tasks.
            batch_id: number of the micro-batch; None outside a stream.
            ring: the ring to read again if connections were lost, or if it has slots and this is no stream.
        """
        done = tuple(tasks)
        lost = any(task.reconnects for task in done)
        ring_now = None
        if ring is not None and (lost or (batch_id is None and ring.may_change_unseen)):
            ring_now = ring.look_again(say_same=lost)  # not after each micro-batch: it may take a second
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
        """Return, log and save the report of a write that failed.

        Runs on the driver's machine when a task failed for good, and never raises. Messages that are in the
        queues stay there.

        Args:
            tasks: the reports of the tasks that finished.
            expected: number of tasks of the write; None if Spark does not say.
            batch_id: number of the micro-batch; None outside a stream.
            cause: why the write failed, if it is known.
        """
        done = tuple(tasks)
        unfinished = None if expected is None else expected - len(done)
        notes = () if cause is None else (f"the write failed: {cause}",)
        report = self._report(done, batch_id, notes, failed=True, unfinished=unfinished)
        _log.warning(
            "exchange %r: the write failed; %d rows of %d finished tasks are in the queues and stay there; "
            "rows of %s may be in the queues as well",
            self.options.exchange,
            report.confirmed,
            len(done),
            "the other tasks" if unfinished is None else f"{unfinished} other tasks",
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

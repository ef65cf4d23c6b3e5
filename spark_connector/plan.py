"""A write that was checked and may begin: what its writers do, whatever Spark calls them."""

from __future__ import annotations

import logging
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from spark_connector.options import WriteOptions
from spark_connector.preflight import check_broker, check_speculation
from spark_connector.report import TaskReport, WriteReport
from spark_connector.report_file import check_report_path, save_report
from spark_connector.schema import MessageColumns
from spark_connector.tracebacks import without_traceback
from spark_connector.writing import write_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Application", "WritePlan"]

_log = logging.getLogger(__name__)

#: Spark makes the writer of a stream once more where it commits a batch, and the messages are out by then.
_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"


@dataclass(frozen=True, slots=True)
class Application:
    """What `register` knows of Spark, and a planner process does not.

    Attributes:
        name: the application's id, for connection names.
        speculation: whether ``spark.speculation`` is on.
    """

    name: str = "-"
    speculation: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> Application:
        """Ask the user's session, classic or Connect."""
        conf: Any = spark.conf
        return cls(
            str(conf.get("spark.app.id", "-")),
            speculation=conf.get("spark.speculation", "false").lower() == "true",
        )


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options and columns that fit each other, and a broker that was looked at.

    Attributes:
        columns: which column is what.
        options: how to write.
        schema: the columns as Spark has them.
        streaming: whether there is a write for each micro-batch.
        write_id: of the write; None in a stream, where the tasks are told the query.
        application: who writes.
        notes: for the report.
        started: when this was planned, in seconds since 1970.
    """

    columns: MessageColumns
    options: WriteOptions
    schema: StructType
    streaming: bool = False
    write_id: str | None = None
    application: Application = Application()
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
        application: Application = Application(),
    ) -> WritePlan:
        """Check everything that can be checked before the first task.

        Raises:
            InputError: an option or a column.
            BrokerRefusedError: the broker refuses the user, or the exchange is not what it should be.
            UnreachableError: nobody answers there.
        """
        # An error is raised from here, where no variable holds the options and their password.
        try:
            return cls._checked(options, schema, overwrite, streaming, application)
        except Exception as cause:  # noqa: BLE001  # it is raised below
            error = without_traceback(cause, show_text=isinstance(cause, ImportError))
        del options
        raise error from None

    @classmethod
    def _checked(
        cls,
        options: Mapping[str, str],
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
        streaming: bool,  # noqa: FBT001
        application: Application,
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
            notes = check_speculation(parsed, speculation=application.speculation)
            notes += check_broker(parsed, patient=streaming)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, schema, streaming, write_id, application, notes)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish a partition; runs in the task."""
        return write_partition(
            batches, self.columns, self.options, write_id=self.write_id, app=self.application.name
        )

    def commit(self, tasks: Iterable[TaskReport], batch_id: int | None = None) -> WriteReport:
        """Report; runs on the driver's machine once every task is done, and never raises: the messages are out."""
        ring = self.options.ring
        report = WriteReport.of(
            self.options.exchange,
            tasks,
            ring.provenance if ring else None,
            write_id=self.write_id or "",
            batch_id=batch_id,
            seconds=time.time() - self.started,
            notes=self.notes,
        )
        _log.info("%s", report)
        save_report(report, self.options.report_path, streaming=self.streaming)
        return report

    def abort(self, tasks: Iterable[TaskReport], expected: int) -> None:
        """Say what stays behind; runs on the driver's machine when a task failed for good."""
        done = list(tasks)
        _log.warning(
            "exchange %r: the write failed; %d rows of %d finished tasks are in the queues and stay there, "
            "and so may rows of the %d others",
            self.options.exchange,
            sum(task.confirmed for task in done),
            len(done),
            expected - len(done),
        )

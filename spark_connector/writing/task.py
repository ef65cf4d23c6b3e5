"""Which task this is, and what Spark tells it of its application."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["Task"]

# Local properties that Spark sets for the jobs of a micro-batch (MicroBatchExecution.scala and StreamExecution.scala);
# no public API, so they may be missing.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark sets the whole configuration of a session as local properties of its jobs (SQLExecution.scala,
# withSQLConfPropagated); likewise. The id of the application is always among them.
_APPLICATION_ID = "spark.app.id"
_SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Task:
    """A task attempt.

    Attributes:
        stage: number of its stage.
        partition: number of its partition.
        attempt: 0, and more for a repeat or a speculative copy.
        number: Spark's own number of the task attempt, which no other one of the application has; None where there
            is no Spark.
        write_id: of the write; in a stream that of the query, which a restart keeps; empty where nobody says.
        batch_id: of the micro-batch; 0 where there is no stream.
        app: id of the application, or ``-`` where nobody says.
        speculation: whether ``spark.speculation`` is on; None where nobody says.
    """

    stage: int = 0
    partition: int = 0
    attempt: int = 0
    number: int | None = None
    write_id: str = ""
    batch_id: int = 0
    app: str = "-"
    speculation: bool | None = None

    @classmethod
    def current(cls, write_id: str | None = None, batch_id: int = 0) -> Task:
        """The task that runs this.

        Args:
            write_id: of the write; None in a stream, where Spark tells query and batch.
            batch_id: of the micro-batch, where `write_id` is given.
        """
        context = TaskContext.get()
        if context is None:  # no Spark, so no copies either
            return cls(write_id=write_id or "", batch_id=batch_id, speculation=False)
        if write_id is None:
            write_id = context.getLocalProperty(_QUERY_ID) or ""
            batch_id = int(context.getLocalProperty(_BATCH_ID) or 0)
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

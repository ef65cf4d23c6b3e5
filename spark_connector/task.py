"""Which task this is."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["Task"]

# Local properties that Spark sets for the jobs of a micro-batch (MicroBatchExecution.scala and StreamExecution.scala);
# no public API, so they may be missing.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Task:
    """A task attempt.

    Attributes:
        stage: number of its stage.
        partition: number of its partition.
        attempt: 0, and more for a repeat or a speculative copy.
        write_id: of the write; in a stream that of the query, which a restart keeps; empty where nobody says.
        batch_id: of the micro-batch; 0 where there is no stream.
    """

    stage: int = 0
    partition: int = 0
    attempt: int = 0
    write_id: str = ""
    batch_id: int = 0

    @classmethod
    def current(cls, write_id: str | None = None, batch_id: int = 0) -> Task:
        """The task that runs this.

        Args:
            write_id: of the write; None in a stream, where Spark tells query and batch.
            batch_id: of the micro-batch, where `write_id` is given.
        """
        context = TaskContext.get()
        if context is None:
            return cls(write_id=write_id or "", batch_id=batch_id)
        if write_id is None:
            write_id = context.getLocalProperty(_QUERY_ID) or ""
            batch_id = int(context.getLocalProperty(_BATCH_ID) or 0)
        return cls(context.stageId(), context.partitionId(), context.attemptNumber(), write_id, batch_id)

    @property
    def message_id_prefix(self) -> str:
        """What stands before the row's number in a message id that is made."""
        return f"{self.write_id}-{self.batch_id}-{self.partition}-"

"""The task that runs: what Spark tells it about its application, and the mark that it leaves while it runs.

Spark tells its Python processes the scratch folder of the application on this machine, and removes it when the
application ends. PySpark itself spills there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

# Local properties that Spark sets for the jobs of a micro-batch (MicroBatchExecution.scala and
# StreamExecution.scala). They are not a public API, so they may be missing.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark sets the whole configuration of a session as local properties of its jobs (SQLExecution.scala,
# withSQLConfPropagated). This is not a public API either. The id of the application is always among them.
_APPLICATION_ID = "spark.app.id"
_SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Task:
    """A task attempt.

    Attributes:
        stage: number of the stage.
        partition: number of the partition.
        attempt: 0 for the first attempt, and more for a repeat or a speculative copy.
        number: Spark's own number of the task attempt, unique in the application; None outside Spark.
        write_id: id of the write, or of the streaming query, which a restart keeps; empty if unknown.
        batch_id: number of the micro-batch; 0 outside a stream.
        app: id of the application, or ``-`` if unknown.
        speculation: whether ``spark.speculation`` is on; None if Spark does not say.
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
        """Return the task that runs this.

        Args:
            write_id: id of the write; None in a stream, where Spark tells query and batch.
            batch_id: number of the micro-batch; ignored if `write_id` is None.
        """
        context = TaskContext.get()
        if context is None:  # no Spark, so no copies either
            return cls(write_id=write_id or "", batch_id=batch_id, speculation=False)
        if write_id is None:
            batch = context.getLocalProperty(_BATCH_ID)
            # One without the other is no id.
            write_id = (context.getLocalProperty(_QUERY_ID) or "") if batch else ""
            batch_id = int(batch or 0)
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

    def fill(self, pattern: str) -> str:
        """Return the name of a connection that a pattern describes, such as ``spark:{app}:{stage}.{partition}``."""
        return pattern.format(
            app=self.app,
            stage=self.stage,
            partition=self.partition,
            attempt=self.attempt,
            write=self.write_id,
            batch=self.batch_id,
        )


def scratch_folder() -> Path | None:
    """Return our folder inside the scratch folder, which may not exist yet; None if Spark tells no scratch folder."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(folder, "rabbit-chx") if folder else None


@contextmanager
def task_mark(task: Task) -> Iterator[bool]:
    """Leave a mark while the task runs. The mark stays if the task fails or is killed.

    Args:
        task: the task that runs this.

    Yields:
        Whether an earlier task left a mark for this partition of this write. Rows of the partition may then
        be in the queues, even in attempt 0: Spark counts attempts from 0 again when it runs a stage again.
    """
    folder = scratch_folder()
    name = f"begun-{task.write_id}-{task.batch_id}-{task.partition}"
    mark = None if folder is None else folder / f"{name}.{task.number}"
    earlier = False
    with suppress(OSError):
        if folder is not None and mark is not None:
            folder.mkdir(exist_ok=True)
            earlier = any(path != mark for path in folder.glob(f"{name}.*"))
            mark.touch()
    yield earlier
    with suppress(OSError):
        if mark is not None:
            mark.unlink(missing_ok=True)

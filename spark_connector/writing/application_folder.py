"""The scratch folder of a Spark application on this machine: what its Python processes leave for each other.

Spark tells it to them and removes it at its end; PySpark itself spills there.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector.writing.task import Task

__all__ = ["begun", "scratch_folder"]


def scratch_folder() -> Path | None:
    """Ours in it, which need not exist; None where Spark tells none."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(folder, "rabbit-chx") if folder else None


@contextmanager
def begun(task: Task) -> Iterator[bool]:
    """Leave a mark as long as the task runs; it stays where the task fails or is killed.

    Yields:
        Whether an earlier task left one for this partition of this write: then rows of it may be in the queues,
        whatever the number of the attempt, which begins at 0 again where Spark runs a stage again.
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

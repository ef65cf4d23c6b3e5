"""The scratch folder of a Spark application on this machine, for files of its Python processes.

Spark tells its Python processes the folder, and removes it when the application ends. PySpark itself spills
there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_connector.writing.task import Task

__all__ = ["scratch_folder", "task_mark"]


def scratch_folder() -> Path | None:
    """Return our folder inside it, which may not exist yet; None if Spark tells no scratch folder."""
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

"""The Python of Spark's workers: whether it has what the connector needs, asked before the first task.

Spark runs what ``PYSPARK_PYTHON`` names, or else the ``python3`` of ``PATH``, whatever Python the driver is. So a job
that is started as ``venv/bin/python job.py`` has workers without the packages of ``venv``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = ("spark_connector", "rabbit_chx", "pamqp", "numpy", "pyarrow")
_LIST_MISSING = """
import sys
from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if find_spec(name) is None))
"""
_TIMEOUT_S = 20.0
#: A session may name another Python for its workers.
_OF_SESSION = "spark.sql.execution.pyspark.python"


def check_worker_python(spark: SparkSession | None) -> None:
    """Check the Python of the workers, if they run on this machine.

    Workers elsewhere, of Spark Connect, or of a Spark that has started this process itself, are left to their tasks: these
    say what they lack.

    Args:
        spark: the session; None if there is none.

    Raises:
        MissingExtraError: the workers cannot load the connector, or their Python is not there.
    """
    if spark is None:
        return
    try:
        context: Any = spark.sparkContext
    except Exception:  # noqa: BLE001  # Connect raises its own error, which differs by version
        return
    if not context.master.startswith("local") or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    wanted = spark.conf.get(_OF_SESSION, None) or context.pythonExec
    python = shutil.which(wanted)
    if python is None:
        raise MissingExtraError(f"Spark's workers are to run {wanted}, which is not there: {_remedy()}")
    if _is_ours(Path(python)):
        return
    shipped = [path for path in sys.path if path.startswith(_shipped_files())]
    paths = [*shipped, context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    missing = _missing_in(python, os.pathsep.join(filter(None, paths)))
    if missing:
        raise MissingExtraError(
            f"Spark's workers run {python}, which lacks {', '.join(missing)}: {_remedy()}"
        )


def _remedy() -> str:
    return (
        f"start the job with `export PYSPARK_PYTHON={sys.executable}`, or set os.environ['PYSPARK_PYTHON'] = sys.executable "
        "before the session starts"
    )


def _is_ours(python: Path) -> bool:
    """Return whether it is a name of this interpreter in its own folder, as python3 of a virtual environment is."""
    this_python = Path(sys.executable)
    return python.absolute().parent == this_python.parent and python.resolve() == this_python.resolve()


def _shipped_files() -> str:
    """Return the folder with the files that Spark ships to its workers, such as a zip of ``--py-files``."""
    from pyspark import SparkFiles

    return SparkFiles.getRootDirectory()


@lru_cache
def _missing_in(python: str, paths: str) -> tuple[str, ...]:
    """Return the modules that a Python lacks; none if it does not tell."""
    try:
        result = subprocess.run(  # noqa: S603  # what Spark runs
            [python, "-c", _LIST_MISSING, *_NEEDED],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    listed = result.stdout.split()
    return tuple(name for name in _NEEDED if name in listed)

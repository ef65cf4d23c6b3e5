"""Functions for the Python workers of Spark, pickled so that the error of a Python without this package contains the remedy."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rabbit_chx import errors
from rabbit_chx.errors import MissingExtraError, PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.text import typed_error_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SUMMARY = "partition int, summary binary"


class OnExecutor:
    """A module-level function with its first arguments, for a Python worker; all can be pickled.

    The arguments are not shown: Spark can be configured to put local variables into tracebacks.
    """

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.__name__ = function.__name__  # shown in plans
        self._function = function
        self._arguments = arguments

    def __call__(self, *columns: Any) -> Any:  # whatever the function takes and returns
        """Call the function with its first arguments followed by these."""
        return self._function(*self._arguments, *columns)

    def __repr__(self) -> str:
        return f"<{self.__name__} with its arguments>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return reduce_as_code(OnExecutor, self._function, *self._arguments)


def reduce_as_code(
    make: Callable[..., Any], *arguments: object
) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
    """Return the result of a `__reduce__` whose unpickling calls a module-level function or class with these arguments."""
    return loader("of this Spark executor"), (make.__module__, make.__name__, pickle.dumps(arguments))


def loader(where: str) -> Callable[..., Any]:
    """Return a function that loads a function or class of this package by name, and calls it with pickled arguments.

    A function that is pickled by its name needs the package where it is loaded, and a Python without it reports only "No module named". So
    this one is nested: it is pickled as code, and its error contains the Python (`where`) and the remedy.
    """

    def load(module: str, name: str, arguments: bytes | None = None) -> Any:  # nested, so pickled as code
        import importlib
        import pickle
        import sys

        try:
            loaded = getattr(importlib.import_module(module), name)
            # Spark has pickled the arguments around this already.
            return loaded if arguments is None else loaded(*pickle.loads(arguments))  # noqa: S301
        except ImportError as cause:
            del arguments  # tracebacks may show local variables
            raise ImportError(
                f"the Python {where}, {sys.executable}, cannot load rabbit-chx ({cause}): "
                "install the package with its extra spark there, or set PYSPARK_PYTHON to a Python that has it"
            ) from None

    return load


def number_columns(df: DataFrame) -> DataFrame:
    """Return the rows with the columns "0", "1" and so on: PySpark does not quote the names of columns for `mapInArrow`."""
    return df.toDF(*map(str, range(len(df.columns))))


def for_each_partition(df: DataFrame, function: Callable[..., Any], *arguments: object) -> list[Any]:
    """Call a module-level function once for each partition, in one Spark action, and return the results in the order of the partitions.

    The function is called with the `arguments` and an iterator of Arrow batches with numbered columns, which it must exhaust. Its arguments and result can be
    pickled.

    Raises:
        RabbitChxError: Spark reports a partition twice, or leaves one out.
        MissingExtraError: the Python of Spark's workers lacks the package.
    """
    check_worker_python(df.sparkSession)
    collected = number_columns(df).mapInArrow(OnExecutor(_summary, function, *arguments), _SUMMARY).collect()
    rows = sorted(collected, key=lambda row: row.partition)
    if [row.partition for row in rows] != list(range(len(rows))):
        raise RabbitChxError(
            f"Spark reports the partitions {[row.partition for row in rows]}: one is missing or repeated"
        )
    return [pickle.loads(row.summary) for row in rows]  # noqa: S301  # our own tasks made it


def _summary(function: Callable[..., Any], *arguments: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    summary = pickle.dumps(function(*arguments))  # the last argument is the iterator of batches
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    yield pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([summary], pa.binary())], names=["partition", "summary"]
    )


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
    """Check that the Python of the workers can load the connector, if they run on this machine; otherwise raise a MissingExtraError.

    Spark runs the interpreter of ``PYSPARK_PYTHON``, or else the ``python3`` of ``PATH``, with any Python of the driver. Workers elsewhere,
    of Spark Connect, or of a Spark that has started this process, are not checked: their tasks report what they lack.
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
    from pyspark import SparkFiles

    files = SparkFiles.getRootDirectory()  # that Spark ships to its workers, such as a zip of ``--py-files``
    shipped = [path for path in sys.path if path.startswith(files)]
    paths = [*shipped, context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    missing = _find_missing(python, os.pathsep.join(filter(None, paths)))
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
    """Return whether a path is this interpreter under another name in the same folder, as python3 of a virtual environment."""
    this_python = Path(sys.executable)
    return python.absolute().parent == this_python.parent and python.resolve() == this_python.resolve()


@lru_cache
def _find_missing(python: str, paths: str) -> tuple[str, ...]:
    """Return the modules that a Python lacks; none if it does not answer."""
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


def speculation_of(spark: SparkSession) -> bool:
    """Return whether ``spark.speculation`` is on in the session, classic or Connect."""
    conf: Any = spark.conf
    return bool(conf.get("spark.speculation", "false").lower() == "true")


def scratch_folder() -> Path | None:
    """Return the connector's folder inside the scratch folder, which may not exist yet; None if Spark has no scratch folder."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(folder, "rabbit-chx") if folder else None


# -- Errors of this package within errors of Spark: raised without traceback, and parsed from the text again
# Spark can be configured to show local variables in tracebacks (``tracebackWithLocals.enabled``), and writes tracebacks into event logs. The
# variables include options with a password, so no traceback of this package may leave a task or the planner.


_P = ParamSpec("_P")
_T = TypeVar("_T")

_PLACES = 3
_MOST_TEXT = 300
_LINE = re.compile(r"^(?:\S+: )?rabbit_chx\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)
#: The line below an error with its report; see `with_report`.
_REPORT = re.compile(r"^rabbit_chx report: (?P<counts>\{.*\})\s*$", re.MULTILINE)


def strip_traceback(cause: Exception, *, show_text: bool = True) -> RabbitChxError:
    """Return the error to raise in place of another one, after its ``except`` clause.

    A RabbitChxError is returned without its traceback. Of any other error, the type and the last places in the code become the message, and
    its text if `show_text`: it may contain an option.
    """
    if isinstance(cause, RabbitChxError):
        return cause.with_traceback(None)
    places = ", ".join(
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(cause.__traceback__)[-_PLACES:]
    )
    what = typed_error_text(cause) if show_text else type(cause).__name__
    return RabbitChxError(f"unforeseen {what:.{_MOST_TEXT}} (at {places}): please report it")


def without_traceback(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that raises its errors from a frame without its arguments, and so without a password."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as cause:  # noqa: BLE001  # it is raised below
            error = strip_traceback(cause, show_text=isinstance(cause, ImportError))
        del args, kwargs
        raise error from None

    return wrapped


def with_report(error: RabbitChxError, report: PublishReport) -> RabbitChxError:
    """Add the counts of the report as JSON, in a line below the message: Spark transfers only the text of an error."""
    no_counts = ("samples", "rows_failed")
    counts = {name: count for name, count in asdict(report).items() if name not in no_counts}
    error.add_note(f"rabbit_chx report: {json.dumps(counts)}")
    return error


def parse_task_error(cause: BaseException) -> RabbitChxError | None:
    """Return the error that a task of this package raised, or None if another error ended the job.

    It is parsed from the last line of the traceback that Spark shows as text, and its `report`, which each has, from the line of `with_report`.
    """
    text = str(cause)
    lines = list(_LINE.finditer(text))
    if not lines:
        return None
    name, message = lines[-1]["name"], lines[-1]["message"]  # of the last attempt
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RabbitChxError)):
        return None
    found = _REPORT.search(text, lines[-1].end())
    report = PublishReport(**json.loads(found["counts"])) if found else PublishReport()
    error = kind(message, report) if issubclass(kind, PublishError) else kind(message)
    vars(error)["report"] = report
    return error

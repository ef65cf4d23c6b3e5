"""Our functions, pickled so that a Python of Spark without our packages names what it lacks.

A function that is pickled by its name needs our packages where it is loaded. A Python without them says only
"No module named". So a loader is pickled as code: it loads the function, and says what to do if it cannot.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import RabbitChxError
from spark_connector.worker_python import check_worker_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_SUMMARY = "partition int, summary binary"


class OnExecutor:
    """A function of our modules with its first arguments, to be called by a Python worker.

    The arguments are not shown, since Spark can be told to put local variables into tracebacks.

    Args:
        function: a function at the top of one of our modules.
        arguments: its first arguments; they can be pickled.
    """

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.__name__ = function.__name__  # what plans show
        self._function = function
        self._arguments = arguments

    def __call__(self, *columns: Any) -> Any:  # noqa: ANN401  # whatever the function takes and returns
        """Call the function with its first arguments and then these."""
        return self._function(*self._arguments, *columns)

    def __repr__(self) -> str:
        return f"<{self.__name__} with its arguments>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return pickled_as_code(OnExecutor, self._function, *self._arguments)


def pickled_as_code(
    make: Callable[..., Any], *arguments: object
) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
    """Return what `__reduce__` returns, so that unpickling calls ``make(*arguments)``.

    Args:
        make: a function or class at the top of one of our modules.
        arguments: its arguments; they can be pickled.
    """
    return loader("of this Spark executor"), (make.__module__, make.__name__, pickle.dumps(arguments))


def loader(where: str) -> Callable[..., Any]:
    """Return a function that loads what is at the top of one of our modules.

    Args:
        where: which Python loads it, for the error if that cannot.

    Returns:
        It takes the names of the module and of the function or class there. With pickled arguments, it calls what it has loaded.
    """

    def load(module: str, name: str, arguments: bytes | None = None) -> Any:  # noqa: ANN401  # nested, so pickled as code
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
                "install rabbit-chx[spark] there, or set PYSPARK_PYTHON to a Python that has it"
            ) from None

    return load


def for_each_partition(df: DataFrame, function: Callable[..., Any], *arguments: object) -> list[Any]:
    """Call a function once for each partition, in one Spark action, and return the results.

    Args:
        df: the rows.
        function: a function at the top of one of our modules. It takes the `arguments` and then an iterator
            of Arrow batches, which it must read to the end. Its result can be pickled.
        arguments: the first arguments of the function; they can be pickled.

    Returns:
        The results in the order of the partitions.

    Raises:
        RabbitChxError: Spark reports a partition twice, or leaves one out.
        MissingExtraError: the Python of Spark's workers lacks our packages.
    """
    check_worker_python(df.sparkSession)
    collected = df.mapInArrow(OnExecutor(_summary, function, *arguments), _SUMMARY).collect()
    rows = sorted(collected, key=lambda row: row.partition)
    if [row.partition for row in rows] != list(range(len(rows))):
        raise RabbitChxError(
            f"Spark reports the partitions {[row.partition for row in rows]}: one is missing, or comes twice"
        )
    return [pickle.loads(row.summary) for row in rows]  # noqa: S301  # our own tasks made it


def _summary(function: Callable[..., Any], *arguments: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
    import pyarrow as pa
    from pyspark import TaskContext

    summary = pickle.dumps(function(*arguments))  # the last argument is the iterator of batches
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    yield pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([summary], pa.binary())], names=["partition", "summary"]
    )

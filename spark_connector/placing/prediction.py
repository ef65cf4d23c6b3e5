"""The predicted queue of each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from rabbit_chx.routing import KeyMap, SuperStream, check_key_map, key_map_from_json
from spark_connector.executor_functions import OnExecutor
from spark_connector.worker_python import check_worker_python

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column

#: What reports show instead of a queue for rows that have none.
NO_QUEUE = "(no queue)"
#: Rings that a Python worker keeps; each task brings its own again.
_KEPT_RINGS = 8


def queue_for(key_column: str | Column, ring: KeyMap | str) -> Column:
    """Return a string column with the queue that the ring predicts for each routing key.

    The queue is null for a null key, for a key whose bucket is a hole, and for a key whose slot has no queue. An exchange as a
    destination is shown as ``exchange NAME``. The column is deterministic. It is an Arrow UDF on PySpark 4.1 and newer, and
    a pandas UDF on older versions.

    Args:
        key_column: the routing keys, string or binary.
        ring: the ring of the exchange or the table of its slots (`Broker.slots`), or the JSON of either (`to_json`).

    Raises:
        InputError: the ring has no buckets, or the argument is not a ring.

    Example::

        df.groupBy(queue_for("key", ring).alias("queue")).count()
    """
    return vectorized(queue_names, "string", as_ring(ring).to_json())(key_column)


def as_ring(ring: KeyMap | str) -> KeyMap:
    """Return a ring that predicts something.

    Args:
        ring: a ring or a table of slots, or the JSON of either.

    Raises:
        InputError: the argument is not a ring, or the ring has no buckets.
    """
    if isinstance(ring, str):
        ring = key_map_from_json(ring)
    check_key_map(ring)
    if not ring.destinations:
        raise InputError(
            "the ring has no buckets, or its slots no queue, so it predicts nothing: bind queues first, or read it again"
        )
    return ring


def vectorized(function: Callable[..., Any], return_type: str, *arguments: object) -> Callable[..., Column]:
    """Return a UDF that calls a function for whole Arrow arrays.

    Args:
        function: a function of our modules, which takes the `arguments` and then Arrow arrays, and returns an
            Arrow array.
        return_type: the Spark type of the column that it returns.
        arguments: its first arguments; they can be pickled.

    Raises:
        MissingExtraError: the Python of Spark's workers lacks our packages.
    """
    check_worker_python(import_module("pyspark.sql").SparkSession.getActiveSession())
    functions: Any = import_module("pyspark.sql.functions")
    arrow = hasattr(functions, "arrow_udf")  # since PySpark 4.1
    shipped = (
        OnExecutor(function, *arguments)
        if arrow
        else OnExecutor(_through_pandas, partial(function, *arguments))
    )
    column_of: Callable[..., Column] = (functions.arrow_udf if arrow else functions.pandas_udf)(
        lambda *columns: shipped(*columns),  # noqa: PLW0108  # without annotations, Spark takes it for a scalar UDF
        return_type,
    )
    return column_of


def _through_pandas(function: Callable[..., Any], *columns: Any) -> Any:  # noqa: ANN401  # Series to Series
    import pyarrow as pa

    return function(*(pa.Array.from_pandas(column) for column in columns)).to_pandas()


@lru_cache(_KEPT_RINGS)
def kept_ring(ring_json: str) -> KeyMap:
    """Return a ring that is parsed once in each Python worker.

    Its table of seeds lives as long as the process.
    """
    return key_map_from_json(ring_json)


def indices_or_hole(ring: KeyMap | SuperStream, keys: Any) -> NDArray[np.int32]:  # noqa: ANN401  # Arrow has no types
    """Return what `HashRing.indices` returns, and -1 for a null key as well."""
    if not getattr(keys, "null_count", 0):
        return ring.indices(keys)
    import pyarrow as pa

    indices = ring.indices(keys.fill_null(pa.scalar("", keys.type)))
    indices[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return indices


def rows_by_queue(ring: KeyMap, keys: Any) -> dict[str, int]:  # noqa: ANN401
    """Return how many of the keys go to each queue; queues without keys are left out."""
    import numpy as np

    names = (NO_QUEUE, *map(str, ring.destinations))
    counts = np.bincount(indices_or_hole(ring, keys) + 1, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


@lru_cache(_KEPT_RINGS)
def _names(ring_json: str) -> pa.Array[Any]:
    import pyarrow as pa

    return pa.array([*map(str, kept_ring(ring_json).destinations), None], pa.string())


def queue_names(ring_json: str, keys: pa.Array[Any]) -> pa.Array[Any]:
    """Return the name of each key's destination, or null if it has none. Runs in Python workers."""
    import pyarrow as pa

    indices = indices_or_hole(kept_ring(ring_json), keys)
    names = _names(ring_json)
    indices[indices < 0] = len(names) - 1  # the null behind the last name
    return names.take(pa.array(indices, pa.int32()))

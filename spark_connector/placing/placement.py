"""Partitions by queue, slice of a queue, or stream, and the column of predicted queues."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import BinaryType, StringType

from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import murmur3_x86_32
from spark_connector.columns import ORDER_MARK, check_order_type, for_text, quote_name
from spark_connector.executor_functions import OnExecutor, check_worker_python
from spark_connector.placing.rings import CACHED_RINGS, as_key_map, as_ring, cached_ring, destination_indices

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_HELPER = "_rabbit_chx_partition"
_SPARK_SEED = 42


def place(
    df: DataFrame,
    ring: KeyMap | str,
    by: Literal["queue"] = "queue",
    *,
    slices: Mapping[str, int] | None = None,
    partitions: int | None = None,
    order_by: str | Column | Sequence[str | Column] | None = None,
    key: str = "key",
) -> DataFrame:
    """Shuffle rows into one partition for each queue of the ring, or for each slice of a queue.

    A partition has the rows of one queue only, and a slice has all rows of its keys, so a task that publishes its rows in order keeps the
    order of every key. Rows without a queue (a null key, a hole of the ring) are in the last partition, which exists if the column may be
    null or the ring has holes. Delivery does not change: if the ring differs from the broker's, only the order between partitions is lost.

    Args:
        df: the rows, whose columns are kept. A streaming frame is placed without `order_by`.
        ring: the ring of the exchange, the table of its slots, or an ``x-modulus-hash`` exchange (`Broker.exchange`), or the JSON of one of
            them.
        by: the unit of a partition; ``"queue"`` is the only choice.
        slices: number of partitions of heavy queues, such as ``{"q1": 4}``; other queues have one.
        partitions: number of partitions of all queues together, instead of `slices`, distributed by the queues' shares of the ring.
        order_by: columns, or their names, to sort each partition by; a field of a struct is a column, as ``col("event.time")``. Without it,
            rows of a key may change their order.
        key: name of the column with the routing key, string or binary.

    Raises:
        InputError: the column is missing or of another type, the ring has no buckets, `slices` or `partitions` are not valid, or `order_by`
            is given for a stream.
    """
    if by != "queue":
        raise InputError(f"by is {by!r}: 'queue' is the only choice")

    ring = as_ring(ring)
    if order_by is not None and df.isStreaming:
        raise InputError(
            "order_by: Spark does not sort streaming frames; leave it out, or place and publish each batch in "
            "foreachBatch"
        )

    column, nullable = _text_column(df, key, "the routing key with key=")
    placement = Placement.of(
        ring, slices=slices, partitions=partitions, spare=nullable or None in ring.shares()
    )

    columns: list[Any] = []
    if isinstance(order_by, (list, tuple)):
        columns += order_by
    elif order_by is not None:
        columns.append(order_by)

    return _repartition(df, column, ring, placement, list(map(_as_column, columns)))


def place_for_streams(
    df: DataFrame, streams: KeyMap | str, key: str = "key", *, order_by: str | None = None
) -> DataFrame:
    """Shuffle rows for ``delivery=exactly-once``: one partition for each stream, sorted by key and value, or by a column before them.

    Rows of equal key and value are sorted by the other string and binary columns, of which one may be the filter value.

    The number of a row in its stream is its id there, so each attempt of a task must produce the same rows in the same order. Call it last:
    later operations may move the rows, and the write then refuses them. Spark does not sort streaming frames; the write sorts the rows of
    each of their tasks.

    Args:
        df: the rows, whose columns are kept. One is `value`, the body, string or binary.
        streams: the super stream (``SuperStream(["orders-0", "orders-1"])``, in the broker's order, for the option ``routing=key`` with
            its binding keys and ``routing="key"``); or the ring of a hash exchange, the
            table of its slots, or an ``x-modulus-hash`` exchange (`Broker.exchange`), whose queues are streams, or the JSON of one of them.
        key: name of the column with the routing key, string or binary.
        order_by: name of a column that orders the rows of each stream, such as the time of an event: a whole number, a date, a timestamp,
            a string or binary, without nulls. The column is marked, so that the write knows it.

    Raises:
        InputError: a column is missing or of another type, or the ring has no buckets.

    Example::

        rows = place_for_streams(df, SuperStream(["orders-0", "orders-1"]))
        once = {"superStream": "orders", "delivery": "exactly-once", "appId": "load", "version": 42}
        rows.write.format("rabbitmq").options(url=url, **once).mode("append").save()
    """
    placing = as_key_map(streams)
    column, nullable = _text_column(df, key, "the routing key with key=")
    _text_column(df, "value", "the body 'value'")
    # By binding key, keys may be those of no partition, and their shares are not known.
    has_holes = placing.routes_by_key or None in placing.shares()
    # The write names the rows of the spare partition, which have no stream.
    placement = Placement((1,) * len(placing.destinations), spare=nullable or has_holes)
    first = None
    if order_by is not None:
        first = _field(df, order_by, "the order with order_by=")
        check_order_type(first)
    marked = _mark_order(df, first)
    return _repartition(
        marked, column, placing, placement, () if df.isStreaming else _stream_order(df, key, first)
    )


def _stream_order(df: DataFrame, key: str, first: StructField | None) -> list[Column]:
    """Return the columns that sort the rows of a stream: a total order of all that a write may store."""
    names = [key, "value"]
    known = [name.lower() for name in df.columns]
    for field in df.schema.fields:
        # The frame does not say which one has the filter values. Spark cannot name a column that exists twice.
        is_text = isinstance(field.dataType, (StringType, BinaryType))
        if (
            is_text
            and known.count(field.name.lower()) == 1
            and field.name.lower() not in (key.lower(), "value")
        ):
            names.append(field.name)
    # By bytes, with any collation of a column.
    order = [_as_column(name).cast("binary") for name in names]
    if first is not None:
        by = _as_column(first.name)
        order.insert(0, by.cast("binary") if isinstance(first.dataType, StringType) else by)
    return order


def _mark_order(df: DataFrame, first: StructField | None) -> DataFrame:
    """Return the frame with a mark in the metadata of the column that orders the rows, and of no other column."""
    for field in df.schema.fields:
        is_first = first is not None and field.name == first.name
        if is_first == (ORDER_MARK in field.metadata):
            continue
        metadata = {name: value for name, value in field.metadata.items() if name != ORDER_MARK}
        if is_first:
            metadata[ORDER_MARK] = True
        df = df.withColumn(field.name, _as_column(field.name).alias(field.name, metadata=metadata))
    return df


def _repartition(
    df: DataFrame, key: Column, placing: KeyMap, placement: Placement, order_by: Sequence[Column]
) -> DataFrame:
    helper = _HELPER
    while helper in df.columns:
        helper += "_"
    exact = hasattr(df, "repartitionById")  # since PySpark 4.1
    chosen = df.withColumn(helper, _partition_column(key, placing, placement, salted=not exact))
    move = chosen.repartitionById if exact else chosen.repartition
    rows = move(placement.partitions, helper)
    if order_by:
        rows = rows.sortWithinPartitions(*order_by)
    return rows.drop(helper)


def _as_column(column: str | Column) -> Column:
    """Return a column of its name, which is never an expression: "event.time" is not a field of a struct."""
    from pyspark.sql.functions import col  # a worker has no use for it

    return col(quote_name(column)) if isinstance(column, str) else column


def _field(df: DataFrame, name: str, what: str) -> StructField:
    """Return the column of a frame by its name in any case; InputError if it is missing, or exists twice."""
    fields = [field for field in df.schema.fields if field.name.lower() == name.lower()]
    if len(fields) != 1:
        problem = "exists twice" if fields else "is missing"
        raise InputError(
            f"column {name!r} {problem}: name the column of {what} (columns are: "
            f"{', '.join(map(repr, df.columns)) or 'none'})"
        )
    return fields[0]


def _text_column(df: DataFrame, name: str, what: str) -> tuple[Column, bool]:
    """Return a text or binary column by its name, and whether it is nullable; InputError for another column."""
    field = _field(df, name, what)
    if not isinstance(field.dataType, (StringType, BinaryType)):
        raise InputError(
            f"column {field.name!r} is {field.dataType.simpleString()}, not string or binary: "
            f"use {for_text(quote_name(field.name), field.dataType)}"
        )
    return _as_column(field.name), field.nullable


def _partition_column(key: Column, placing: KeyMap, placement: Placement, *, salted: bool) -> Column:
    from pyspark.sql.functions import xxhash64

    number_of = salts(placement.partitions) if salted else None
    column = create_udf(partition_numbers, "int", placing.to_json(), placement, number_of)
    return column(key, xxhash64(key)) if placement.needs_hashes else column(key)


def partition_numbers(
    placing: str,
    placement: Placement,
    number_of: tuple[int, ...] | None,
    keys: pa.Array[Any],
    hashes: pa.Array[Any] | None = None,
) -> pa.Array[Any]:
    """Return the partition of each key, or its entry of `number_of`. Runs in Python workers; `placing` may be a JSON."""
    import numpy as np
    import pyarrow as pa

    indices = destination_indices(cached_ring(placing), keys)
    numbers = placement.partitions_of(indices, None if hashes is None else hashes.to_numpy())
    if number_of is not None:
        numbers = np.array(number_of, np.int32)[numbers]
    return pa.array(numbers, pa.int32())


@dataclass(frozen=True, slots=True)
class Placement:
    """Partitions in the order of the ring's destinations: first all slices of the first queue, and so on. A key is in one slice.

    Attributes:
        slices: number of partitions of each queue, 1 or more.
        spare: whether a further partition, the last, has the rows without a queue (a null key, a hole).
    """

    slices: tuple[int, ...]
    spare: bool = False

    @classmethod
    def of(
        cls,
        ring: KeyMap,
        *,
        slices: Mapping[str, int] | None = None,
        partitions: int | None = None,
        spare: bool = False,
    ) -> Placement:
        """Return the placement of a ring or slot table with at least one destination; the arguments are those of `place`."""
        if slices is not None and partitions is not None:
            raise InputError("slices and partitions were given: pass the slices of queues, or their total")
        if partitions is not None:
            return cls(_by_share(ring, partitions), spare)
        return cls(_as_given(tuple(map(str, ring.destinations)), slices or {}), spare)

    @property
    def partitions(self) -> int:
        """The number of all partitions."""
        return sum(self.slices) + self.spare

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first partition of each queue."""
        return tuple(accumulate(self.slices, initial=0))[:-1]

    @property
    def needs_hashes(self) -> bool:
        """True if a queue has more than one slice."""
        return max(self.slices) > 1

    def partitions_of(
        self, indices: NDArray[np.int32], hashes: NDArray[np.int64] | None = None
    ) -> NDArray[np.int32]:
        """Return the partition of each row.

        Args:
            indices: index of each row's queue; -1 if it has none.
            hashes: a hash of each row's key, if a queue has more than one slice; not that of the ring, which has few values in each queue.
        """
        import numpy as np

        last = self.partitions - 1 if self.spare else 0
        partitions = np.array((*self.offsets, last), np.int32)[indices]  # -1 takes the last
        if hashes is not None:
            partitions += (hashes % np.array((*self.slices, 1), np.int64)[indices]).astype(np.int32)
        return partitions


def _as_given(queues: tuple[str, ...], slices: Mapping[str, int]) -> tuple[int, ...]:
    if not isinstance(slices, Mapping):
        raise InputError(f"slices is {slices!r:.60}: pass a dict of queues and numbers, as {{'q1': 4}}")
    for queue, number in slices.items():
        if queue not in queues:
            raise InputError(f"slices names queue {queue!r}, and the ring has {', '.join(queues[:10])}")
        if not is_whole(number, 1):
            raise InputError(f"slices gives the queue {queue!r} {number!r}: pass a whole number, 1 or more")
    return tuple(slices.get(queue, 1) for queue in queues)


def _by_share(ring: KeyMap, partitions: int) -> tuple[int, ...]:
    """Assign each further slice to the queue whose slices are the largest so far."""
    number = len(ring.destinations)
    if not is_whole(partitions, number):
        raise InputError(
            f"partitions is {partitions!r}: the ring has {number} queues, and each queue needs at least one partition"
        )
    shares = ring.shares()
    slices = [1] * number
    heap = [(-shares[destination], index) for index, destination in enumerate(ring.destinations)]
    heapq.heapify(heap)
    for _ in range(partitions - number):
        index = heap[0][1]
        slices[index] += 1
        heapq.heapreplace(heap, (-shares[ring.destinations[index]] / slices[index], index))
    return tuple(slices)


def salts(partitions: int) -> tuple[int, ...]:
    """Return for each partition an int that Spark's ``repartition(partitions, column)`` maps to it.

    Mirrors apache/spark v3.5.0, HashPartitioning.partitionIdExpression: ``pmod(murmur3(column, 42), partitions)``, where
    Murmur3_x86_32.hashInt reads an int as its four bytes, little-endian.
    """
    by_partition: dict[int, int] = {}
    for salt in count():
        if len(by_partition) == partitions:
            break
        hashed = murmur3_x86_32(struct.pack("<i", salt), _SPARK_SEED)
        signed = hashed - (1 << 32) if hashed >> 31 else hashed
        by_partition.setdefault(signed % partitions, salt)
    return tuple(by_partition[partition] for partition in range(partitions))


def queue_for(key_column: str | Column, ring: KeyMap | str) -> Column:
    """Return a string column with the queue that the ring predicts for each routing key.

    The queue is null for a null key, a hole of the ring, and a slot without a queue. An exchange as a destination is ``exchange
    NAME``. The column is deterministic: an Arrow UDF on PySpark 4.1 and newer, a pandas UDF on older versions.

    Args:
        key_column: the routing keys, string or binary: a column, or its name. A field of a struct is a column, as ``col("event.key")``.
        ring: the ring of the exchange, the table of its slots (`Broker.slots`), or an ``x-modulus-hash`` exchange (`Broker.exchange`), or the
            JSON of one of them (`to_json`).

    Raises:
        InputError: the ring has no buckets, or the argument is not a ring.

    Example::

        df.groupBy(queue_for("key", ring).alias("queue")).count()
    """
    return create_udf(queue_names, "string", as_ring(ring).to_json())(_as_column(key_column))


def create_udf(function: Callable[..., Any], return_type: str, *arguments: object) -> Callable[..., Column]:
    """Return a UDF that calls a function of this package with the picklable `arguments` and whole Arrow arrays."""
    check_worker_python(import_module("pyspark.sql").SparkSession.getActiveSession())
    functions: Any = import_module("pyspark.sql.functions")
    arrow = hasattr(functions, "arrow_udf")  # since PySpark 4.1
    shipped = OnExecutor(function, *arguments)
    if not arrow:
        shipped = OnExecutor(_through_pandas, partial(function, *arguments))
    column_of: Callable[..., Column] = (functions.arrow_udf if arrow else functions.pandas_udf)(
        lambda *columns: shipped(*columns),  # noqa: PLW0108  # without annotations, Spark takes it for a scalar UDF
        return_type,
    )
    return column_of


def _through_pandas(function: Callable[..., Any], *columns: Any) -> Any:  # Series to Series
    import pyarrow as pa

    return function(*(pa.Array.from_pandas(column) for column in columns)).to_pandas()


@lru_cache(CACHED_RINGS)
def _names(ring_json: str) -> pa.Array[Any]:
    import pyarrow as pa

    return pa.array([*map(str, cached_ring(ring_json).destinations), None], pa.string())


def queue_names(ring_json: str, keys: pa.Array[Any]) -> pa.Array[Any]:
    """Return the name of each key's destination, or null if it has none. Runs in Python workers."""
    import pyarrow as pa

    indices = destination_indices(cached_ring(ring_json), keys)
    names = _names(ring_json)
    indices[indices < 0] = len(names) - 1  # the null after the last name
    return names.take(pa.array(indices, pa.int32()))

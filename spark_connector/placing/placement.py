"""Rows moved into one partition for each queue, or for each slice of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rabbit_chx.errors import InputError
from spark_connector.placing.prediction import as_ring, indices_or_hole, kept_ring, vectorized
from spark_connector.placing.slices import Placement, salts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from rabbit_chx.routing import KeyMap

__all__ = ["place"]

_HELPER = "_rabbit_chx_partition"


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
    """Return the same rows, in one partition for each queue of the ring or for each slice of a queue.

    Placement is exact: a partition has the rows of one queue only, and a slice has all rows of its keys. So a
    task that publishes its rows in order keeps the order of every key. Rows without a queue (a null key, a
    hole of the ring) are in the last partition, which exists if the column may be null or the ring has holes.

    The rows are shuffled. Placement does not change delivery: if the ring differs from the broker's, the
    broker still routes every row by its own ring, and only the order between partitions is lost.

    Streaming frames can be placed as well, but without `order_by`.

    Args:
        df: the rows; the columns stay as they are.
        ring: the ring of the exchange or the table of its slots, or the JSON of either.
        by: what has a partition of its own; ``"queue"`` is the only choice.
        slices: number of partitions of heavy queues, such as ``{"q1": 4}``; a queue that is not named has
            one. All rows of a key stay in one partition.
        partitions: number of partitions of all queues together, instead of `slices`; they are spread by the
            queues' shares of the ring.
        order_by: columns to sort each partition by. Without it, rows of a key may change their order.
        key: name of the column with the routing key, string or binary.

    Raises:
        InputError: the column is missing or of another type, the ring has no buckets, `slices` or
            `partitions` cannot be used, or `order_by` is given for a stream.
    """
    if by != "queue":
        raise InputError(f"by is {by!r}: 'queue' is the only choice")
    ring = as_ring(ring)
    if order_by is not None and df.isStreaming:
        raise InputError(
            "order_by: Spark does not sort streaming frames; leave it out, or place and publish each batch in "
            "foreachBatch"
        )
    column, nullable = _key_column(df, key)
    placement = Placement.of(
        ring, slices=slices, partitions=partitions, spare=nullable or None in ring.shares()
    )
    helper = _HELPER
    while helper in df.columns:
        helper += "_"
    exact = hasattr(df, "repartitionById")  # since PySpark 4.1
    chosen = df.withColumn(helper, _partition_column(df[column], ring, placement, salted=not exact))
    if exact:
        moved = chosen.repartitionById(placement.partitions, helper)
    else:
        moved = chosen.repartition(placement.partitions, helper)
    if order_by is not None:
        columns = (
            [order_by] if isinstance(order_by, str) or not isinstance(order_by, (list, tuple)) else order_by
        )
        moved = moved.sortWithinPartitions(*columns)
    return moved.drop(helper)


def _key_column(df: DataFrame, name: str) -> tuple[str, bool]:
    """Return the name of the key's column as the frame has it, and whether the column may be null."""
    from pyspark.sql.types import BinaryType, StringType

    found = [field for field in df.schema.fields if field.name.lower() == name.lower()]
    if len(found) != 1:
        problem = "exists twice" if found else "is missing"
        raise InputError(
            f"column {name!r} {problem}: name the column of the routing key with key= (columns are: "
            f"{', '.join(map(repr, df.columns)) or 'none'})"
        )
    (field,) = found
    if not isinstance(field.dataType, (StringType, BinaryType)):
        raise InputError(
            f"column {field.name!r} is {field.dataType.simpleString()}, not string or binary: "
            f"use {field.name}.cast('string')"
        )
    return field.name, field.nullable


def _partition_column(key: Column, ring: KeyMap, placement: Placement, *, salted: bool) -> Column:
    from pyspark.sql.functions import xxhash64

    number_of = salts(placement.partitions) if salted else None
    column = vectorized(partition_numbers, "int", ring.to_json(), placement, number_of)
    return column(key, xxhash64(key)) if placement.needs_hashes else column(key)


def partition_numbers(
    ring_json: str,
    placement: Placement,
    number_of: tuple[int, ...] | None,
    keys: pa.Array[Any],
    hashes: pa.Array[Any] | None = None,
) -> pa.Array[Any]:
    """Return the partition of each key. Runs in Python workers.

    Args:
        ring_json: the ring or the table of slots, as its `to_json` returns it.
        placement: the partitions of the queues.
        number_of: the number to return for each partition; None for the number of the partition itself.
        keys: routing keys.
        hashes: a hash of each key, needed if a queue has more than one slice.
    """
    import numpy as np
    import pyarrow as pa

    indices = indices_or_hole(kept_ring(ring_json), keys)
    found = placement.partitions_of(indices, None if hashes is None else hashes.to_numpy())
    if number_of is not None:
        found = np.array(number_of, np.int32)[found]
    return pa.array(found, pa.int32())

"""One partition for each queue, or for each slice of a queue: rows moved to where one task has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rabbit_chx.errors import InputError
from spark_connector.placing.prediction import as_ring, indices_or_hole, kept_ring, vectorized
from spark_connector.placing.slices import Placement, salts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from rabbit_chx.routing import HashRing

__all__ = ["place"]

_HELPER = "_rabbit_chx_partition"


def place(
    df: DataFrame,
    ring: HashRing | str,
    by: Literal["queue"] = "queue",
    *,
    slices: Mapping[str, int] | None = None,
    partitions: int | None = None,
    order_by: str | Column | Sequence[str | Column] | None = None,
    key: str = "key",
) -> DataFrame:
    """The same rows, in one partition for each queue of the ring, or for each slice of it.

    Exact: a partition holds the rows of one queue only, and a slice all rows of its keys, so that a task that
    publishes its rows in order keeps the order of every key. Rows without a queue (a null key, a hole of the ring)
    have a partition of their own, the last; it is there if the column may be null or the ring has holes.
    The rows are shuffled. Placement decides nothing about delivery: where the ring is not the broker's, rows are
    still delivered by the broker's, and only the order between partitions is lost.

    Works on streaming frames, too, but for `order_by`.

    Args:
        df: the rows; columns stay as they are.
        ring: the ring of the exchange, or its JSON.
        by: what has a partition of its own; there is only ``"queue"``.
        slices: for heavy queues, how many partitions they shall have, such as ``{"q1": 4}``. A single hot key
            stays in one.
        partitions: instead, how many the queues shall have in all, spread by their shares of the ring.
        order_by: columns to sort each partition by; without it, rows of a key may change their order.
        key: the column of the routing key, string or binary.

    Raises:
        InputError: the column is not there or no key, the ring is empty, or a number cannot be.
    """
    if by != "queue":
        raise InputError(f"by is {by!r}: there is only 'queue'")
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
    """The real name of the key's column, and whether it may be null."""
    from pyspark.sql.types import BinaryType, StringType

    found = [field for field in df.schema.fields if field.name.lower() == name.lower()]
    if len(found) != 1:
        problem = "is there twice" if found else "is missing"
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


def _partition_column(key: Column, ring: HashRing, placement: Placement, *, salted: bool) -> Column:
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
    """The partition of each key, or what `number_of` has for it. Runs in Python workers."""
    import numpy as np
    import pyarrow as pa

    indices = indices_or_hole(kept_ring(ring_json), keys)
    found = placement.partitions_of(indices, None if hashes is None else hashes.to_numpy())
    if number_of is not None:
        found = np.array(number_of, np.int32)[found]
    return pa.array(found, pa.int32())

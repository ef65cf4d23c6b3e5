"""Arrow batches from the rows that PySpark 4.0 passes to a stream's writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Row

_ROWS = 5_000
#: The Arrow type of every Spark type that a part of a message can have.
_ARROW: dict[type[DataType], Any] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    MapType: pa.map_(pa.string(), pa.string()),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def batches_of_rows(rows: Iterable[Row], schema: StructType, size: int = _ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the rows as batches. Columns of types that no part of a message has are null.

    Args:
        rows: rows of the schema.
        schema: the columns as Spark describes them.
        size: the most rows of a batch.
    """
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        columns = zip(*batch, strict=True)
        yield pa.RecordBatch.from_arrays(
            [_column(values, field.dataType) for values, field in zip(columns, schema.fields, strict=True)],
            names=schema.names,
        )


def _column(values: Sequence[Any], kind: DataType) -> Any:  # noqa: ANN401  # Arrow has no types
    if type(kind) not in _ARROW:
        return pa.nulls(len(values))
    if isinstance(kind, TimestampType):  # without a time zone, in that of this process
        values = [None if value is None else value.astimezone(UTC) for value in values]
    elif isinstance(kind, MapType):
        values = [None if value is None else list(value.items()) for value in values]
    return pa.array(values, type=_ARROW[type(kind)])

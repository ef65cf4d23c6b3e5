"""Rows as Arrow batches, for PySpark 4.0."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from spark_connector.writing.row_batches import batches_of_rows

if TYPE_CHECKING:
    from pyspark.sql import Row

NOON_IN_PARIS = datetime(2013, 1, 1, 12, 0, 0, 500_000, timezone(timedelta(hours=1)))
COLUMNS: dict[str, tuple[DataType, Any]] = {
    "key": (StringType(), "ü"),
    "value": (BinaryType(), b"v"),
    "priority": (IntegerType(), 9),
    "headers": (MapType(StringType(), StringType()), {"h": "1"}),
    "timestamp": (TimestampType(), NOON_IN_PARIS),
    "other": (StructType(), object()),
}


def test_every_type_and_null() -> None:
    schema = StructType()
    for name, (kind, _) in COLUMNS.items():
        schema = schema.add(name, kind)
    rows = [tuple(value for _, value in COLUMNS.values()), (None,) * len(COLUMNS)]
    (batch,) = batches_of_rows(cast("list[Row]", rows), schema)
    assert batch.schema.names == list(COLUMNS)
    assert batch.to_pylist() == [
        {
            "key": "ü",
            "value": b"v",
            "priority": 9,
            "headers": [("h", "1")],
            "timestamp": NOON_IN_PARIS,
            "other": None,
        },
        dict.fromkeys(COLUMNS),
    ]


def test_batches_have_at_most_their_size() -> None:
    schema = StructType().add("value", StringType())
    rows = cast("list[Row]", [(str(n),) for n in range(7)])
    assert [batch.num_rows for batch in batches_of_rows(rows, schema, size=3)] == [3, 3, 1]
    assert list(batches_of_rows([], schema)) == []

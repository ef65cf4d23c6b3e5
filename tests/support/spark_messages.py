"""Batches of rows, and the messages that a write makes of them, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types

from rabbit_chx.publishing import PublishReport
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports import FinishedTask
from spark_connector.writing.messages import MessageIds, Messages, build_messages

HEADERS = pa.map_(pa.string(), pa.string())
SPARK: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "tinyint": types.ByteType(),
    "timestamp": types.TimestampType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    "map<string,int>": types.MapType(types.StringType(), types.IntegerType()),
}
TYPES: dict[str, tuple[str, Any]] = {
    "headers": ("map<string,string>", HEADERS),
    "priority": ("int", pa.int32()),
    "delivery_mode": ("tinyint", pa.int8()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
}


def schema_of(ddl: str) -> types.StructType:
    """`StructType.fromDDL`, which needs a running Spark."""
    names_and_types = (part.split() for part in ddl.split(", "))
    return types.StructType([types.StructField(name, SPARK[kind]) for name, kind in names_and_types])


SCHEMA = schema_of("key string, value string")
#: Of a task that has written 5 rows.
DONE = FinishedTask(0, 0, rows=5, publish_report=PublishReport(rows=5, confirmed=5))


def options_of(**options: str) -> WriteOptions:
    """Of a write to the exchange `x`."""
    return WriteOptions.parse({"url": "amqp://h", "exchange": "x", **options})


def read(
    columns: dict[str, list[Any]],
    *,
    first_row: int = 0,
    ids: MessageIds | None = None,
    samples: int = 10,
    **options: str,
) -> Messages:
    """The messages of a batch with these columns, as the partition 3."""
    parsed = options_of(**options)
    kinds = {name: TYPES.get(name, ("string", pa.string())) for name in columns}
    schema = schema_of(", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items()))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, type=kinds[name][1]) for name, values in columns.items()], names=list(columns)
    )
    positions = MessageColumns.of(schema, parsed)
    return build_messages(
        batch, positions, parsed, partition=3, first_row=first_row, ids=ids, samples=samples
    )

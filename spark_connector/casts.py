"""The types that columns need, the SQL that casts others to them, and the mark of a column that orders rows."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rabbit_chx.errors import InputError

#: In the metadata of a column: `place_for_streams` has sorted the rows by it, before key and value.
ORDER_MARK = "rabbit_chx.order_by"
_ORDERED = (ByteType, ShortType, IntegerType, LongType, DateType, TimestampType, StringType, BinaryType)


def quote_name(name: str) -> str:
    """Return a column's name as Spark parses it: it may have dots, which else mean a field, backticks and spaces."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def _sql_text(name: str, kind: DataType) -> str:
    """Return SQL from a column or field to a text; a nested type becomes JSON."""
    nested = isinstance(kind, (StructType, ArrayType, MapType))
    return f"to_json({name})" if nested else f"cast({name} AS string)"


def for_text(name: str, kind: DataType) -> str:
    """Return SQL from a column, whose name is quoted, to a text, for an error message."""
    return f"`{_sql_text(name, kind)}`"


def for_int(name: str, _: DataType) -> str:
    """Return SQL from a column to a whole number."""
    return f"`cast({name} AS int)`"


def for_timestamp(name: str, kind: DataType) -> str:
    """Return SQL from a column to a timestamp. Spark reads a number as seconds, and sources often count milliseconds."""
    if isinstance(kind, (IntegerType, LongType)):
        return f"`timestamp_seconds({name})`, or `timestamp_millis({name})` if it counts milliseconds"
    return f"`cast({name} AS timestamp)`"


def for_headers(name: str, kind: DataType) -> str:
    """Return SQL to a map of texts from another map, the fields of a struct, or pairs as Kafka has them."""
    if isinstance(kind, StringType):
        return f"`from_json({name}, 'map<string,string>')` if it is JSON, else `map('name', {name})`"
    if isinstance(kind, StructType):
        return f"`from_json(to_json({name}), 'map<string,string>')`"
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return f"`transform_values({name}, (k, v) -> {_sql_text('v', kind.valueType)})`"
    if isinstance(kind, MapType):
        pair = f"{_sql_text('h.key', kind.keyType)}, {_sql_text('h.value', kind.valueType)}"
        return f"`map_from_entries(transform(map_entries({name}), h -> struct({pair})))`"
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if isinstance(element, StructType) and len(element) == 2:
        pair = ", ".join(_sql_text(f"h.{quote_name(part.name)}", part.dataType) for part in element)
        return f"`map_from_entries(transform({name}, h -> struct({pair})))`"
    return f"`map('name', {_sql_text(name, kind)})`"


def check_order_type(field: StructField) -> None:
    """Raise an InputError for a column whose values Spark and Arrow may order differently."""
    if not isinstance(field.dataType, _ORDERED):
        kind = field.dataType.simpleString()
        raise InputError(
            f"rows are ordered by column {field.name!r}, which is {kind}: order by a whole number, a date, a timestamp, a string or binary; "
            f"`cast({quote_name(field.name)} as ...)` makes one"
        )

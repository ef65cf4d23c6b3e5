"""The SQL that an error advises for a column of a type that AMQP cannot carry."""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructType


def _sql_name(name: str) -> str:
    """Return a name as SQL takes it: in backticks if it is no plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def _text(name: str, kind: DataType) -> str:
    """Return the SQL that makes a text of a column or a field; a nested type becomes JSON."""
    nested = isinstance(kind, (StructType, ArrayType, MapType))
    return f"to_json({name})" if nested else f"cast({name} AS string)"


def for_text(name: str, kind: DataType) -> str:
    """Return what makes a text of a column."""
    return f"`{_text(_sql_name(name), kind)}`"


def for_int(name: str, _: DataType) -> str:
    """Return what makes a whole number of a column."""
    return f"`cast({name} AS int)`"


def for_timestamp(name: str, kind: DataType) -> str:
    """Return what makes a timestamp of a column. Spark takes a number for seconds, and sources often count milliseconds."""
    if isinstance(kind, (IntegerType, LongType)):
        return f"`timestamp_seconds({name})`, or `timestamp_millis({name})` if it counts milliseconds"
    return f"`cast({name} AS timestamp)`"


def for_headers(name: str, kind: DataType) -> str:
    """Return what makes a map of texts: of another map, of the fields of a struct, or of pairs as Kafka has them."""
    if isinstance(kind, StringType):
        return f"`from_json({name}, 'map<string,string>')` if it is JSON, else `map('name', {name})`"
    if isinstance(kind, StructType):
        return f"`from_json(to_json({name}), 'map<string,string>')`"
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return f"`transform_values({name}, (k, v) -> {_text('v', kind.valueType)})`"
    if isinstance(kind, MapType):
        pair = f"{_text('h.key', kind.keyType)}, {_text('h.value', kind.valueType)}"
        return f"`map_from_entries(transform(map_entries({name}), h -> struct({pair})))`"
    if (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and len(kind.elementType) == 2
    ):
        pair = ", ".join(_text(f"h.{_sql_name(part.name)}", part.dataType) for part in kind.elementType)
        return f"`map_from_entries(transform({name}, h -> struct({pair})))`"
    return f"`map('name', {_text(name, kind)})`"

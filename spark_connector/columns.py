"""The columns of a DataFrame, and the parts of a message that they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
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
from spark_connector.options.write_options import WriteOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

# -- The types that columns need, the SQL that casts others to them, and the mark of a column that orders rows

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


Flags: TypeAlias = "NDArray[np.bool_]"

_MAX_EXPIRATION_MS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows of a batch that are bad for one reason.

    Attributes:
        rows: True for each bad row.
        reason: returns the description for the row at a position; it contains nothing of a body.
    """

    rows: Flags
    reason: Callable[[int], str]


def as_binary(column: Any) -> Any:  # Arrow has no types
    """Return a text column as its bytes, without a copy or decoding: a string of Spark need not be valid UTF-8."""
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.view(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def whole_seconds(column: Any) -> Any:
    """Return timestamps in microseconds as whole seconds since 1970, rounded down; null stays null.

    Arrow's own rounding uses local time: it fails in an hour that occurs twice, and for a time zone that only Spark supports.
    """
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(micros // 1_000_000, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column that a DataFrame may have.

    Attributes:
        name: the name in lower case; users may write it in any case.
        types: the names of the types in the documents.
        recipe: returns the SQL that an error advises for a column of this quoted name and type.
        meaning: one line for the documents; empty if the name says it.
        convert: returns the values of a message property, of a column of Arrow.
        find_fault: returns the rows whose values the broker would refuse, of a name and a column of Arrow; None if it takes each value.
    """

    name: str
    types: str
    accepted: tuple[type[DataType], ...]
    recipe: Callable[[str, DataType], str]
    meaning: str
    convert: Callable[[Any], Any] = as_binary
    find_fault: Callable[[str, Any], Fault] | None = None

    @property
    def is_text(self) -> bool:
        """True if AMQP carries the value as a short string."""
        return StringType in self.accepted


def _out_of_range(low: int, high: int | None, convert: Callable[[Any], Any]) -> Callable[[str, Any], Fault]:
    """Return a check that converted values are within bounds; None for no bound."""
    allowed = f"{low} to {high} is possible" if high is not None else f"{low} and more is possible"

    def find(name: str, column: Any) -> Fault:
        numbers = convert(column).cast(pa.int64()).fill_null(low).to_numpy(zero_copy_only=False)
        return Fault(
            (numbers < low) if high is None else (numbers < low) | (numbers > high),
            lambda at: f"column {name!r} is {numbers[at]}: {allowed}",
        )

    return find


def _is_expiration(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 10 and int(text) <= _MAX_EXPIRATION_MS


def _bad_expirations(name: str, column: Any) -> Fault:
    """Find invalid expirations, which close the channel (rabbitmq-server v4.3.0, rabbit_misc.erl, check_expiry/1)."""
    texts = as_binary(column).to_pylist()

    bad = [text is not None and not _is_expiration(text) for text in texts]
    return Fault(
        np.array(bad, bool),
        lambda at: (
            f"column {name!r} is {texts[at][:40]!r}: "
            f"pass milliseconds, 0 to {_MAX_EXPIRATION_MS}, as a text of digits"
        ),
    )


def _text(name: str, meaning: str = "", find_fault: Callable[[str, Any], Fault] | None = None) -> KnownColumn:
    return KnownColumn(name, "string", (StringType,), for_text, meaning, find_fault=find_fault)


def _bytes(name: str, meaning: str) -> KnownColumn:
    return KnownColumn(name, "string or binary", (StringType, BinaryType), for_text, meaning)


def _whole(name: str, low: int, high: int, meaning: str) -> KnownColumn:
    types = (ByteType, ShortType, IntegerType)
    find_fault = _out_of_range(low, high, as_binary)
    return KnownColumn(name, "tinyint, smallint or int", types, for_int, meaning, find_fault=find_fault)


def _time(name: str, meaning: str) -> KnownColumn:
    find_fault = _out_of_range(0, None, whole_seconds)
    return KnownColumn(name, "timestamp", (TimestampType,), for_timestamp, meaning, whole_seconds, find_fault)


_KEY = "the routing key, at most 255 bytes of UTF-8; required without `routingKey` and `queue`; also called `routing_key`"
_HEADERS = "for headers that are the same in every row use `headersConst`, which is faster"

#: Every column; those after `headers` are message properties of the same name.
COLUMNS: tuple[KnownColumn, ...] = (
    _bytes("value", "the body; required"),
    _bytes("key", _KEY),
    _text("exchange", "the exchange; null means that of the option; needs `allowExchangeColumn`"),
    KnownColumn("headers", "map<string,string>", (MapType,), for_headers, _HEADERS),
    _text("message_id", "by which consumers drop repeats"),
    _text("correlation_id"),
    _text("content_type"),
    _text("content_encoding"),
    _text("type"),
    _text("app_id"),
    _text("reply_to"),
    _text("expiration", "milliseconds in a queue, as a text of digits", _bad_expirations),
    _whole("priority", 0, 255, "0 to 255"),
    _time("timestamp", "whole seconds on the wire"),
    _whole("delivery_mode", 1, 2, "1 or 2; null means that of `persistent`"),
)
KNOWN_COLUMNS = {column.name: column for column in COLUMNS}
_ALIASES = {"routing_key": "key"}
_NO_PROPERTIES = ("value", "key", "exchange", "headers")


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Positions of the columns in each batch; None for a column that the frame does not have."""

    value: int
    key: int | None
    exchange: int | None
    headers: int | None
    properties: Mapping[str, int]
    filter_value: int | None = None
    order: int | None = None

    @property
    def positions(self) -> dict[str, int]:
        """The positions of all columns that the frame has, by part of the message."""
        named = {"key": self.key, "value": self.value, "exchange": self.exchange, "headers": self.headers}
        return {name: at for name, at in named.items() if at is not None} | dict(self.properties)

    @classmethod
    def of(cls, schema: StructType, options: WriteOptions) -> MessageColumns:
        """Return the positions of the columns of a frame; an InputError if a column is missing, repeated, unknown, or of the wrong type."""
        _check_column_names(schema, options)
        positions: dict[str, int] = {}
        named = _find_named_columns(schema, options)
        for position, field in enumerate(schema.fields):
            roles = _roles(field.name, options)
            if position in named.values() and not {*roles} & {"key", "value"}:
                continue
            if not roles and not options.ignore_unknown_columns:
                raise InputError(
                    f"column {field.name!r} is not part of a message: drop it, put it into the value with "
                    "`to_json(struct(*))`, name its part in columnNames, or set ignoreUnknownColumns; parts are "
                    f"{', '.join(KNOWN_COLUMNS)}"
                )

            for role in roles:
                if role in positions:
                    raise InputError(f"column {field.name!r}: there is a second column {role}: drop one")
                _check_type(field, KNOWN_COLUMNS[role])
                positions[role] = position

        keyless = options.queue or options.routing_key is not None
        _check_options(positions, options)
        for role, content in (("value", "the body of the message"), ("key", "its routing key")):
            if role not in positions and not (role == "key" and keyless):
                names = ", ".join(repr(field.name) for field in schema.fields) or "none"
                raise InputError(
                    f"column {role!r} is missing: it holds {content}, as a string or binary (columns are: {names})"
                )

        return cls(
            value=positions["value"],
            # The default exchange routes by the name of the queue.
            key=None if options.queue else positions.get("key"),
            exchange=positions.get("exchange"),
            headers=positions.get("headers"),
            properties={name: at for name, at in positions.items() if name not in _NO_PROPERTIES},
            filter_value=named.get("filterValueColumn"),
            order=named.get("orderBy"),
        )


def _check_column_names(schema: StructType, options: WriteOptions) -> None:
    names = {field.name.lower() for field in schema.fields}
    for part, name in options.column_names.items():
        if part not in KNOWN_COLUMNS:
            raise InputError(
                f"option 'columnNames': {part!r} is not part of a message: parts are {', '.join(KNOWN_COLUMNS)}"
            )
        if name.lower() not in names:
            raise InputError(
                f"column {name!r} is missing, which columnNames names for the {part}: add it, or leave it out"
            )


def _roles(name: str, options: WriteOptions) -> list[str]:
    """Return the parts of a message that a column is: those of ``columnNames``, and that of its name if it has no other column."""
    own = _ALIASES.get(name.lower(), name.lower())
    roles = [part for part, column in options.column_names.items() if column.lower() == name.lower()]
    return [*roles, own] if own in KNOWN_COLUMNS and own not in options.column_names else roles


def _find_named_columns(schema: StructType, options: WriteOptions) -> dict[str, int]:
    """Return the positions of the columns that options name, by option; an InputError if one is missing, or of the wrong type."""
    positions = {}
    for option, name in (("filterValueColumn", options.filter_value_column), ("orderBy", options.order_by)):
        if name is None:
            continue
        found = [at for at, field in enumerate(schema.fields) if field.name.lower() == name.lower()]
        if not found:
            raise InputError(f"column {name!r} is missing, which {option} names: add it, or leave it out")
        field = schema.fields[found[-1]]
        if option == "orderBy":
            check_order_type(field)
        else:
            _check_type(field, KNOWN_COLUMNS["key"])
        positions[option] = found[-1]
    return positions


def _check_type(field: StructField, column: KnownColumn) -> None:
    kind = field.dataType
    is_accepted = isinstance(kind, column.accepted)
    if is_accepted and isinstance(kind, MapType):
        is_accepted = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not is_accepted:
        raise InputError(
            f"column {field.name!r} is {kind.simpleString()}, not {column.types}: "
            f"use {column.recipe(quote_name(field.name), kind)}"
        )


def _check_options(positions: Mapping[str, int], options: WriteOptions) -> None:
    for name in positions:
        if options.to_streams and name not in ("key", "value"):
            raise InputError(
                f"column {name!r}: rows of streams have a key and a value alone: drop the column, or put it into the value"
            )

    if "exchange" in positions and not options.allow_exchange_column:
        raise InputError("column 'exchange': set allowExchangeColumn to true, or drop the column")
    if "exchange" not in positions and not options.target:
        raise InputError("option 'exchange' is missing, and there is no column 'exchange': pass one of them")
    if "key" in positions and options.routing_key is not None:
        raise InputError("option 'routingKey' and a column 'key' are both given: drop one of them")
    if options.message_id == "column" and "message_id" not in positions:
        raise InputError("option 'messageId' is 'column', but there is no column 'message_id': add it")
    if options.keep_order and "priority" in positions:
        raise InputError(
            "option 'ordering' is 'per-key', and there is a column 'priority': quorum queues from RabbitMQ 4.0 on, and queues with "
            "x-max-priority, deliver a higher priority first: drop one of them"
        )
    if options.message_id == "auto" and "message_id" in positions:
        raise InputError("option 'messageId' is 'auto', but there is a column 'message_id': drop one of them")

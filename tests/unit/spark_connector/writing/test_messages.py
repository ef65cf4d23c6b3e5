"""Rows of a batch: what is published of them, and which are bad."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rabbit_chx.errors import InputError, RowError
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports.write_report import hash_of_key
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.message_ids import MessageIds
from spark_connector.writing.messages import Messages, messages_of

HEADERS = pa.map_(pa.string(), pa.string())
SPARK: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "tinyint": ByteType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
TYPES: dict[str, tuple[str, Any]] = {
    "headers": ("map<string,string>", HEADERS),
    "priority": ("int", pa.int32()),
    "delivery_mode": ("tinyint", pa.int8()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
}


def schema_of(ddl: str) -> StructType:
    """`StructType.fromDDL`, which needs a running Spark."""
    names_and_types = (part.split() for part in ddl.split(", "))
    return StructType([StructField(name, SPARK[kind]) for name, kind in names_and_types])


def options_of(**options: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://h", "exchange": "x", **options})


def read(
    columns: dict[str, list[Any]],
    *,
    first_row: int = 0,
    ids: MessageIds | None = None,
    samples: int = 10,
    **options: str,
) -> Messages:
    parsed = options_of(**options)
    types = {name: TYPES.get(name, ("string", pa.string())) for name in columns}
    schema = schema_of(", ".join(f"{name} {kind}" for name, (kind, _) in types.items()))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, type=types[name][1]) for name, values in columns.items()], names=list(columns)
    )
    found = MessageColumns.of(schema, parsed)
    return messages_of(batch, found, parsed, partition=3, first_row=first_row, ids=ids, samples=samples)


def as_lists(messages: Messages) -> dict[str, Any]:
    return {
        name: column.to_pylist() if hasattr(column, "to_pylist") else column
        for name, column in messages.properties.items()
    }


def test_text_goes_as_its_bytes() -> None:
    messages = read({"key": ["k", "ü"], "value": ["", "v"]})
    assert messages.keys.to_pylist() == [b"k", "ü".encode()]
    assert messages.bodies.to_pylist() == [b"", b"v"]
    assert not messages.properties
    assert messages.exchanges is None


def test_what_spark_calls_a_string_need_not_be_utf8() -> None:
    keys = pa.array([b"\xff"]).view(pa.string())
    schema = schema_of("key string, value string")
    batch = pa.RecordBatch.from_arrays([keys, keys], names=["key", "value"])
    options = options_of()
    assert messages_of(batch, MessageColumns.of(schema, options), options).bodies.to_pylist() == [b"\xff"]


def test_a_constant_key_and_exchanges_row_by_row() -> None:
    messages = read(
        {"value": ["a", "b"], "exchange": ["y", None]}, routingKey="k", allowExchangeColumn="true"
    )
    assert messages.keys == [b"k", b"k"]
    assert messages.exchanges.to_pylist() == [b"y", b"x"]


def test_properties_and_headers() -> None:
    messages = read(
        {
            "key": ["k", "k"],
            "value": ["a", "b"],
            "message_id": ["m", None],
            "reply_to": [None, None],
            "timestamp": [datetime(2013, 1, 1, 0, 0, 1, 999_999, UTC), None],
            "priority": [9, None],
            "headers": [[("h", "1"), ("c", "2")], None],
        },
        headersConst='{"c": "0", "d": 1}',
    )
    assert as_lists(messages) == {
        "message_id": [b"m", None],
        "timestamp": [1_356_998_401, None],
        "priority": [9, None],
        "headers": [{"c": "2", "d": 1, "h": "1"}, None],
    }


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "UTC+01:00", "+05:30"])
def test_times_in_any_zone_and_in_the_hour_that_comes_twice(zone: str) -> None:
    """Local time in New York went from 1:59:59 to 1:00:00 at the second of these."""
    micros = [1_383_456_600_000_000, 1_383_458_400_999_999, None, (1 << 63) - 1]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["v"] * 4), pa.array(micros, pa.timestamp("us", zone))], names=["value", "timestamp"]
    )
    options = options_of(routingKey="k")
    columns = MessageColumns.of(schema_of("value string, timestamp timestamp"), options)
    assert as_lists(messages_of(batch, columns, options)) == {
        "timestamp": [1_383_456_600, 1_383_458_400, None, 9_223_372_036_854]
    }


def test_made_ids_are_those_of_the_rows_that_are_published() -> None:
    columns: dict[str, list[Any]] = {
        "key": ["a", None, "c"],
        "value": ["1", "2", "3"],
        "headers": [None, None, [("h", "1")]],
    }
    made = read(columns, ids=MessageIds("w", 0, 3), badRows="skip").properties["message_id"]
    good = {name: [values[0], values[2]] for name, values in columns.items()}
    assert made == read(good, ids=MessageIds("w", 0, 3)).properties["message_id"]
    assert len(set(made)) == 2


def test_every_bad_row_is_counted_also_where_few_are_shown() -> None:
    messages = read({"key": [None] * 5 + ["k"], "value": ["v"] * 6}, samples=2, badRows="skip")
    assert (messages.skipped, len(messages.samples), len(messages)) == (5, 2, 1)


GOOD: dict[str, Any] = {"key": "k" * 255, "value": "v"}


@pytest.mark.parametrize(
    ("bad", "options", "reason"),
    [
        ({"key": None}, {}, "column 'key' is null: filter such rows, or fill them with coalesce"),
        ({"value": None}, {}, "column 'value' is null"),
        (
            {"key": "é" * 128},
            {},
            "column 'key' is 256 bytes long; AMQP allows 255: shorten it, or use its hash",
        ),
        (
            {"value": "v" * 11},
            {"maxMessageBytes": "10"},
            "the value is 11 bytes long, and maxMessageBytes is 10",
        ),
        ({"message_id": "m" * 256}, {}, "column 'message_id' is 256 bytes long"),
        ({"message_id": None}, {"messageId": "column"}, "column 'message_id' is null"),
        ({"priority": 256}, {}, "column 'priority' is 256: 0 to 255 is possible"),
        ({"priority": -1}, {}, "column 'priority' is -1"),
        ({"delivery_mode": 0}, {}, "column 'delivery_mode' is 0: 1 to 2 is possible"),
        ({"timestamp": datetime(1969, 12, 31, tzinfo=UTC)}, {}, "column 'timestamp' is -86400"),
        (
            {"timestamp": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)},
            {},
            "column 'timestamp' is -1: 0 and more is possible",
        ),
        ({"expiration": "1 h"}, {}, "column 'expiration' is b'1 h': give milliseconds"),
        ({"expiration": "4294967296"}, {}, "column 'expiration' is b'4294967296'"),
        ({"headers": [("CC", "k")]}, {}, "a header CC or BCC gives RabbitMQ further routing keys"),
        ({"headers": [("h" * 256, "v")]}, {}, "the name of a header is longer than 255 bytes"),
        ({"headers": [("h", "v" * 100_001)]}, {}, "the headers are 100,008 bytes long"),
        ({"exchange": "é" * 128}, {"allowExchangeColumn": "true"}, "column 'exchange' is 256 bytes long"),
        ({"exchange": None}, {"allowExchangeColumn": "true", "exchange": ""}, "column 'exchange' is null"),
    ],
)
def test_bad_rows(bad: dict[str, Any], options: dict[str, Any], reason: str) -> None:
    good = {**GOOD, **{name: _good(name) for name in bad if name not in GOOD}}
    columns = {name: [good[name], bad.get(name, good[name]), good[name]] for name in good}
    with pytest.raises(RowError) as caught:
        read(columns, first_row=100, **options)
    assert str(caught.value).startswith(f"row 101: {reason}")

    messages = read(columns, first_row=100, badRows="skip", **options)
    assert (len(messages), messages.skipped) == (2, 1)
    (sample,) = messages.samples
    assert (sample.partition, sample.row) == (3, 101)
    assert sample.reason.startswith(reason)
    key = columns["key"][1]
    assert sample.key_hash == (None if key is None else hash_of_key(key.encode()))
    assert set(messages.keys.to_pylist()) == {b"k" * 255}


def _good(name: str) -> Any:
    return {
        "priority": 255,
        "delivery_mode": 1,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
        "expiration": "4294967295",
        "headers": [("cc", "v"), ("h" * 255, "v" * 99_000)],
        "exchange": "e" * 255,
    }.get(name, "m" * 255)


@pytest.mark.parametrize("pair", [(b"h", b"\xff"), (b"\xff", b"v")])
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_headers_that_are_no_utf8_make_a_bad_row(pair: tuple[bytes, bytes], text: Any) -> None:
    binary = pa.large_binary() if text == pa.large_string() else pa.binary()
    names, values = (pa.array([b"ok", piece, b"ok"], binary).view(text) for piece in pair)
    offsets: Any = pa.array([0, 1, 2, 3], pa.int32())
    headers = pa.MapArray.from_arrays(offsets, names, values)
    batch = pa.RecordBatch.from_arrays([pa.array(["v"] * 3), headers], names=["value", "headers"])
    options = options_of(routingKey="k", badRows="skip")
    columns = MessageColumns.of(schema_of("value string, headers map<string,string>"), options)
    messages = messages_of(batch, columns, options)
    assert [(sample.row, sample.reason) for sample in messages.samples] == [
        (1, "a header is no valid UTF-8: make it so with base64")
    ]
    assert as_lists(messages) == {"headers": [{"ok": "ok"}] * 2}


def test_headers_of_a_row_and_of_the_option_share_a_frame() -> None:
    messages = read(
        {"key": ["k", "k"], "value": ["v", "v"], "headers": [[("h", "v" * 60_000)], None]},
        headersConst='{"c": "' + "c" * 60_000 + '"}',
        badRows="skip",
    )
    (sample,) = messages.samples
    assert (sample.row, sample.reason[:38]) == (0, "the headers are 120,014 bytes long wit")


def test_headers_of_a_slice() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["k"] * 3),
            pa.array(["v"] * 3),
            pa.array([[("CC", "1")], [("a", "1")], None], type=HEADERS),
        ],
        names=["key", "value", "headers"],
    )
    schema = schema_of("key string, value string, headers map<string,string>")
    options = options_of()
    columns = MessageColumns.of(schema, options)
    assert as_lists(messages_of(batch.slice(1), columns, options)) == {"headers": [{"a": "1"}, None]}


# -- columns


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("key string", {}, "column 'value' is missing: it holds the body of the message"),
        ("value string", {}, "column 'key' is missing: it holds its routing key"),
        (
            "key string, value int",
            {},
            r"column 'value' is int, not string or binary: use `to_json\(value\)` or",
        ),
        (
            "key string, value string, Priority string",
            {},
            r"'Priority' is string, not tinyint.*`cast\(Priority AS int\)`",
        ),
        (
            "key string, value string, headers map<string,int>",
            {},
            "is map<string,int>, not map<string,string>",
        ),
        (
            "key string, value string, city string",
            {},
            "column 'city' is no part of a message.*or set ignoreUnknown",
        ),
        ("key string, routing_key string, value string", {}, "there is a second column for the key"),
        ("key string, value string, exchange string", {}, "column 'exchange': set allowExchangeColumn"),
        ("key string, value string", {"exchange": "", "allowExchangeColumn": "true"}, "no column 'exchange'"),
        ("key string, value string", {"routingKey": "k"}, "option 'routingKey' and a column 'key'"),
        ("key string, value string", {"messageId": "column"}, "there is no column 'message_id': add it"),
        ("key string, value string, message_id string", {"messageId": "auto"}, "drop the one or the other"),
    ],
)
def test_bad_columns(ddl: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MessageColumns.of(schema_of(ddl), options_of(**options))


def test_unknown_columns_can_be_left_out() -> None:
    columns = MessageColumns.of(
        schema_of("city int, VALUE binary, Routing_Key string, Type string"),
        options_of(ignoreUnknownColumns="true"),
    )
    assert (columns.value, columns.key, columns.properties) == (1, 2, {"type": 3})

"""The rows of a batch as messages, and rows that AMQP cannot carry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from spark_messages import HEADERS, as_lists, options_of, read, schema_of

from rabbit_chx.errors import RowError
from spark_connector.columns import MessageColumns
from spark_connector.reports import hash_key
from spark_connector.writing.messages import MessageIds, build_messages, list_checks


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
    assert build_messages(batch, MessageColumns.of(schema, options), options).bodies.to_pylist() == [b"\xff"]


def test_a_constant_key_and_exchanges_row_by_row() -> None:
    messages = read(
        {"value": ["a", "b"], "exchange": ["y", None]}, routingKey="k", allowExchangeColumn="true"
    )
    assert messages.keys == [b"k", b"k"]
    assert messages.exchanges.to_pylist() == [b"y", b"x"]


def test_columns_become_properties_and_headers() -> None:
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
def test_times_of_any_zone_become_seconds_of_utc(zone: str) -> None:
    """Local time in New York went from 1:59:59 to 1:00:00 at the second of these."""
    micros = [1_383_456_600_000_000, 1_383_458_400_999_999, None, (1 << 63) - 1]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["v"] * 4), pa.array(micros, pa.timestamp("us", zone))], names=["value", "timestamp"]
    )
    options = options_of(routingKey="k")
    columns = MessageColumns.of(schema_of("value string, timestamp timestamp"), options)
    assert as_lists(build_messages(batch, columns, options)) == {
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


def test_a_slice_has_the_headers_of_its_own_rows() -> None:
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
    assert as_lists(build_messages(batch.slice(1), columns, options)) == {"headers": [{"a": "1"}, None]}


GOOD: dict[str, Any] = {"key": "k" * 255, "value": "v"}


@pytest.mark.parametrize(
    ("bad", "options", "reason"),
    [
        ({"key": None}, {}, "column 'key' is null: filter such rows, or fill them with coalesce"),
        ({"value": None}, {}, "column 'value' is null"),
        (
            {"key": "é" * 128},
            {},
            "column 'key' is longer than 255 bytes (it has 256 bytes): shorten it, or use its hash",
        ),
        (
            {"value": "v" * 11},
            {"maxMessageBytes": "10"},
            "the value is longer than maxMessageBytes (it has 11 bytes): raise maxMessageBytes, which is 10, as",
        ),
        ({"message_id": "m" * 256}, {}, "column 'message_id' is longer than 255 bytes (it has 256 bytes)"),
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
        ({"expiration": "1 h"}, {}, "column 'expiration' is b'1 h': pass milliseconds"),
        ({"expiration": "4294967296"}, {}, "column 'expiration' is b'4294967296'"),
        ({"headers": [("CC", "k")]}, {}, "a header CC or BCC gives RabbitMQ further routing keys"),
        ({"headers": [("BCC", "k")]}, {}, "a header CC or BCC gives RabbitMQ further routing keys"),
        ({"headers": [("h" * 256, "v")]}, {}, "the name of a header is longer than 255 bytes"),
        ({"headers": [("h", "v" * 100_001)]}, {}, "the headers are 100,008 bytes long"),
        (
            {"exchange": "é" * 128},
            {"allowExchangeColumn": "true"},
            "column 'exchange' is longer than 255 bytes (it has 256 bytes)",
        ),
        ({"exchange": None}, {"allowExchangeColumn": "true", "exchange": ""}, "column 'exchange' is null"),
    ],
)
def test_a_bad_row_is_refused_or_skipped_with_its_reason(
    bad: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
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
    assert sample.key_hash == (None if key is None else hash_key(key.encode()))
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


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (
            (b"h", b"\xff"),
            "a header is not valid UTF-8: encode it with base64: `transform_values(headers, (k, v) -> base64(v))`",
        ),
        (
            (b"\xff", b"v"),
            "the name of a header is not valid UTF-8: encode it with base64: `transform_keys(headers, (k, v) -> base64(k))`",
        ),
    ],
)
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_headers_that_are_not_utf8_make_a_bad_row(pair: tuple[bytes, bytes], reason: str, text: Any) -> None:
    binary = pa.large_binary() if text == pa.large_string() else pa.binary()
    names, values = (pa.array([b"ok", piece, b"ok"], binary).view(text) for piece in pair)
    offsets: Any = pa.array([0, 1, 2, 3], pa.int32())
    headers = pa.MapArray.from_arrays(offsets, names, values)
    batch = pa.RecordBatch.from_arrays([pa.array(["v"] * 3), headers], names=["value", "headers"])
    options = options_of(routingKey="k", badRows="skip")
    columns = MessageColumns.of(schema_of("value string, headers map<string,string>"), options)
    messages = build_messages(batch, columns, options)
    assert [(sample.row, sample.reason) for sample in messages.samples] == [(1, reason)]
    assert as_lists(messages) == {"headers": [{"ok": "ok"}] * 2}


def test_headers_of_a_row_and_of_the_option_share_a_frame() -> None:
    messages = read(
        {"key": ["k", "k"], "value": ["v", "v"], "headers": [[("h", "v" * 60_000)], None]},
        headersConst='{"c": "' + "c" * 60_000 + '"}',
        badRows="skip",
    )
    (sample,) = messages.samples
    assert (sample.row, sample.reason[:38]) == (0, "the headers are 120,014 bytes long wit")


def test_a_dry_run_and_a_write_call_a_fault_by_the_same_words() -> None:
    options = options_of(allowExchangeColumn="true", exchange="", messageId="column", maxMessageBytes="10")
    names = ("key", "value", "exchange", "message_id", "reply_to", "priority")
    kinds = {"priority": "int"}
    columns = MessageColumns.of(
        schema_of(", ".join(f"{name} {kinds.get(name, 'string')}" for name in names)), options
    )
    faults = [check.fault for check in list_checks(columns, options)]
    assert len(set(faults)) == len(faults)
    assert set(faults) == {
        "column 'value' is null",
        "the value is longer than maxMessageBytes",
        "column 'key' is null",
        "column 'key' is longer than 255 bytes",
        "column 'exchange' is longer than 255 bytes",
        "column 'exchange' is null",
        "column 'message_id' is longer than 255 bytes",
        "column 'message_id' is null",
        "column 'reply_to' is longer than 255 bytes",
    }
    too_long = {"key": "k" * 256, "exchange": "e", "message_id": "m", "value": "v"}
    (sample,) = read(
        {name: [text] for name, text in too_long.items()}, badRows="skip", allowExchangeColumn="true"
    ).samples
    assert sample.reason.startswith("column 'key' is longer than 255 bytes (it has 256 bytes): ")

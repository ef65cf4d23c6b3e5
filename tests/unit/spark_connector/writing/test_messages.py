"""The rows of a batch as messages, and rows that AMQP cannot carry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from spark_messages import HEADERS, options_of, read, schema_of

from rabbit_chx.errors import RowError
from spark_connector.columns import MessageColumns
from spark_connector.reports import hash_key
from spark_connector.writing.messages import MessageIds, Messages, build_messages


def as_lists(messages: Messages) -> dict[str, Any]:
    """Properties as Python values."""
    return {
        name: column.to_pylist() if hasattr(column, "to_pylist") else column
        for name, column in messages.properties.items()
    }


def built(batch: dict[str, Any], ddl: str, **options: str) -> Messages:
    """The messages of columns of Arrow."""
    given = options_of(**options)
    return build_messages(pa.RecordBatch.from_pydict(batch), MessageColumns.of(schema_of(ddl), given), given)


def test_what_spark_calls_a_string_need_not_be_utf8() -> None:
    keys = pa.array([b"\xff"]).view(pa.string())
    assert built({"key": keys, "value": keys}, "key string, value string").bodies.to_pylist() == [b"\xff"]


def test_a_constant_key_and_exchanges_row_by_row() -> None:
    rows: dict[str, list[Any]] = {"value": ["a", "b"], "exchange": ["y", None]}
    messages = read(rows, routingKey="k", allowExchangeColumn="true")
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
    batch = {"value": ["v"] * 4, "timestamp": pa.array(micros, pa.timestamp("us", zone))}
    assert as_lists(built(batch, "value string, timestamp timestamp", routingKey="k")) == {
        "timestamp": [1_383_456_600, 1_383_458_400, None, 9_223_372_036_854]
    }


def test_made_ids_are_those_of_the_rows_that_are_published() -> None:
    columns: dict[str, list[Any]] = {"key": ["a", None, "c"], "value": ["1", "2", "3"]}
    columns["headers"] = [None, None, [("h", "1")]]
    made = read(columns, ids=MessageIds("w", 0, 3), badRows="skip").properties["message_id"]
    good = {name: [values[0], values[2]] for name, values in columns.items()}
    assert made == read(good, ids=MessageIds("w", 0, 3)).properties["message_id"]
    assert len(set(made)) == 2


def test_every_bad_row_is_counted_also_where_few_are_shown() -> None:
    messages = read({"key": [None] * 5 + ["k"], "value": ["v"] * 6}, samples=2, badRows="skip")
    assert (messages.skipped, len(messages.samples), len(messages)) == (5, 2, 1)


def test_a_slice_has_the_headers_of_its_own_rows() -> None:
    headers = pa.array([[("CC", "1")], [("a", "1")], None], type=HEADERS)
    batch = {"key": ["k"] * 2, "value": ["v"] * 2, "headers": headers.slice(1)}
    messages = built(batch, "key string, value string, headers map<string,string>")
    assert as_lists(messages) == {"headers": [{"a": "1"}, None]}


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GOOD: dict[str, Any] = {"key": "k" * 255, "value": "v"}
#: The largest values of other columns; of the rest it is "m" * 255.
LARGEST: dict[str, Any] = {
    "priority": 255,
    "delivery_mode": 1,
    "timestamp": EPOCH,
    "expiration": "4294967295",
    "headers": [("cc", "v"), ("h" * 255, "v" * 99_000)],
}
LONGER = "is longer than 255 bytes (it has 256 bytes)"
TOO_LARGE = (
    "the value is longer than maxMessageBytes (it has 11 bytes): raise maxMessageBytes, which is 10, as"
)


@pytest.mark.parametrize(
    ("bad", "options", "reason"),
    [
        ({"key": None}, {}, "column 'key' is null: filter such rows, or fill them with coalesce"),
        ({"value": None}, {}, "column 'value' is null"),
        ({"key": "é" * 128}, {}, f"column 'key' {LONGER}: shorten it, or use its hash"),
        ({"value": "v" * 11}, {"maxMessageBytes": "10"}, TOO_LARGE),
        ({"message_id": "m" * 256}, {}, f"column 'message_id' {LONGER}"),
        ({"message_id": None}, {"messageId": "column"}, "column 'message_id' is null"),
        ({"priority": 256}, {}, "column 'priority' is 256: 0 to 255 is possible"),
        ({"priority": -1}, {}, "column 'priority' is -1"),
        ({"delivery_mode": 0}, {}, "column 'delivery_mode' is 0: 1 to 2 is possible"),
        ({"timestamp": EPOCH - timedelta(days=1)}, {}, "column 'timestamp' is -86400"),
        ({"timestamp": EPOCH - timedelta(seconds=0.5)}, {}, "column 'timestamp' is -1: 0 and more is"),
        ({"expiration": "1 h"}, {}, "column 'expiration' is b'1 h': pass milliseconds"),
        ({"expiration": "4294967296"}, {}, "column 'expiration' is b'4294967296'"),
        ({"headers": [("CC", "k")]}, {}, "a header CC or BCC gives RabbitMQ further routing keys"),
        ({"headers": [("BCC", "k")]}, {}, "a header CC or BCC gives RabbitMQ further routing keys"),
        ({"headers": [("h" * 256, "v")]}, {}, "the name of a header is longer than 255 bytes"),
        ({"headers": [("h", "v" * 100_001)]}, {}, "the headers are 100,008 bytes long"),
        ({"exchange": "é" * 128}, {"allowExchangeColumn": "true"}, f"column 'exchange' {LONGER}"),
        ({"exchange": None}, {"allowExchangeColumn": "true", "exchange": ""}, "column 'exchange' is null"),
    ],
)
def test_a_bad_row_is_refused_or_skipped(bad: dict[str, Any], options: dict[str, Any], reason: str) -> None:
    good = {**{name: LARGEST.get(name, "m" * 255) for name in bad}, **GOOD}
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


BASE64 = "is not valid UTF-8: encode it with base64: `transform"


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((b"h", b"\xff"), f"a header {BASE64}_values(headers, (k, v) -> base64(v))`"),
        ((b"\xff", b"v"), f"the name of a header {BASE64}_keys(headers, (k, v) -> base64(k))`"),
    ],
)
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_headers_that_are_not_utf8_make_a_bad_row(pair: tuple[bytes, bytes], reason: str, text: Any) -> None:
    binary = pa.large_binary() if text == pa.large_string() else pa.binary()
    names, values = (pa.array([b"ok", piece, b"ok"], binary).view(text) for piece in pair)
    offsets: Any = pa.array([0, 1, 2, 3], pa.int32())
    headers = pa.MapArray.from_arrays(offsets, names, values)
    batch, ddl = {"value": ["v"] * 3, "headers": headers}, "value string, headers map<string,string>"
    messages = built(batch, ddl, routingKey="k", badRows="skip")
    assert [(sample.row, sample.reason) for sample in messages.samples] == [(1, reason)]
    assert as_lists(messages) == {"headers": [{"ok": "ok"}] * 2}


def test_headers_of_a_row_and_of_the_option_share_a_frame() -> None:
    rows: dict[str, list[Any]] = {
        "key": ["k", "k"],
        "value": ["v", "v"],
        "headers": [[("h", "v" * 60_000)], None],
    }
    messages = read(rows, headersConst='{"c": "' + "c" * 60_000 + '"}', badRows="skip")
    (sample,) = messages.samples
    assert (sample.row, sample.reason[:38]) == (0, "the headers are 120,014 bytes long wit")

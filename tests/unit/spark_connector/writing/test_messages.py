"""Rows of a batch as messages: what is published of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from spark_messages import HEADERS, as_lists, options_of, read, schema_of

from spark_connector.columns import MessageColumns
from spark_connector.writing.messages import MessageIds, build_messages


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
    assert as_lists(build_messages(batch.slice(1), columns, options)) == {"headers": [{"a": "1"}, None]}

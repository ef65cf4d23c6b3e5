"""Streams are read as they are on a real broker: each row once, up to an end that is fixed, or an error that says what is missing."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from bounded import until
from publishing_support import through
from streamed import Streamed
from tcp_proxy import Proxy

from rabbit_chx.errors import MissingRowsError, NotFoundError
from rabbit_chx.streams import StreamReader

pytestmark = pytest.mark.broker

ROWS = 3_000
#: More than a reader has ahead of its caller.
MANY = 30_000
LARGE_BODY = "x" * 1_000


def reader(stream: Streamed, line: Proxy | None = None, **arguments: Any) -> StreamReader:
    url = stream.broker.stream_url
    return StreamReader(through(url, line.port) if line else url, "s", **arguments)


def values(batches: Any) -> list[str]:
    return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


def table_of(batches: Any) -> Any:
    return pa.Table.from_batches(list(batches))


def test_all_rows_come_once_and_in_order_as_columns(stream: Streamed) -> None:
    bodies = [f"row {number}" for number in range(ROWS)]
    stream.publish(bodies, [f"key {number % 7}" for number in range(ROWS)])
    stream.store_offsets()  # chunks of the broker are no rows, and nobody waits behind them
    before = datetime.now(UTC) - timedelta(minutes=1)
    with reader(stream, batch_rows=500, include=["message_id", "headers"]) as reading:
        assert (reading.start_offset, reading.end_offset, reading.next_offset) == (0, ROWS, 0)
        assert reading.fingerprint is None
        batches = list(reading)
        assert (reading.next_offset, reading.missing) == (ROWS, 0)
        assert reading.fingerprint == reading.end_fingerprint
        with pytest.raises(StopIteration):
            next(reading)
    assert len(batches) > 1
    rows = table_of(batches)
    assert rows.column_names == ["offset", "timestamp", "key", "value", "message_id", "headers"]
    assert rows["offset"].to_pylist() == list(range(ROWS))
    assert rows["key"].to_pylist() == [f"key {number % 7}".encode() for number in range(ROWS)]
    assert values(batches) == bodies
    assert before < min(rows["timestamp"].to_pylist()) <= max(rows["timestamp"].to_pylist())
    with reader(stream, start=ROWS, expect=reading.fingerprint) as nothing:
        assert (nothing.end_offset, list(nothing)) == (ROWS, [])
    stream.publish(["later"])
    with reader(stream, start=ROWS, expect=reading.fingerprint) as later:
        assert (values(later), later.missing) == (["later"], 0)


def test_where_it_begins_and_ends(stream: Streamed) -> None:
    for number in range(6):
        stream.publish_singly([str(number)])
        time.sleep(0.01)
    with reader(stream) as reading:
        times = table_of(reading)["timestamp"].to_pylist()  # each row is a chunk
    third, fifth = times[2], times[4]
    tick = timedelta(milliseconds=1)
    ranges: list[tuple[Any, Any, str]] = [
        ("first", None, "012345"),
        ("last", None, "5"),
        ("next", None, ""),
        (2, None, "2345"),
        (6, None, ""),
        (2, 4, "23"),
        (2, 2, ""),
        ("first", 4, "0123"),
        ("next", 6, ""),
        (third, None, "2345"),
        (third - tick / 2, None, "2345"),
        (third + tick / 2, None, "345"),
        (third, fifth, "23"),
        (third, fifth + tick, "234"),
        (third - timedelta(days=1), None, "012345"),
        (third + timedelta(days=1), None, ""),
        (1, fifth, "123"),
        (5, third, ""),
        ("first", third + timedelta(days=1), "012345"),
        ("first", third - timedelta(days=1), ""),
    ]
    for start, end, expected in ranges:
        with reader(stream, start=start, end=end) as reading:
            assert "".join(values(reading)) == expected, (start, end)


@pytest.mark.slow
def test_a_stream_without_rows_ends_at_once(stream: Streamed) -> None:
    # Before 3.11 a broker does not tell that a stream is empty: each of these takes three seconds.
    starts: tuple[tuple[Any, ...], ...] = (("first", "last", "next"), (0, datetime(2020, 1, 1, tzinfo=UTC)))
    for some in starts:
        for start in some:
            with reader(stream, start=start) as reading:
                assert list(reading) == []
                assert reading.end_fingerprint is None
        stream.store_offsets()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_stream_that_is_deleted_or_made_again_while_it_is_read(
    stream: Streamed, *, is_made_again: bool
) -> None:
    bodies = [f"{number}{LARGE_BODY}" for number in range(MANY)]
    stream.publish(bodies)
    with reader(stream, batch_rows=100) as reading:
        next(reading)
        if is_made_again:
            stream.make_again()
            stream.publish([f"other {body}" for body in bodies])
            with pytest.raises(MissingRowsError, match="has been rewritten"):
                list(reading)
            with pytest.raises(MissingRowsError):  # and not rows that are behind
                next(reading)
            return
        with stream.connection(None) as connection:
            connection.delete_stream("s")
        with pytest.raises(NotFoundError, match="'s'"):
            list(reading)


def test_readers_that_nobody_has_any_more_leave_no_thread(stream: Streamed) -> None:
    stream.publish(["a"] * 3_000)
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the socket: nobody has closed it
        for _ in range(3):
            next(reader(stream, batch_rows=10))
        until(lambda: gc.collect() >= 0 and threading.active_count() <= before, "no thread is left")

"""Filters of a query: the selected ranges, and the filters that Spark still evaluates, together pass the rows that pass."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource

from spark_connector.reading.spark_readers import CLOCK_MARGIN, Selection, select

if not hasattr(datasource, "EqualTo"):
    pytest.skip("filters need PySpark 4.1", allow_module_level=True)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HALF = CLOCK_MARGIN / 2
STREAMS = ["a", "ab", "b"]
KEYS = [b"k", b"l", b"m"]
#: Two chunks of two rows have one time; times go back by less than the margin.
STEPS = [0, 1, 4, 3, 9]
ENDS = 2 * len(STEPS) + 3


class Row(NamedTuple):
    """A row of a stream."""

    stream: str
    offset: int
    timestamp: datetime
    key: bytes | None


def stream_of(key: bytes) -> str:
    return STREAMS[KEYS.index(key)]


ROWS = [
    Row(stream, 3 + number, NOW + STEPS[number // 2] * HALF, None if number % 2 else KEYS[index])
    for index, stream in enumerate(STREAMS)
    for number in range(2 * len(STEPS))
]


def offset_at(stream: str, moment: datetime) -> int:
    return next((row.offset for row in ROWS if row.stream == stream and row.timestamp >= moment), ENDS)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}


def value(row: Row, given: Any) -> bool | None:
    """The value of a filter in SQL; None for null."""
    name = type(given).__name__
    if name == "Not":
        child = value(row, given.child)
        return None if child is None else not child
    cell = getattr(row, given.attribute[0])
    if name in ("IsNull", "IsNotNull"):
        return (cell is None) == (name == "IsNull")
    if name == "EqualNullSafe":
        return bool(cell == given.value)
    if name == "In":
        has_null = cell is None or None in given.value
        return True if cell is not None and cell in given.value else (None if has_null else False)
    return None if cell is None or given.value is None else COMPARE[name](cell, given.value)


def passing(rows: list[Row], filters: list[Any]) -> list[Row]:
    return [row for row in rows if all(value(row, each) for each in filters)]


def plain(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = [name for name in COMPARE if not name.startswith("String") or column == "stream"]
    attribute = (column,)

    def comparison(name: str, literal: Any) -> Any:
        if literal is None and name.startswith("String"):
            return datasource.IsNull(attribute)
        return getattr(datasource, name)(attribute, literal)

    literals = values | st.none()
    return (
        st.builds(comparison, st.sampled_from(names), literals)
        | st.builds(lambda some: datasource.In(attribute, some), st.lists(literals, max_size=3))
        | st.just(datasource.IsNull(attribute))
        | st.just(datasource.IsNotNull(attribute))
    )


EDGES = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]


def of_a_row(row: Row) -> st.SearchStrategy[Any]:
    """Filters that this row passes often: their values are its own, or near them. The values of others are rare."""
    near = st.sampled_from([row.offset - 1, row.offset, row.offset, row.offset + 1])
    moments = st.integers(-3, 3).map(lambda steps: row.timestamp + steps * HALF)
    return (
        plain("stream", st.sampled_from([row.stream, row.stream, row.stream[:1], *STREAMS, "", "c"]))
        | plain("offset", near | st.sampled_from([-1, ENDS + 2, -(1 << 63), (1 << 63) - 1]))
        | plain("timestamp", moments | st.sampled_from(EDGES))
        | plain("key", st.sampled_from([row.key or b"k", *KEYS]))
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Any], str | None]:
    """One or two filters in most cases, and the stream that is not read, if any."""
    row = draw(st.sampled_from(ROWS))
    most = draw(st.sampled_from([1, 2, 2, 4]))
    filters = draw(st.lists(of_a_row(row) | of_a_row(row).map(datasource.Not), max_size=most))
    return filters, draw(st.sampled_from([None, None, *STREAMS]))


@settings(max_examples=200)
@given(question=questions(), by_key=st.booleans())
@example(question=([datasource.LessThanOrEqual(("timestamp",), NOW + 3 * HALF)], None), by_key=False)
@example(question=([datasource.GreaterThan(("timestamp",), NOW + 3 * HALF)], None), by_key=False)
@example(question=([datasource.LessThanOrEqual(("timestamp",), EDGES[1])], None), by_key=False)
@example(question=([datasource.In(("stream",), ("a", None))], None), by_key=False)
@example(question=([datasource.Not(datasource.In(("stream",), ("a", None)))], None), by_key=False)
@example(question=([datasource.In(("key",), (b"k", b"m"))], "b"), by_key=True)
@example(question=([datasource.EqualTo(("key",), b"k")], "a"), by_key=True)
def test_the_rows_are_those_that_pass(*, question: tuple[list[Any], str | None], by_key: bool) -> None:
    filters, unread = question
    # Rows with a key whose stream is not read may be in the others: the streams were other ones when they were written.
    key_of_unread = None if unread is None else KEYS[STREAMS.index(unread)]
    rows = [
        row if row.offset % 4 else row._replace(key=key_of_unread) for row in ROWS if row.stream != unread
    ]
    selection, left = select(filters)
    assert all(any(each is one for one in filters) for each in left)  # Spark requires the same objects
    streams = dict.fromkeys((stream for stream in STREAMS if stream != unread), (3, ENDS))
    ranges = selection.ranges(streams, offset_at, stream_of if by_key else None)
    assert all(3 <= start < end <= ENDS for start, end in ranges.values())
    read = [row for row in rows if row.stream in ranges and row.offset in range(*ranges[row.stream])]
    assert passing(read, left) == passing(rows, filters)


def of(*filters: Any, by_key: bool = False) -> dict[str, tuple[int, int]]:
    selection, _ = select(filters)
    return selection.ranges(dict.fromkeys(STREAMS, (3, ENDS)), offset_at, stream_of if by_key else None)


def test_what_is_not_read() -> None:
    everything = dict.fromkeys(STREAMS, (3, ENDS))
    assert Selection().ranges(everything, offset_at) == everything == of()
    stream, offset, timestamp, key = ("stream",), ("offset",), ("timestamp",), ("key",)
    assert of(datasource.EqualTo(stream, "a"), datasource.GreaterThan(offset, 5)) == {"a": (6, ENDS)}
    assert of(datasource.In(stream, ("b", "c")), datasource.LessThanOrEqual(offset, 5)) == {"b": (3, 6)}
    assert of(datasource.EqualTo(stream, "a"), datasource.LessThan(offset, 5)) == {"a": (3, 5)}
    assert of(datasource.EqualTo(stream, "a"), datasource.GreaterThanOrEqual(offset, 5)) == {"a": (5, ENDS)}
    assert of(datasource.StringStartsWith(stream, "a")).keys() == {"a", "ab"}
    assert set(of(datasource.In(offset, (4, 8))).values()) == {(4, 9)}
    assert of(datasource.EqualTo(offset, 5), datasource.EqualTo(offset, 6)) == {}
    assert select([datasource.In(offset, (None,))])[0].ranges({"a": (0, 9)}, offset_at) == {}
    assert of(datasource.GreaterThan(timestamp, NOW + 20 * HALF)) == {}
    assert of(datasource.LessThanOrEqual(timestamp, EDGES[1])) == everything
    # From the first chunk that is at most a margin older than the time, to the first that is a margin later.
    assert set(of(datasource.GreaterThan(timestamp, NOW + 5 * HALF)).values()) == {(7, ENDS)}
    assert set(of(datasource.LessThan(timestamp, NOW + 1 * HALF)).values()) == {(3, 7)}
    since = [datasource.GreaterThan(timestamp, NOW + steps * HALF) for steps in (1, 5)]
    until = [datasource.LessThan(timestamp, NOW + steps * HALF) for steps in (1, 5)]
    assert of(*since) == of(*since[::-1]) == of(since[1])
    assert of(*until) == of(*until[::-1]) == of(until[0])
    assert of(datasource.EqualTo(key, b"k"), by_key=True).keys() == {"a"}
    assert of(datasource.In(key, (b"k", b"m")), by_key=True).keys() == {"a", "b"}
    assert of(datasource.EqualTo(key, b"k")) == everything
    by_no_stream = select([datasource.EqualTo(key, b"k")])[0].ranges(everything, offset_at, lambda _key: None)
    assert by_no_stream == everything


def test_what_spark_need_not_evaluate() -> None:
    exact: list[Any] = [
        datasource.IsNotNull(("stream",)),
        datasource.EqualTo(("stream",), "a"),
        datasource.Not(datasource.EqualTo(("stream",), "b")),
        datasource.LessThan(("offset",), 9),
        datasource.In(("offset",), (4, 5)),
    ]
    others: list[Any] = [
        datasource.EqualTo(("key",), b"k"),
        datasource.IsNotNull(("key",)),
        datasource.LessThan(("timestamp",), NOW + timedelta(hours=1)),
        datasource.LessThan(("timestamp",), NOW.replace(tzinfo=None)),  # as from a later Spark
        datasource.In(("offset",), (4, 6)),
        datasource.Not(datasource.EqualTo(("offset",), 5)),
        datasource.EqualTo(("value",), b"v"),
        datasource.EqualTo(("headers", "stream"), "a"),
    ]
    assert select([*exact, *others])[1] == others

"""The streams and ranges of offsets that the filters of a query leave, for Spark's filter pushdown (PySpark 4.1).

Filters are recognized by the names of their classes, so this module also loads where PySpark does not have them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_LARGEST_OFFSET = (1 << 63) - 1
#: A new leader may have an earlier clock, so chunks are not quite in the order of their times.
CLOCK_MARGIN = timedelta(minutes=1)

_LOWER = ("GreaterThan", "GreaterThanOrEqual")
_UPPER = ("LessThan", "LessThanOrEqual")
_EQUAL = ("EqualTo", "EqualNullSafe", "In")
#: Spark compares strings by their UTF-8 bytes, which have the order of their code points.
_OF_STREAM: dict[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}


class _Comparison(NamedTuple):
    """A filter of one column. `values` has one value, or those of an equality, without null."""

    name: str
    values: tuple[Any, ...]
    is_negated: bool = False

    def accepts(self, stream: str) -> bool:
        """Return whether the name of a stream passes."""
        if self.name in _EQUAL:
            return (stream in self.values) != self.is_negated
        return _OF_STREAM[self.name](stream, *self.values) != self.is_negated


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that filters leave. Without filters it has all rows.

    Attributes:
        streams: filters of the name of the stream.
        start: the first offset.
        end: the offset before which it ends.
        since: the earliest time; None for any.
        until: the latest time; None for any.
        keys: the keys, of which a row has one; None for any.
    """

    streams: tuple[_Comparison, ...] = ()
    start: int = 0
    end: int = _LARGEST_OFFSET
    since: datetime | None = None
    until: datetime | None = None
    keys: frozenset[bytes] | None = None

    def ranges(
        self,
        ranges: Mapping[str, tuple[int, int]],
        offset_at: Callable[[str, datetime], int],
        stream_of: Callable[[bytes], object] | None = None,
    ) -> dict[str, tuple[int, int]]:
        """Return the selected part of ranges of offsets; streams without selected rows are omitted.

        Args:
            ranges: the start and the exclusive end in each stream.
            offset_at: returns the offset of the first chunk of a stream at a time or later.
            stream_of: returns the stream of a key; None if keys do not determine the stream.
        """
        keys = None if stream_of is None or self.keys is None else {stream_of(key) for key in self.keys}
        if keys is not None and not keys <= ranges.keys():
            keys = None  # a key without a stream here: its rows may be anywhere
        found = {}
        for stream, (first, last) in ranges.items():
            if not all(each.accepts(stream) for each in self.streams) or not (keys is None or stream in keys):
                continue
            start = max(first, self.start)
            end = min(last, self.end)
            if start < end and self.since is not None:
                since = _shift(self.since, -CLOCK_MARGIN)
                start = start if since is None else max(start, offset_at(stream, since))
            if start < end and self.until is not None:
                until = _shift(self.until, CLOCK_MARGIN)
                end = start if until is None else min(end, offset_at(stream, until))
            if start < end:
                found[stream] = start, end
        return found


_Narrow: TypeAlias = Callable[[Selection, str, tuple[Any, ...]], tuple[Selection, bool]]


def select(filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the rows that pass all filters, and the filters that Spark must evaluate because the selection has more rows than they."""
    selection = Selection()
    left = []
    for each in filters:
        selection, is_exact = _narrow(selection, each)
        if not is_exact:
            left.append(each)
    return selection, left


def _narrow(selection: Selection, given: Any) -> tuple[Selection, bool]:  # a Filter of any class
    """Return the selection with a further filter, and whether it has exactly the rows that pass."""
    is_negated = type(given).__name__ == "Not"
    child = given.child if is_negated else given
    name = type(child).__name__
    column = getattr(child, "attribute", ())
    if name == "IsNotNull" and not is_negated:
        return selection, column in (("stream",), ("offset",), ("timestamp",))  # these are never null
    comparison = _comparison(child, name, is_negated=is_negated)
    if comparison is not None and column == ("stream",) and _all_are(comparison.values, str):
        return replace(selection, streams=(*selection.streams, comparison)), True
    if comparison is None or is_negated or name not in (*_LOWER, *_UPPER, *_EQUAL):
        return selection, False
    by_column: dict[object, _Narrow] = {("offset",): _of_offset, ("timestamp",): _of_time, ("key",): _of_key}
    narrow = by_column.get(column)
    return (selection, False) if narrow is None else narrow(selection, name, comparison.values)


def _comparison(child: Any, name: str, *, is_negated: bool) -> _Comparison | None:  # a Filter
    """Return the comparison of a filter; None for other filters, and for those with null, unless it is in the list of a plain IN."""
    if name not in _OF_STREAM and name not in _EQUAL:
        return None
    values = tuple(child.value) if name == "In" else (child.value,)
    if None in values:
        if name != "In" or is_negated:
            return None
        values = tuple(value for value in values if value is not None)
    return _Comparison(name, values, is_negated)


def _of_offset(selection: Selection, name: str, values: tuple[Any, ...]) -> tuple[Selection, bool]:
    if not _all_are(values, int):
        return selection, False
    if not values:
        return replace(selection, end=0), True
    start = selection.start
    end = selection.end
    if name not in _UPPER:
        start = max(start, min(values) + (name == "GreaterThan"))
    if name not in _LOWER:
        end = min(end, max(values) + (name != "LessThan"))
    return replace(selection, start=start, end=end), max(values) - min(values) + 1 == len({*values})


def _of_time(selection: Selection, name: str, values: tuple[Any, ...]) -> tuple[Selection, bool]:
    if not values or not all(isinstance(value, datetime) and value.tzinfo for value in values):
        return selection, False
    since = selection.since
    until = selection.until
    if name not in _UPPER:
        since = max(filter(None, (since, min(values))))
    if name not in _LOWER:
        until = min(filter(None, (until, max(values))))
    return replace(selection, since=since, until=until), False


def _of_key(selection: Selection, name: str, values: tuple[Any, ...]) -> tuple[Selection, bool]:
    if name in _EQUAL and _all_are(values, bytes, bytearray):
        keys = frozenset(map(bytes, values))
        selection = replace(selection, keys=keys if selection.keys is None else keys & selection.keys)
    return selection, False


def _all_are(values: tuple[Any, ...], *types: type) -> bool:
    return all(type(value) in types for value in values)


def _shift(moment: datetime, by: timedelta) -> datetime | None:
    """Return a time, shifted; None before 1970, where no stream has rows. Python's last time stays as it is."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    try:
        moment += by
    except OverflowError:
        return None if by < timedelta() else moment
    return None if moment < epoch else moment

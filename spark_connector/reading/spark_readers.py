"""The readers that Spark calls: on the driver to plan, and in each task to read its rows. Needs PySpark 4.0 or newer.

They are pickled as code, as the writers are. The reader of a streaming query runs in its own process as long as the query, and tasks in
others, so only ranges are passed from one to the other.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from rabbit_chx.errors import InputError, MissingRowsError, NotFoundError
from rabbit_chx.streams.chunks import Fingerprint
from rabbit_chx.streams.options import ReadLimits
from rabbit_chx.streams.reader import RangeReader
from rabbit_chx.streams.rows import COLUMN_TYPES
from spark_connector.executor_functions import reduce_as_code, strip_traceback, without_traceback
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import (
    MicroBatches,
    Place,
    Sources,
    anchor,
    in_sparks_words,
    is_anchor,
    offset_of,
    places_in,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

# -- The streams and ranges of offsets that the filters of a query leave, for Spark's filter pushdown (PySpark 4.1)
# Filters are recognized by the names of their classes, so this module also loads where PySpark does not have them.

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
        streams = set(ranges)
        if stream_of is not None and self.keys is not None:
            of_keys = {stream_of(key) for key in self.keys}
            if of_keys <= streams:  # else a key has no stream here, and its rows may be anywhere
                streams &= of_keys
        found = {}
        for stream, (first, last) in ranges.items():
            if stream not in streams or not all(each.accepts(stream) for each in self.streams):
                continue

            start = max(first, self.start)
            end = min(last, self.end)
            if start < end and self.since is not None:
                since = _shift(self.since, -CLOCK_MARGIN)
                if since is not None:
                    start = max(start, offset_at(stream, since))
            if start < end and self.until is not None:
                until = _shift(self.until, CLOCK_MARGIN)
                if until is None:
                    continue
                end = min(end, offset_at(stream, until))
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


try:  # since PySpark 4.2
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:
    _AvailableNow = object  # type: ignore[assignment, misc]
_HAS_LIMITS = _AvailableNow is not object


_log = logging.getLogger(__name__)

_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "stream": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "exchange": "string",
    "message_id": "string",
    "properties": "map<string,string>",
    "headers": "map<string,string>",
}
_ALWAYS = 5
_ARROW = {**COLUMN_TYPES, "stream": pa.string()}


@without_traceback
def batch_reader(texts: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch, from the texts of its options and the schema of `columns` or of the user."""
    options = ReadOptions.parse(texts)
    check_schema(schema, columns(options.include))
    if options.push_filters == "none":
        return BatchReader(options)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise InputError("option 'pushFilters' needs PySpark 4.1 or newer: upgrade, or leave it out")
    return FilteredReader(options)


@without_traceback
def stream_reader(texts: Mapping[str, str], schema: StructType) -> MicroBatchReader:
    """Return the reader of a streaming query, as `batch_reader` does."""
    if not _HAS_LIMITS:
        raise InputError(
            "readStream.format('rabbitmq') needs PySpark 4.2 or newer, where a source can bound a micro-batch: upgrade, or read "
            "batches with spark.read"
        )
    options = ReadOptions.parse(texts, streaming=True)
    check_schema(schema, columns(options.include))
    return MicroBatchReader(options)


def check_schema(schema: StructType, ours: str) -> None:
    """Check that a schema, which may be the user's, is that of the rows: `ours`, as Spark writes it."""
    given = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
    if given != ours:
        raise InputError(
            f"the schema is {given}, and the rows have {ours}: leave .schema(...) out, and select columns"
        )


@dataclass(frozen=True, slots=True)
class Range:
    """The rows that a task reads.

    Attributes:
        end: the offset before which it ends.
        before: the fingerprint of the chunk that was read before; None without one.
        landmarks: fingerprints of further chunks that the stream had when the range was planned.
    """

    stream: str
    start: int
    end: int
    before: Fingerprint | None = None
    landmarks: Sequence[Fingerprint] = ()


def split(ranges: Sequence[Range], least: int | None) -> list[Range]:
    """Split ranges into at least `least` parts, each in proportion to its offsets; empty ones are omitted. None does not split."""
    ranges = [each for each in ranges if each.end > each.start]
    if least is None or least <= len(ranges):
        return ranges
    size = sum(each.end - each.start for each in ranges)
    found = []
    for each in ranges:
        rows = each.end - each.start
        parts = min(rows, -(-rows * least // size))
        cuts = [each.start + rows * part // parts for part in range(parts + 1)]
        found += [
            replace(each, start=start, end=end, before=each.before if start == each.start else None)
            for start, end in pairwise(cuts)
        ]
    return found


def columns(include: Sequence[str]) -> str:
    """Return the columns and their types, as Spark writes them; `include` lists the optional columns in their order."""
    return ", ".join(f"`{name}` {_COLUMNS[name]}" for name in _names(include))


def _open_range(each: Range, options: ReadOptions, task: int) -> RangeReader:
    return RangeReader(
        options.brokers.resolve(task),
        each.stream,
        start=each.start,
        end=each.end,
        include=options.include,
        filters=options.filter_values,
        match_unfiltered=options.filter_match_unfiltered,
        addresses=options.addresses,
        on_missing="raise" if options.fail_on_data_loss else "count",
        landmarks=each.landmarks,
        expect=each.before,
        limits=ReadLimits(timeout_s=options.timeout_s),
    )


def rows_of(each: Range, options: ReadOptions, task: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in their order; the number of the task determines its first address."""
    strict = options.fail_on_data_loss
    read_to = each.start
    missing = 0
    names = list(_names(options.include))
    schema = pa.schema([(name, _ARROW[name]) for name in names])

    try:
        with _open_range(each, options, task) as reader:
            for batch in reader:
                stream = pa.repeat(each.stream, batch.num_rows)
                yield pa.RecordBatch.from_arrays(
                    [stream if name == "stream" else batch[name] for name in names], schema=schema
                )
                read_to = reader.next_offset
                missing = reader.missing

            missing = reader.missing
            if options.filter_values:
                _log.info(
                    "stream %r: %d rows read in chunks that may match the filters, %d rows match",
                    each.stream,
                    reader.rows_read,
                    reader.rows_returned,
                )

            read_to = each.end
    except (MissingRowsError, NotFoundError) as cause:
        if strict:
            lost = cause if isinstance(cause, MissingRowsError) else None
            raise in_sparks_words(lost or MissingRowsError(str(cause), queue=each.stream)) from None
        if isinstance(cause, MissingRowsError) and each.before is not None and read_to == each.start:
            # The micro-batch was planned over a new log, by a query that failed then: its end is one of the new log.
            _log.warning(
                "%s; the new log is read from offset 0 to %d (failOnDataLoss is false)", cause, each.end - 1
            )
            yield from rows_of(replace(each, start=0, before=None), options, task)
            return
        _log.warning(
            "%s; the %d offsets %d to %d are passed over (failOnDataLoss is false)",
            cause,
            each.end - read_to,
            read_to,
            each.end - 1,
        )

    if missing:
        _log.warning(
            "stream %r does not have %d of the offsets %d to %d: they are passed over (failOnDataLoss is false)",
            each.stream,
            missing,
            each.start,
            read_to - 1,
        )


def _names(include: Sequence[str]) -> tuple[str, ...]:
    return (*list(_COLUMNS)[:_ALWAYS], *include)


class _Reader:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        # Spark's own for a batch without ranges: None in PySpark 4.0, an empty one later.
        if partition is None or partition.value is None:
            return
        each = Range(*partition.value)
        context = TaskContext.get()
        error = None
        try:
            yield from rows_of(each, self._options, context.partitionId() if context else 0)
        except Exception as cause:  # noqa: BLE001  # raised below
            error = strip_traceback(cause)
        if error is not None:
            raise error from None

    def _partitions(self, ranges: list[Range]) -> list[InputPartition]:
        return [
            InputPartition((each.stream, each.start, each.end, each.before, [*each.landmarks]))
            for each in split(ranges, self._options.min_partitions)
        ]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return reduce_as_code(type(self), self._options)


class BatchReader(_Reader, DataSourceReader):
    """Reads the rows that the streams have at the time of planning."""

    _selection = Selection()

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Return the ranges up to the current ends."""
        options = self._options
        with closing(Sources(options)) as sources:
            ends = sources.ends()
            starts = sources.offsets_at("startingOffsets", options.start or "earliest", ends)
            stops = sources.offsets_at("endingOffsets", options.end or "latest", ends)
            ranges = self._selection.ranges(
                {stream: (start, stops[stream]) for stream, start in starts.items()},
                lambda stream, moment: sources.logs.offset_of(stream, moment, ends[stream]),
                self._stream_of(sources),
            )
        return self._partitions(
            [
                Range(stream, start, stop, landmarks=_known(ends[stream].fingerprint))
                for stream, (start, stop) in ranges.items()
            ]
        )

    def _stream_of(self, sources: Sources) -> Callable[[bytes], object] | None:
        if self._options.push_filters != "keys" or self._selection.keys is None:
            return None
        ring = self._options.ring
        return sources.streams_of_keys(self._selection.keys).get if ring is None else ring.destination_for


class FilteredReader(BatchReader):
    """Reads the rows that may pass the filters of a query. Needs PySpark 4.1.

    Spark refuses a reader with this method if its setting is off. It keeps the partitions of the last query of a ``load()`` for all its
    queries (Spark 4.3, PythonScanBuilder.scala, ``pushFilters``), so a user has to ask for this reader.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Keep the filters for `partitions`, and return those that Spark must evaluate, too."""
        self._selection, left = select(filters)
        return left


class MicroBatchReader(_Reader, DataSourceStreamReader, _AvailableNow):
    """Reads streams, micro-batch by micro-batch. Needs PySpark 4.2."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._planner: MicroBatches | None = None

    @property
    def _batches(self) -> MicroBatches:
        """The planner, which connects, so it is created on first use."""
        if self._planner is None:
            self._planner = MicroBatches(self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a new query, not yet as offsets."""
        return anchor(self._options.start or "latest")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the bound of a micro-batch by the options."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch."""
        if is_anchor(start):
            return offset_of(self._batches.begin())
        unlimited = isinstance(limit, ReadAllAvailable)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        places = self._batches.after(places_in(start), rows, None if unlimited else self._options.max_bytes)
        return offset_of(places)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end at the current ends of the streams."""
        self._batches.hold()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the last known ends of the streams."""
        ends = self._batches.ends
        return offset_of({stream: Place(*end) for stream, end in ends.items()}) if ends else None

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch; the first one of a query has none."""
        if is_anchor(start):
            return []
        starts = places_in(start)
        # A new stream is noted with its first offset, and read in the next micro-batch.
        return self._partitions(
            [
                Range(stream, starts[stream].next, place.next, starts[stream].before, _known(place.before))
                for stream, place in places_in(end).items()
                if stream in starts
            ]
        )

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()


def _known(fingerprint: Fingerprint | None) -> tuple[Fingerprint, ...]:
    return () if fingerprint is None else (fingerprint,)

"""The readers that Spark calls: on the driver's machine to plan, and in each task for its rows. Needs PySpark 4.0 or newer.

They are pickled as code, as the writers are. The reader of a streaming query lives in a process of its own as long as the query, and
tasks get another one, so nothing but ranges goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from rabbit_chx.errors import InputError
from rabbit_chx.streams.chunks import Fingerprint
from spark_connector.executor_functions import reduce_as_code
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading.micro_batches import MicroBatches
from spark_connector.reading.ranges import Range, split
from spark_connector.reading.sources import Sources
from spark_connector.reading.stream_offsets import Place, anchor, is_anchor, offset_of, places_in
from spark_connector.reading.task_rows import columns, rows_of
from spark_connector.spark_errors import raising_without_traceback, strip_traceback

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType

    _HAS_LIMITS = True
else:
    try:  # since PySpark 4.2
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        _HAS_LIMITS = True
    except ImportError:
        _HAS_LIMITS, SupportsTriggerAvailableNow = False, object


@raising_without_traceback
def batch_reader(texts: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch.

    Args:
        texts: what the user gave to ``.option(...)``.
        schema: the columns, which Spark has from `columns`, or from the user.

    Raises:
        InputError: an option or the schema cannot be used.
    """
    options = ReadOptions.parse(texts)
    check_schema(schema, columns(options.include))
    return BatchReader(options)


@raising_without_traceback
def stream_reader(texts: Mapping[str, str], schema: StructType) -> MicroBatchReader:
    """Return the reader of a streaming query. The arguments and errors are those of `batch_reader`."""
    if not _HAS_LIMITS:
        raise InputError(
            "readStream.format('rabbitmq') needs PySpark 4.2 or newer, where a source can bound a micro-batch: upgrade, or read "
            "batches with spark.read"
        )
    options = ReadOptions.parse(texts, streaming=True)
    check_schema(schema, columns(options.include))
    return MicroBatchReader(options)


def check_schema(schema: StructType, ours: str) -> None:
    """Check that a schema, which a user may have given, is that of the rows.

    Args:
        schema: the schema.
        ours: the columns and their types, as Spark writes them.

    Raises:
        InputError: it is another one.
    """
    given = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
    if given != ours:
        raise InputError(
            f"the schema is {given}, and the rows have {ours}: leave .schema(...) out, and select columns"
        )


class _Reader:
    """What both readers share."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        # Spark's own, where a batch has no ranges: None in PySpark 4.0, later one that is empty.
        if partition is None or partition.value is None:
            return
        stream, start, end, before, landmarks = partition.value
        known = tuple(Fingerprint(*landmark) for landmark in landmarks)
        each = Range(stream, start, end, before and Fingerprint(*before), known)
        context = TaskContext.get()
        error = None
        try:
            yield from rows_of(each, self._options, context.partitionId() if context else 0)
        except Exception as cause:  # noqa: BLE001  # it is raised below
            error = strip_traceback(cause)
        if error is not None:
            raise error from None

    def _partitions(self, ranges: list[Range]) -> list[InputPartition]:
        return [
            InputPartition(
                (
                    each.stream,
                    each.start,
                    each.end,
                    each.before and tuple(each.before),
                    [*map(tuple, each.landmarks)],
                )
            )
            for each in split(ranges, self._options.min_partitions)
        ]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return reduce_as_code(type(self), self._options)


class BatchReader(_Reader, DataSourceReader):
    """Reads what is in the streams when Spark plans."""

    @raising_without_traceback
    def partitions(self) -> list[InputPartition]:
        """Return the ranges; their ends are those of now."""
        options = self._options
        with closing(Sources(options)) as sources:
            ends = sources.ends()
            starts = sources.offsets_at("startingOffsets", options.start or "earliest", ends)
            stops = sources.offsets_at("endingOffsets", options.end or "latest", ends)
        return self._partitions(
            [
                Range(stream, start, stops[stream], landmarks=_known(ends[stream].fingerprint))
                for stream, start in starts.items()
            ]
        )


class MicroBatchReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams, micro-batch by micro-batch. Needs PySpark 4.2."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._made: MicroBatches | None = None

    @property
    def _batches(self) -> MicroBatches:
        """What plans; it connects, so it is made where it is asked first."""
        if self._made is None:
            self._made = MicroBatches(self._options)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins, not yet in numbers."""
        return anchor(self._options.start or "latest")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch may have by the options."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    @raising_without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends."""
        if is_anchor(start):
            return offset_of(self._batches.begin())
        unlimited = isinstance(limit, ReadAllAvailable)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        places = self._batches.after(places_in(start), rows, None if unlimited else self._options.max_bytes)
        return offset_of(places)

    @raising_without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End where the streams end now."""
        self._batches.hold()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the streams ended when they were looked at last."""
        ends = self._batches.ends
        return offset_of({stream: Place(*end) for stream, end in ends.items()}) if ends else None

    @raising_without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch; the one that begins a query has none."""
        if is_anchor(start):
            return []
        starts = places_in(start)
        # A stream that is new is noted with its first offset, and read in the next micro-batch.
        return self._partitions(
            [
                Range(stream, starts[stream].next, place.next, starts[stream].before, _known(place.before))
                for stream, place in places_in(end).items()
                if stream in starts
            ]
        )

    def stop(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()


def _known(fingerprint: Fingerprint | None) -> tuple[Fingerprint, ...]:
    return () if fingerprint is None else (fingerprint,)

"""Streams as the sink of a task: rows are published by the stream protocol; with exactly-once into one stream, by name and id.

The id of a row is its version, and its number among the rows of its stream. Each attempt, and each run with the same version, must produce
the same rows in the same order: streams and order are checked before rows are sent.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.errors import InputError, MismatchError, PublishError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.streams import ReadLimits, StreamPublisher, StreamReport, WriteLimits
from rabbit_chx.streams.publisher import FILTER_OVERHEAD, row_overhead
from rabbit_chx.streams.rows import ROW_BITS
from rabbit_chx.streams.stored_ids import compare_stored, row_hashes
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import destination_indices
from spark_connector.reports import FinishedTask, StreamCounts
from spark_connector.writing.messages import Messages
from spark_connector.writing.stream_layout import (
    StreamLayout,
    ask_any,
    begin_version,
    call_with_retry,
    check_end,
    check_form,
    check_version,
    store_form,
)
from spark_connector.writing.tasks import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.streams.connection import StreamConnection
    from spark_connector.writing.preflight import WritePlan

# -- The rows of a task in their order: sorted in memory, or, if they are many, in parts that are merged from files
# Spark does not sort the rows of a stream, and each attempt of a task must publish them in the same order.

#: About the bytes of a batch in a file. While files are merged, one batch of each is in memory.
_BATCH_BYTES = 4 << 20


class RowSorter:
    """Sorts the rows of tables by columns that contain no nulls.

    The result does not depend on where a table ends: rows that are equal in these columns must be equal in all.

    Args:
        columns: the names of the columns, the first one first; a table may lack some.
        most_bytes: about the bytes that are sorted in memory. More rows are sorted in parts, which are kept in files in Spark's local folder
            (or that of `tempfile`) until `close`.
    """

    def __init__(self, columns: Sequence[str], most_bytes: int) -> None:
        self._columns = columns
        self._most_bytes = most_bytes
        self._held = list[pa.Table]()
        self._held_bytes = 0
        self._files = list[Path]()
        self._folder: Path | None = None
        self._stack = ExitStack()

    def add(self, rows: pa.Table) -> None:
        """Add rows; an OSError if the folder is full, or cannot be written to."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes <= self._most_bytes:
            return
        if self._folder is None:
            made = TemporaryDirectory(
                prefix="rabbit-chx-sort-", dir=_local_folder(), ignore_cleanup_errors=True
            )
            self._folder = Path(self._stack.enter_context(made))
        file = self._folder / f"{len(self._files)}.arrow"
        _write(_sorted(self._held, self._columns), file)
        self._files.append(file)
        self._held = []
        self._held_bytes = 0

    def sorted_rows(self) -> Iterator[pa.Table]:
        """Yield all rows in their order, and close."""
        if self._files:
            yield from self._merged()
        elif self._held:
            yield _sorted(self._held, self._columns)
        self.close()

    def close(self) -> None:
        """Forget the rows, and remove the files; may be called again."""
        self._held = []
        self._stack.close()

    def _merged(self) -> Iterator[pa.Table]:
        parts = [_Part(_read(file), self._columns) for file in self._files]
        if self._held:
            last = _sorted(self._held, self._columns)
            parts.append(_Part(iter([last]), self._columns))
        return _merge(parts, self._columns)


def _local_folder() -> str | None:
    """Return the folder that Spark removes with the application; None if it has none here."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and Path(folder).is_dir() else None


def _sorted(tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    rows = pa.concat_tables(tables)
    names = [name for name in columns if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in names])


def _write(rows: pa.Table, path: Path) -> None:
    batch_rows = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch_rows)


def _read(path: Path) -> Iterator[pa.Table]:
    """Yield the batches of a file; only those that are used take memory."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


class _Part:
    """Sorted rows, of which the next ones are in memory."""

    def __init__(self, batches: Iterator[pa.Table], columns: Sequence[str]) -> None:
        self._batches = batches
        self._columns = columns
        self._rows: pa.Table | None = None
        self._load()

    def _load(self) -> None:
        self._rows = next(self._batches, None)
        while self._rows is not None and not self._rows.num_rows:
            self._rows = next(self._batches, None)

    @property
    def is_done(self) -> bool:
        """True if all rows were taken."""
        return self._rows is None

    @property
    def last(self) -> tuple[Any, ...]:
        """The values of the last row in memory: those of later rows are not lower."""
        assert self._rows is not None  # it is not done
        return self._values(self._rows.num_rows - 1)

    def take(self, bound: tuple[Any, ...]) -> pa.Table:
        """Return the rows in memory up to a bound, and load the next ones if these were all."""
        assert self._rows is not None
        rows = self._rows
        stop = bisect_right(range(rows.num_rows), bound, key=self._values)
        if stop == rows.num_rows:
            self._load()
        else:
            self._rows = rows.slice(stop)
        return rows.slice(0, stop)

    def _values(self, row: int) -> tuple[Any, ...]:
        assert self._rows is not None
        rows = self._rows
        return tuple(rows.column(name)[row].as_py() for name in self._columns if name in rows.column_names)


def _merge(parts: list[_Part], columns: Sequence[str]) -> Iterator[pa.Table]:
    while parts:
        # No row that is not in memory yet comes before this one.
        bound = min(part.last for part in parts)
        taken = [part.take(bound) for part in parts]
        parts = [part for part in parts if not part.is_done]
        yield _sorted(taken, columns)


_T = TypeVar("_T")

#: The columns of a table of rows, in the order in which they sort the rows: by all that is stored, so that the order is total. A table may
#: lack the first one and the last one.
_ORDER = ("order", "key", "value", "filter")
#: Rows and bytes that are published at once.
_PIECE_ROWS = 1 << 15
_PIECE_BYTES = 32 << 20
#: Bytes of the rows of a task of a stream that are sorted in memory.
_MOST_SORTED = 256 << 20
#: Streams that an error lists.
_MOST_SHOWN = 10
_STUCK = ". If release 0.4.0 has stored a part of this micro-batch, set another appId: the query goes on, and stores all of it again"
_PLACE = "place the rows with spark_connector.place_for_streams, right before the write"
#: Behind an error that rows placed by an earlier list of streams have, too.
_PLACE_NOW = (
    f"{_PLACE}; if they are, the list of streams has changed since: make a deleted partition again; or place by the present list, which stores "
    "all rows of the write, also those that an earlier run has stored"
)


class StreamSink:
    """Publishes rows into the streams of the plan's layout, at least once."""

    def __init__(self, plan: WritePlan, task: Task, on_progress: Callable[[PublishReport], None]) -> None:
        assert plan.layout is not None  # the sink of a plan without layout is `ExchangeSink`
        self._plan = plan
        self._layout: StreamLayout = plan.layout
        self._options = plan.options
        self._task = task
        self._on_progress = on_progress
        self._publisher: StreamPublisher | None = None
        self._pieces = _Pieces()
        self._report = PublishReport()
        self._counts = StreamCounts()
        self._notes: tuple[str, ...] = ()

    @property
    def most_row_bytes(self) -> int:
        """The bytes that a frame has for a row."""
        options = self._options
        overhead = row_overhead(self._publisher_name(), options.target, options.sub_entry_rows)
        if options.filter_value_column:
            overhead += FILTER_OVERHEAD
        return self._layout.frame_max - overhead

    @property
    def report(self) -> PublishReport:
        """The counts so far, also after an error."""
        return self._report

    def begin(self) -> bool:
        """Return True: there is nothing to check."""
        return True

    def send(self, batch: Messages) -> None:
        """Publish rows, once there are enough for a piece."""
        self._add(_table_of(batch))

    def finish(self) -> FinishedTask:
        """Publish the last piece, and wait for its confirms."""
        rest = self._pieces.rest()
        if rest is not None:
            self._take_piece(rest)
        return self._finished()

    def close(self) -> None:
        """Close the connections."""
        if self._publisher is not None:
            self._publisher.close()

    def _add(self, rows: pa.Table) -> None:
        piece = self._pieces.add(rows)
        if piece is not None:
            self._take_piece(piece)

    def _take_piece(self, piece: pa.Table) -> None:
        if self._publisher is None:
            self._publisher = self._open(**self._target())
        self._publish(self._publisher, piece)

    def _target(self) -> dict[str, Any]:
        """Return the arguments of a publisher that say where rows go."""
        options = self._options
        if options.super_stream:  # the driver has warned if the routing is not given
            return {"super_stream": options.super_stream, "routing": options.stream_routing or "hash"}
        return {"ring": self._layout.placing, "exchange": options.exchange}

    def _publisher_name(self) -> str | None:
        return None

    def _publish(
        self, publisher: StreamPublisher, piece: pa.Table, ids: NDArray[np.int64] | None = None
    ) -> None:
        """Publish rows, wait for their confirms, and add their counts."""
        filter_values = piece["filter"] if "filter" in piece.column_names else None
        try:
            report = publisher.publish_many(
                piece["key"], piece["value"], ids=ids, filter_values=filter_values
            )
        except PublishError as cause:
            self._count(cause.report)
            remedy = _STUCK if self._plan.streaming and isinstance(cause.__cause__, MismatchError) else ""
            words = f"{cause.__cause__}{remedy}; {self._report}"
            raise PublishError(words, self._report, queue=cause.queue) from None
        self._count(report)
        self._on_progress(self._report)

    def _count(self, report: StreamReport) -> None:
        self._report += PublishReport(
            rows=report.rows,
            confirmed=report.confirmed,
            unknown=report.rows - report.confirmed,
            republished=report.resent,
            reconnects=report.reconnects,
            seconds=report.seconds,
        )
        self._counts += StreamCounts(report.streams, known=report.known, repaired=report.repaired)

    def _finished(self) -> FinishedTask:
        return FinishedTask(
            self._task.partition,
            self._task.attempt,
            publish_report=self._report,
            notes=self._notes,
            streams=self._counts,
        )

    def _open(self, **target: Any) -> StreamPublisher:
        options = self._options
        limits = WriteLimits(
            window=options.window,
            confirm_timeout_s=options.confirm_timeout_s,
            reconnect_timeout_s=options.reconnect_timeout_s,
        )
        return self._retry(
            lambda: StreamPublisher(
                self._addresses(),
                limits=limits,
                addresses=options.node_addresses,
                sub_entry_rows=options.sub_entry_rows,
                compression=options.compression,
                **target,
            )
        )

    def _ask(self, ask: Callable[[StreamConnection], _T]) -> _T:
        return ask_any(ask, self._addresses, self._options.reconnect_timeout_s)

    def _retry(self, ask: Callable[[], _T]) -> _T:
        return call_with_retry(ask, self._options.reconnect_timeout_s)

    def _addresses(self) -> Sequence[ConnectionSettings]:
        name = self._task.fill(self._options.connection_name)
        addresses = self._options.brokers.resolve(self._task.partition)
        return [replace(address, connection_name=name) for address in addresses]


class _NamedSink(StreamSink):
    """A sink of a job with exactly-once, whose rows have the job's name."""

    def __init__(self, plan: WritePlan, task: Task, on_progress: Callable[[PublishReport], None]) -> None:
        super().__init__(plan, task, on_progress)
        self._name = _name_of(self._layout, self._options, task)

    def _publisher_name(self) -> str:
        return self._name


class NoStreamSink(_NamedSink):
    """Refuses the rows of a partition that has no stream."""

    def send(self, batch: Messages) -> None:
        """Raise an InputError."""
        del batch
        partition = self._task.partition
        streams = self._layout.streams
        raise InputError(
            f"partition {partition} has rows, but the {len(streams)} streams that {self._options.place} has now ({_shown(streams)}) take "
            f"the partitions from 0 to {len(streams) - 1}: {_PLACE_NOW}. Other partitions may be stored: write the placed rows with "
            f"another {'appId' if self._options.version is None else 'version'}"
        )


class ExactlyOnceSink(_NamedSink):
    """Publishes rows into the stream of the partition, each once, under the name of the job and with an id."""

    def __init__(self, plan: WritePlan, task: Task, on_progress: Callable[[PublishReport], None]) -> None:
        super().__init__(plan, task, on_progress)
        options = plan.options
        self._stream = self._layout.streams[task.partition]
        self._version = version_of(options, task)
        self._first_id = (self._version << ROW_BITS) + 1
        self._pieces = _Pieces(options.sub_entry_rows or 1)
        # Spark does not sort the rows of a micro-batch.
        self._sorter = RowSorter(_ORDER, _MOST_SORTED) if plan.streaming else None
        self._is_stale = False
        self._form = 0
        self._rows_to_cut = 0  # until the end of a sub-entry of an earlier run
        self._held: pa.Table | None = None
        self._rows = 0  # that were sent
        self._last_row: tuple[Any, ...] | None = None
        self._hashes = array("q")  # with verify=full; grows without a copy

    def begin(self) -> bool:
        """Ask for the last id of the job in the stream; return False if it is of a later version, and that is to be skipped."""
        before = self._last_id()
        stored_version = before >> ROW_BITS
        if self._options.skip_stale and stored_version > self._version:
            self._is_stale = True
            note = (
                f"stream {self._stream!r} has rows of version {stored_version} already: this run writes nothing of version {self._version}, and "
                "what an earlier run of it has stored stays"
            )
            self._notes += (note,)
            return False
        check_version(self._stream, self._version, before)
        if self._options.sub_entry_rows and stored_version == self._version:
            # An earlier release may have ended a sub-entry where an input was cut: a call that ends there makes the same one.
            self._rows_to_cut = before - self._first_id + 1
        return True

    def send(self, batch: Messages) -> None:
        """Publish rows, once there are enough for two pieces; those of a micro-batch at the end, in their order."""
        rows = _table_of(batch)
        if self._sorter is None:
            self._add(rows)
        else:
            self._sorter.add(rows)

    def finish(self) -> FinishedTask:
        """Publish what is left, and check that the stream has the rows of this version, and no others of it."""
        if self._is_stale:
            return self._finished()
        if self._sorter is not None:
            for rows in self._sorter.sorted_rows():
                self._add(rows)
        rest = self._pieces.rest()
        if rest is not None:
            self._take_piece(rest)
        if self._held is not None:
            self._publish_held(is_last=True)
            self.close()
            self._check_form_again()
        check_end(self._stream, self._name, self._version, self._rows, self._last_id())
        if self._hashes:
            self._verify()
        return self._finished()

    def close(self) -> None:
        """Close the connections, and remove files."""
        super().close()
        if self._sorter is not None:
            self._sorter.close()

    def _last_id(self) -> int:
        return self._ask(lambda connection: connection.publisher_sequence(self._name, self._stream))

    def _target(self) -> dict[str, Any]:
        return {"stream": self._stream, "name": self._name, "exchange": self._options.target}

    def _take_piece(self, piece: pa.Table) -> None:
        """Publish the piece before this one, and hold this one, which may be the last."""
        if self._publisher is None:
            self._form = self._ask(
                lambda connection: check_form(
                    connection, self._layout, self._name, self._version, self._options
                )
            )
            self._publisher = self._open(**self._target())
        for part in self._cut(piece):
            if self._held is not None:
                self._publish_held(is_last=False)
            self._held = part

    def _cut(self, piece: pa.Table) -> list[pa.Table]:
        """Return a piece, or two if an earlier run has ended a sub-entry inside it."""
        at_row = self._rows_to_cut
        self._rows_to_cut -= piece.num_rows
        if 0 < at_row < piece.num_rows:
            return [piece.slice(0, at_row), piece.slice(at_row)]
        return [piece]

    def _publish_held(self, *, is_last: bool) -> None:
        """Check the piece that is held, and publish it. Of the known rows, the publisher compares the last one of the last piece."""
        piece = self._held
        publisher = self._publisher
        assert piece is not None  # a piece is held
        assert publisher is not None  # the first piece has opened it
        self._check_rows(piece, self._rows)
        if not self._rows:
            self._begin_version()
        publisher.compares_known = is_last
        first_id = self._first_id + self._rows
        self._held = None
        self._publish(publisher, piece, np.arange(first_id, first_id + piece.num_rows))
        self._rows += piece.num_rows
        if self._options.verify == "full":
            self._hashes.frombytes(row_hashes(piece["key"], piece["value"]).tobytes())

    def _begin_version(self) -> None:
        """Let the stream remember what it gets, right before the first row."""
        if self._options.version is not None:
            self._ask(lambda connection: begin_version(connection, self._layout, self._options, self._stream))
        if self._options.sub_entry_rows:
            self._ask(lambda connection: store_form(connection, self._stream, self._name, self._form))

    def _check_form_again(self) -> None:
        """Raise a MismatchError if two jobs have written a version at the same time, each after it had looked for the other."""
        stream = self._stream
        name = self._name
        version = self._version
        try:
            self._ask(
                lambda connection: check_form(
                    connection, self._layout, name, version, self._options, streams=[stream]
                )
            )
        except InputError as refusal:
            raise MismatchError(
                f"another job has written version {version} of {name!r} meanwhile, so rows may be twice in stream {stream!r}: {refusal}",
                queue=stream,
            ) from None

    def _verify(self) -> None:
        """Read the rows of a version back, and count those that are stored once, as they were given."""
        given = np.frombuffer(self._hashes, np.int64).reshape(-1, 2)
        ids = range(self._first_id, self._first_id + len(given))
        reading = {
            "addresses": self._options.node_addresses,
            "limits": ReadLimits(timeout_s=self._options.confirm_timeout_s),
        }
        stored = self._retry(
            lambda: compare_stored(
                self._stream, self._name, {"url": self._addresses(), **reading}, ids, given
            )
        )
        self._counts = replace(
            self._counts,
            verified=stored.once,
            lost=stored.lost,
            doubled=stored.doubled,
            changed=stored.changed,
            unverified=stored.unverified,
            differences=tuple(f"stream {self._stream!r}: {words}" for words in stored.differences),
        )
        if stored.unverified:
            note = (
                f"stream {self._stream!r}: {stored.unverified:,} of {len(given):,} rows could not be verified, since retention has removed the "
                "begin of the stream: set a longer max-age or a larger max-length-bytes"
            )
            self._notes += (note,)

    def _check_rows(self, piece: pa.Table, before: int) -> None:
        """Check that rows are those of the task's stream, in the order of each attempt; the `before` rows before them were sent."""
        self._check_stream(piece, before)
        if before + piece.num_rows >= 1 << ROW_BITS:
            raise InputError(
                f"stream {self._stream!r} gets 2^{ROW_BITS} rows or more: write them in several versions"
            )
        columns = [piece[name] for name in piece.column_names]
        first_row = tuple(column[0].as_py() for column in columns)
        unsorted = _first_unsorted(columns)
        if self._last_row is not None and first_row < self._last_row:
            unsorted = 0
        if unsorted is not None:
            raise InputError(
                f"row {before + unsorted} is not in the order of {self._order_in_words()}, and each attempt must have the rows in the same "
                f"order: {self._order_remedy()}{_new_version_remedy(before)}"
            )
        self._last_row = tuple(column[-1].as_py() for column in columns)

    def _check_stream(self, piece: pa.Table, before: int) -> None:
        partition = self._task.partition
        streams = self._layout.streams
        indices = destination_indices(self._layout.placing, piece["key"])
        is_elsewhere = indices != partition
        if not is_elsewhere.any():
            return
        row = int(np.argmax(is_elsewhere))
        where = repr(streams[indices[row]]) if indices[row] >= 0 else "no stream"
        raise InputError(
            f"the key of row {before + row} belongs to {where}, and all rows of partition {partition} must be those of stream "
            f"{self._stream!r}, by the {len(streams)} streams that {self._options.place} has now ({_shown(streams)}): "
            f"{_PLACE_NOW}{_new_version_remedy(before)}"
        )

    def _order_in_words(self) -> str:
        columns = [self._options.order_by, "key", "value", self._options.filter_value_column]
        names = [name for name in columns if name]
        return f"{', '.join(names[:-1])} and {names[-1]}"

    def _order_remedy(self) -> str:
        """Return what to do about rows in another order, by what may have caused it."""
        if self._options.order_by is not None:
            return f"{_PLACE}, with order_by={self._options.order_by!r}"
        remedy = _PLACE
        if self._options.filter_value_column is not None:
            remedy += ", and drop other columns before that"
        return (
            f"{remedy}; if they were placed with order_by, and an operation behind it has dropped the mark of that column, set the option "
            "orderBy to it"
        )


def _name_of(layout: StreamLayout, options: WriteOptions, task: Task) -> str:
    app_id = options.app_id or task.write_id
    if not app_id:
        raise InputError(
            "delivery is exactly-once, and this Spark does not report the streaming query (to a thread pool in foreachBatch it does not): "
            "set appId in each query"
        )
    return layout.name(app_id)


def version_of(options: WriteOptions, task: Task) -> int:
    """Return the version of the rows of a task: that of the batch, or that of the micro-batch."""
    if options.version is not None:
        return options.version
    if task.batch_id is None:
        raise InputError(
            "delivery is exactly-once, and this Spark does not report the number of the micro-batch"
        )
    return task.batch_id + 1


class _Pieces:
    """Joins rows to pieces of a multiple of rows, the last one excepted: sub-entries do not depend on the batches of Arrow."""

    def __init__(self, multiple: int = 1) -> None:
        self._multiple = multiple
        self._held = list[pa.Table]()
        self._rows = 0
        self._bytes = 0

    def add(self, rows: pa.Table) -> pa.Table | None:
        """Add rows; return a piece once there are many rows or many bytes."""
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        is_large = self._rows >= _PIECE_ROWS or self._bytes >= _PIECE_BYTES
        if not is_large or self._rows < self._multiple:
            return None
        joined = pa.concat_tables(self._held)
        end = self._rows - self._rows % self._multiple
        rest = joined.slice(end)
        self._held = [rest]
        self._rows = rest.num_rows
        self._bytes = rest.nbytes
        return joined.slice(0, end)

    def rest(self) -> pa.Table | None:
        """Return the last rows, and forget them; None if there are none."""
        if not self._rows:
            return None
        joined = pa.concat_tables(self._held)
        self._held = []
        self._rows = 0
        self._bytes = 0
        return joined


def _shown(streams: Sequence[str]) -> str:
    more = len(streams) - _MOST_SHOWN
    return ", ".join(streams[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _new_version_remedy(rows: int) -> str:
    if not rows:
        return ""
    return f"; {rows:,} rows of this version are stored already, so use another version for the placed rows"


def _table_of(messages: Messages) -> pa.Table:
    """Return rows as a table with the columns of `_ORDER`."""
    columns = (messages.order, messages.keys, messages.bodies, messages.filter_values)
    named = zip(_ORDER, columns, strict=True)
    return pa.table({name: column for name, column in named if column is not None})


def _first_unsorted(columns: Sequence[Any]) -> int | None:  # Arrow has no types
    """Return the index of the first row that sorts before its predecessor; None if the rows are in order."""
    *earlier, last = columns
    is_less = pc.less(last[1:], last[:-1])
    for column in reversed(earlier):
        rows = column[1:]
        predecessors = column[:-1]
        is_less_later = pc.and_(pc.equal(rows, predecessors), is_less)
        is_less = pc.or_(pc.less(rows, predecessors), is_less_later)
    flags: NDArray[np.bool_] = is_less.to_numpy()
    return int(flags.argmax()) + 1 if flags.any() else None

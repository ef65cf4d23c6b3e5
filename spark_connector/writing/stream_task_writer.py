"""One task: the rows of a partition, published into streams and confirmed; with exactly-once into one stream, by name and id.

The id of a row is its version, and its number among the rows of its stream. Each attempt, and each run with the same version, must produce
the same rows in the same order: streams and order are checked before rows are sent.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.errors import InputError, MismatchError, PublishError
from rabbit_chx.publishing import Publisher, PublishReport, Returned
from rabbit_chx.publishing.publish_report import NACK
from rabbit_chx.streams import ReadLimits, StreamPublisher, StreamReport, WriteLimits
from rabbit_chx.streams.publisher import FILTER_OVERHEAD, row_overhead
from rabbit_chx.streams.rows import ROW_BITS
from rabbit_chx.streams.stored_ids import compare_stored, row_hashes
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import count_by_queue, destination_indices
from spark_connector.reports import NO_ROUTE, RowSample, StreamCounts, TaskReport, add_fields, hash_key
from spark_connector.writing.messages import MessageIds, Messages
from spark_connector.writing.preflight import add_to_sample
from spark_connector.writing.stream_layout import (
    ask_any,
    begin_version,
    call_with_retry,
    check_end,
    check_form,
    check_version,
    store_form,
)
from spark_connector.writing.tasks import Task, TaskCounter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.streams.connection import StreamConnection
    from spark_connector.writing.preflight import WritePlan

# -- The rows of a task in their order: sorted in memory, or, if they are many, in parts that are merged from files
# Spark does not sort the rows of a stream, and each attempt of a task must publish them in the same order.

#: About the bytes of a batch in a file. While files are merged, one batch of each is in memory.
_BATCH_BYTES = 4 << 20


def sort_rows(tables: Iterable[pa.Table], columns: Sequence[str], most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of tables, sorted by all of these columns, which contain no nulls.

    The result does not depend on where a table ends: rows that are equal in these columns must be equal in all.

    Args:
        tables: the rows.
        columns: the names of the columns, the first one first; a table may lack some.
        most_bytes: about the bytes that are sorted in memory. More rows are sorted in parts, which are kept in files in Spark's local folder
            (or that of `tempfile`) until they are merged.

    Raises:
        OSError: the folder is full, or cannot be written to.
    """
    with ExitStack() as stack:
        folder: Path | None = None
        files = list[Path]()
        held = list[pa.Table]()
        size = 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size <= most_bytes:
                continue
            if folder is None:
                made = TemporaryDirectory(
                    prefix="rabbit-chx-sort-", dir=_local_folder(), ignore_cleanup_errors=True
                )
                folder = Path(stack.enter_context(made))
            files.append(folder / f"{len(files)}.arrow")
            _write(_sorted(held, columns), files[-1])
            held = []
            size = 0
        if not files:
            if held:
                yield _sorted(held, columns)
            return
        parts = [_Part(_read(file), columns) for file in files]
        if held:
            parts.append(_Part(iter([_sorted(held, columns)]), columns))
        yield from _merge(parts, columns)


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


class StreamTaskWriter:
    """Publishes the rows of one task into the streams of the plan's layout, and counts them. Each writer is used once."""

    def __init__(self, plan: WritePlan, task: Task) -> None:
        assert plan.layout is not None  # the writer of a plan without layout is `TaskWriter`
        self._layout = plan.layout
        self._options = plan.options
        self._task = task
        self._counter = TaskCounter(plan, task)
        self._counter.published = lambda: _publish_report_of(self._total)
        self._sorts = plan.streaming
        self._total = StreamReport()
        self._counts = StreamCounts()
        self._last_row: tuple[Any, ...] | None = None

    def publish_partition(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish every row and wait for its confirm. A partition without rows opens no connection for publishing.

        Raises:
            PublishError: not every row was confirmed.
            RowError: AMQP cannot carry a row; any of the rows before it may be published.
            InputError: the password is not available in this process, or the rows are not those of `place_for_streams`.
            MismatchError: the stream has rows of another version, or other rows than this write.
        """
        return self._counter.run(self._publish, batches, repeats_matter=not self._options.exactly_once)

    def _publish(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        options = self._options
        name = self._name() if options.exactly_once else None
        overhead = row_overhead(name, options.target, options.sub_entry_rows)
        overhead += FILTER_OVERHEAD if options.filter_value_column else 0
        self._counter.most_row_bytes = self._layout.frame_max - overhead
        try:
            if self._options.exactly_once:
                self._publish_once(batches)
            else:
                self._publish_all(batches)
        except PublishError as cause:
            report = self._total
            if isinstance(cause.report, StreamReport):
                report = add_fields(report, cause.report)
            published = _publish_report_of(report)
            remedy = _STUCK if self._sorts and isinstance(cause.__cause__, MismatchError) else ""
            words = f"{cause.__cause__}{remedy}; {published}"
            raise PublishError(words, published, queue=cause.queue) from None
        done = _publish_report_of(self._total)
        self._counter.log("done", done)
        counts = replace(
            self._counts, rows=self._total.streams, known=self._total.known, repaired=self._total.repaired
        )
        return self._counter.report(done, streams=counts)

    def _publish_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        pieces = _pieces(self._tables(batches))
        first = next(pieces, None)
        if first is None:
            return
        options = self._options
        target: dict[str, Any] = {"ring": self._layout.placing, "exchange": options.exchange}
        if options.super_stream:  # the driver has warned if the routing is not given
            target = {"super_stream": options.super_stream, "routing": options.stream_routing or "hash"}
        with self._open(**target) as publisher:
            for piece in chain((first,), pieces):
                self._send(publisher, piece)

    def _publish_once(self, batches: Iterable[pa.RecordBatch]) -> None:
        if self._task.partition >= len(self._layout.streams):
            self._refuse_rows(batches)
            return
        stream = self._layout.streams[self._task.partition]
        name = self._name()
        version = self._version()
        before = self._ask(lambda connection: connection.publisher_sequence(name, stream))
        if self._options.skip_stale and before >> ROW_BITS > version:
            self._counter.skipped = self._counter.rows = sum(batch.num_rows for batch in batches)
            note = (
                f"stream {stream!r} has rows of version {before >> ROW_BITS} already: this run writes nothing of version {version}, and "
                "what an earlier run of it has stored stays"
            )
            self._counter.notes += (note,)
            return
        check_version(stream, version, before)
        first = (version << ROW_BITS) + 1
        rows = 0
        entries = self._options.sub_entry_rows
        hashes = array("q")  # grows without a copy
        is_full = self._options.verify == "full"
        tables = self._tables(batches)
        if self._sorts:
            tables = sort_rows(tables, _ORDER, _MOST_SORTED)
        pieces = _pieces(tables, entries or 1)
        piece = next(pieces, None)
        if piece is not None:
            form = self._ask(
                lambda connection: check_form(connection, self._layout, name, version, self._options)
            )
            with self._open(stream=stream, name=name, exchange=self._options.target) as publisher:
                # An earlier release may have ended a sub-entry where an input was cut: a call that ends there makes the same one.
                done = before - first + 1 if before >> ROW_BITS == version and entries else 0
                for some, publisher.compares_known in _mark_last(_split(chain((piece,), pieces), done)):
                    self._check_rows(some, rows)
                    if not rows:
                        self._begin(stream, name, form)
                    self._send(publisher, some, np.arange(first + rows, first + rows + some.num_rows))
                    rows += some.num_rows
                    if is_full:
                        hashes.frombytes(row_hashes(some["key"], some["value"]).tobytes())
            self._check_form_again(stream, name, version)
        last_id = self._ask(lambda connection: connection.publisher_sequence(name, stream))
        check_end(stream, name, version, rows, last_id)
        if is_full and rows:
            self._verify(stream, name, first, np.frombuffer(hashes, np.int64).reshape(-1, 2))

    def _refuse_rows(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Raise an InputError if a partition that has no stream has rows."""
        partition = self._task.partition
        streams = self._layout.streams
        for _ in self._tables(batches):
            raise InputError(
                f"partition {partition} has rows, but the {len(streams)} streams that {self._options.place} has now ({_shown(streams)}) take "
                f"the partitions from 0 to {len(streams) - 1}: {_PLACE_NOW}. Other partitions may be stored: write the placed rows with "
                f"another {'appId' if self._options.version is None else 'version'}"
            )

    def _begin(self, stream: str, name: str, form: int) -> None:
        """Let the stream remember what it gets, right before the first row."""
        if self._options.version is not None:
            self._ask(lambda connection: begin_version(connection, self._layout, self._options, stream))
        if self._options.sub_entry_rows:
            self._ask(lambda connection: store_form(connection, stream, name, form))

    def _verify(self, stream: str, name: str, first: int, given: NDArray[np.int64]) -> None:
        """Read the rows of a version back, and count those that are stored once, as they were given."""
        limits = ReadLimits(timeout_s=self._options.confirm_timeout_s)
        ids = range(first, first + len(given))
        reading = {"addresses": self._options.node_addresses, "limits": limits}
        stored = self._retry(
            lambda: compare_stored(stream, name, {"url": self._addresses(), **reading}, ids, given)
        )
        counts: dict[str, Any] = stored._asdict()
        counts["verified"] = counts.pop("once")
        counts["differences"] = tuple(f"stream {stream!r}: {words}" for words in stored.differences)
        self._counts = StreamCounts(**counts)
        if stored.unverified:
            note = (
                f"stream {stream!r}: {stored.unverified:,} of {len(given):,} rows could not be verified, since retention has removed the "
                "begin of the stream: set a longer max-age or a larger max-length-bytes"
            )
            self._counter.notes += (note,)

    def _name(self) -> str:
        app_id = self._options.app_id or self._task.write_id
        if not app_id:
            raise InputError(
                "delivery is exactly-once, and this Spark does not report the streaming query (to a thread pool in foreachBatch it does not): "
                "set appId in each query"
            )
        return self._layout.name(app_id)

    def _version(self) -> int:
        if self._options.version is not None:
            return self._options.version
        if self._task.batch_id is None:
            raise InputError(
                "delivery is exactly-once, and this Spark does not report the number of the micro-batch"
            )
        return self._task.batch_id + 1

    def _check_form_again(self, stream: str, name: str, version: int) -> None:
        """Raise a MismatchError if two jobs have written a version at the same time, each after it had looked for the other."""
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

    def _check_rows(self, piece: pa.Table, before: int) -> None:
        """Check that rows are those of the task's stream, in the order of each attempt; the `before` rows before them were sent."""
        partition = self._task.partition
        streams = self._layout.streams
        indices = destination_indices(self._layout.placing, piece["key"])
        if (indices != partition).any():
            row = int(np.argmax(indices != partition))
            where = repr(streams[indices[row]]) if indices[row] >= 0 else "no stream"
            raise InputError(
                f"the key of row {before + row} belongs to {where}, and all rows of partition {partition} must be those of stream "
                f"{streams[partition]!r}, by the {len(streams)} streams that {self._options.place} has now ({_shown(streams)}): "
                f"{_PLACE_NOW}{_new_version_remedy(before)}"
            )
        if before + piece.num_rows >= 1 << ROW_BITS:
            raise InputError(
                f"stream {streams[partition]!r} gets 2^{ROW_BITS} rows or more: write them in several versions"
            )
        columns = [piece[name] for name in piece.column_names]
        unsorted = _first_unsorted(columns)
        if self._last_row is not None and tuple(column[0].as_py() for column in columns) < self._last_row:
            unsorted = 0
        if unsorted is not None:
            raise InputError(
                f"row {before + unsorted} is not in the order of {self._order_in_words()}, and each attempt must have the rows in the same "
                f"order: {self._order_remedy()}{_new_version_remedy(before)}"
            )
        self._last_row = tuple(column[-1].as_py() for column in columns)

    def _order_in_words(self) -> str:
        names = [self._options.order_by, "key", "value", self._options.filter_value_column]
        return " and ".join(", ".join(filter(None, names)).rsplit(", ", 1))

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

    def _tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        return map(_table_of, self._counter.messages(batches))

    def _open(self, **arguments: Any) -> StreamPublisher:  # of the publisher
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
                **arguments,
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

    def _send(
        self, publisher: StreamPublisher, piece: pa.Table, ids: NDArray[np.int64] | None = None
    ) -> None:
        """Publish rows, and add the counts of their report."""
        filter_values = piece["filter"] if "filter" in piece.column_names else None
        report = publisher.publish_many(piece["key"], piece["value"], ids=ids, filter_values=filter_values)
        self._total = add_fields(self._total, report)
        self._counter.on_progress(_publish_report_of(self._total))


def _mark_last(items: Iterable[_T]) -> Iterator[tuple[_T, bool]]:
    """Yield items, each with whether it is the last one."""
    coming = iter(items)
    held = next(coming)
    for item in coming:
        yield held, False
        held = item
    yield held, True


def _split(pieces: Iterable[pa.Table], at_row: int) -> Iterator[pa.Table]:
    """Yield pieces, of which the one with this row inside is two."""
    for piece in pieces:
        rows = piece.num_rows
        if 0 < at_row < rows:
            yield piece.slice(0, at_row)
            piece = piece.slice(at_row)  # noqa: PLW2901  # its end
        at_row -= rows
        yield piece


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


def _pieces(tables: Iterable[pa.Table], multiple: int = 1) -> Iterator[pa.Table]:
    """Yield the rows in pieces of a multiple of rows, the last one excepted: sub-entries do not depend on the batches of Arrow."""
    held = list[pa.Table]()
    rows = size = 0
    for table in tables:
        held.append(table)
        rows += held[-1].num_rows
        size += held[-1].nbytes
        if (rows >= _PIECE_ROWS or size >= _PIECE_BYTES) and rows >= multiple:
            piece = pa.concat_tables(held)
            end = rows - rows % multiple
            yield piece.slice(0, end)
            held = [piece.slice(end)]
            rows = rows - end
            size = held[0].nbytes
    if rows:
        yield pa.concat_tables(held)


def _first_unsorted(columns: Sequence[Any]) -> int | None:  # Arrow has no types
    """Return the index of the first row that sorts before its predecessor; None if the rows are in order."""
    *earlier, last = columns
    less = pc.less(last[1:], last[:-1])
    for column in reversed(earlier):
        less = pc.or_(pc.less(column[1:], column[:-1]), pc.and_(pc.equal(column[1:], column[:-1]), less))
    flags: NDArray[np.bool_] = less.to_numpy()
    return int(flags.argmax()) + 1 if flags.any() else None


def _publish_report_of(report: StreamReport) -> PublishReport:
    return PublishReport(
        rows=report.rows,
        confirmed=report.confirmed,
        unknown=report.rows - report.confirmed,
        republished=report.resent,
        reconnects=report.reconnects,
        seconds=report.seconds,
    )


# -- Publish the rows of a task: by AMQP here, by the stream protocol in `stream_task_writer`


def run_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """Publish the rows of the running task: into streams if the plan has a layout, else by AMQP."""
    writer = TaskWriter if plan.layout is None else StreamTaskWriter
    return writer(plan, Task.current(plan.write_id, plan.batch_id)).publish_partition(batches)


class TaskWriter:
    """Publishes the rows of one task by AMQP, and counts them. Each writer is used once."""

    def __init__(self, plan: WritePlan, task: Task) -> None:
        options = plan.options
        self._task = task
        self._options = options
        self._counter = TaskCounter(plan, task)
        write = options.write_name or task.write_id
        self._ids = (
            MessageIds(write, task.batch_id or 0, task.partition) if options.message_id == "auto" else None
        )
        self._keys = b""  # a sample
        self._predicted: Counter[str] = Counter()

    def publish_partition(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Publish every row and wait for its confirm. A partition without a row to publish opens no connection.

        Raises:
            PublishError: not every row was confirmed.
            RowError: AMQP cannot carry a row; any of the rows before it may be published.
            InputError: the password is not available in this process, message ids need a query id that Spark does not report, or copies of
                the task would break the required order.
        """
        return self._counter.run(self._publish, batches)

    def _publish(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        if self._ids is not None and not self._task.write_id:
            raise InputError(
                "option 'messageId' is 'auto', but this Spark does not report the streaming query (to a thread pool in foreachBatch it does not): "
                "add a column message_id, and set messageId to column"
            )
        messages = self._messages(batches)
        first = next(messages, None)
        if first is None:
            return self._report(PublishReport())
        with self._publisher() as publisher:
            self._counter.published = lambda: publisher.report
            for batch in chain((first,), messages):
                publisher.send(
                    batch.keys, batch.bodies, properties=batch.properties, exchanges=batch.exchanges
                )
                if publisher.report.returned and not self._options.skip_unroutable:
                    break  # the flush raises; more rows would only follow the lost ones
            try:
                report = publisher.flush()
            except PublishError as cause:
                report = self._without_bad_rows(cause)
        self._counter.log("done", report)
        return self._report(report)

    def _without_bad_rows(self, cause: PublishError) -> PublishReport:
        """Return the report of an error without the rows that close the channel or the connection, if ``badRows=skip`` skips them.

        Otherwise raise the error.
        """
        report: PublishReport = cause.report
        closes = [sample for sample in report.samples if sample.code not in (NACK, NO_ROUTE)]
        is_nacked = any(sample.code == NACK for sample in report.samples)
        is_returned = report.returned and not self._options.skip_unroutable
        if not (self._options.skip_bad_rows and closes) or is_nacked or is_returned or report.unknown:
            raise cause
        self._counter.skipped += report.nacked
        self._forget_predictions(closes, report.nacked)
        return replace(report, rows=report.rows - report.nacked, nacked=0)

    def _forget_predictions(self, closes: Sequence[Returned], refused: int) -> None:
        """Subtract rows that were not published from the rows by queue."""
        if not self._predicted:
            return
        # An exchange refused all further rows, or the bytes of a key are not UTF-8: the keys are not known here.
        if len(closes) < refused or any("\\x" in sample.key for sample in closes):
            self._predicted.clear()
            return
        ring = self._options.ring
        if self._options.client_routing:  # the routing key is the queue's name
            self._predicted.subtract(sample.key for sample in closes)
        elif ring is not None:
            self._predicted.subtract(count_by_queue(ring, [sample.key.encode() for sample in closes]))
        self._predicted = +self._predicted

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Messages]:
        for messages in self._counter.messages(batches, self._ids):
            if self._options.keep_order:
                self._keys = add_to_sample(self._keys, messages.keys)
            if self._options.ring is not None and messages.exchanges is None:
                self._predicted.update(count_by_queue(self._options.ring, messages.keys))
            yield messages

    def _publisher(self) -> Publisher:
        options = self._options
        return Publisher(
            options.brokers.resolve(self._task.partition),
            options.exchange,
            routing="client" if options.client_routing else "exchange",
            ring=options.ring if options.client_routing else None,
            mandatory=options.mandatory,
            persistent=options.persistent,
            properties={"headers": options.headers} if options.headers else None,
            on_unroutable="report" if options.skip_unroutable else "raise",
            limits=options.limits,
            retries=options.retries,
            connection_name=self._task.fill(options.connection_name),
            progress=self._counter.on_progress,
        )

    def _report(self, report: PublishReport) -> TaskReport:
        return self._counter.report(
            report,
            [_sample_of(self._task.partition, sample, self._options) for sample in report.samples],
            predicted=dict(self._predicted),
            keys=self._keys,
        )


def _sample_of(partition: int, sample: Returned, options: WriteOptions) -> RowSample:
    reason = f"{sample.code} {sample.text}"
    if options.client_routing:  # the routing key is the queue's name, and not secret
        return RowSample(partition, None, f"{reason}: no queue {sample.key!r}", None)
    return RowSample(partition, None, reason, hash_key(sample.key.encode()))

"""Publish rows into streams in bulk. With a name and ids each row is stored once; `writer` explains the method.

The stream of each row is computed here, not by the broker. Each stream has its own `StreamWriter` and connection. The caller's thread polls
them in turn.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import ManagementUrl, read_secretly
from rabbit_chx.checks import bytes_of, check_name, is_whole, shown
from rabbit_chx.connection.blocking_connection import FINALIZER_S, Guarded, UsageGuard, one_thread
from rabbit_chx.connection.failures import unknown_outcome
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamRouting, are_names
from rabbit_chx.streams.chunks import NO_CODEC, has_codec
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import MAX_TEXT_BYTES
from rabbit_chx.streams.nodes import node_addresses, open_any, settings_of
from rabbit_chx.streams.options import ReadLimits, WriterOptions
from rabbit_chx.streams.rows import (
    SUB_ENTRY,
    Column,
    EncodedRows,
    SubEntries,
    as_column,
    as_single_array,
    check_stream_ring,
    check_super_stream,
    encode_rows,
    entry_numbers,
    named_keys_text,
)
from rabbit_chx.streams.stored_ids import check_references
from rabbit_chx.streams.writer import DEFAULT_FRAME_MAX, RowColumns, StreamWriter
from rabbit_chx.text import plural, with_counts

if TYPE_CHECKING:
    from collections import deque

    from numpy.typing import NDArray

_MAX_ID = 2**63 - 1  # the protocol has unsigned 64-bit ids, and clients on the JVM signed ones
_FILTERED_SUB_ENTRIES = (
    "sub_entry_rows and filter values are both given, and sub-entries cannot have filter values: pass one"
)
#: The most unpacked bytes of a sub-entry with an id. Not the limit of a connection, since each attempt must make the same sub-entries: never
#: change it.
ENTRY_BYTES = 1 << 18
#: The bytes that a row with a filter value has in addition to two copies of it, at most.
FILTER_OVERHEAD = 40
_MAX_NAME_BYTES = 230  # bytes, so that a message id has at most 255, which AMQP 0-9-1 can carry
#: The bounds of a batch, which is encoded at once, and confirmed before the next one is encoded.
_BATCH_ROWS = 1 << 18
_BATCH_BYTES = 64 << 20
#: The time in which all writers together wait for confirms before the first one is polled again.
_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Counts of the rows of one call. A row is never both known and repaired.

    Attributes:
        rows: the given rows.
        confirmed: the rows that the broker confirmed; with a name, of whole batches only, which no other writer's ids made the broker drop.
        unknown: the rows that were sent before an error, and are not counted as confirmed: each may be in its stream.
        streams: the rows that each stream confirmed.
        known: the confirmed rows whose ids the broker had from an earlier run: they were not stored again.
        resent: rows sent again after their connection was lost. Without a name each may be a duplicate.
        repaired: rows that the broker had confirmed and not stored, stored under another reference.
        reconnects: connections that replaced a lost one.
        seconds: from the first row to the last confirm.
    """

    rows: int = 0
    confirmed: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    known: int = 0
    resent: int = 0
    repaired: int = 0
    reconnects: int = 0
    seconds: float = 0.0
    unknown: int = 0

    @property
    def complete(self) -> bool:
        """True if every row is confirmed."""
        return self.confirmed == self.rows

    def __str__(self) -> str:
        counts = (
            (self.unknown, "unknown"),
            (self.known, "known from an earlier run"),
            (self.resent, "sent again after a reconnect"),
            (self.repaired, "repaired"),
        )
        return with_counts(f"{self.confirmed:,} of {self.rows:,} rows confirmed", counts)


@documented(WriterOptions)
class StreamPublisher(Guarded):
    """Publishes rows into a stream, the streams of a ring or slot table, or a super stream.

    Any client can read the rows: the routing key is the message annotation ``x-routing-key``, where the broker writes it for AMQP
    publishers, and the body is one data section.

    With `name` and ids each row is stored once, also after lost connections, killed brokers, leader changes, and repeated runs with the
    same rows and ids. That is not a transaction: readers see rows as they are written. It requires that an id always means the same
    row and the same stream. **A row with an id that the stream already has is confirmed and not stored**, so other rows under used ids
    are lost. In each call the row with the highest such id is compared with the stored one of each stream; a difference is an error, and
    so is a stored row that retention has removed. Copies of stored rows by other clients, with their message
    ids, do not matter. Without a name and ids, delivery is at least once.

    A name is for one writer at a time. Each call looks for another one. If there may be one, the rows of the call are compared with the stored
    ones: equal rows of two writers are stored once, and rows that the broker has confirmed and dropped are an error.

    With `sub_entry_rows`, too, rows are sent in sub-entries, each under the id of its last row. A sub-entry ends where the lower 32 bits of
    an id are a multiple of `sub_entry_rows`, earlier before it exceeds 256 KiB, and where a call ends. Each run must make the same
    sub-entries, so that the broker drops those that it has: publish with the same `sub_entry_rows`, and end each call at such an id, or
    at the same ids. A stream whose last id is inside a sub-entry is an error before a row is sent.

    A stream remembers 255 names, and each AMQP channel that publishes to it takes one too. The oldest further names are
    forgotten when the broker starts a new segment, and their ids would be stored again. With `WriteLimits.management_url` the names are counted
    before the first row: from 200 on the publisher warns, above 250 it raises an error.

    The constructor checks that the streams exist. A publisher is for one thread at a time: a second thread gets an InputError while a
    call runs, and so does a forked process. A publisher cannot be pickled.

    Attributes:
        streams: the streams, in the order of the ring or super stream.
        compares_known: whether the next call compares its highest known row. False for all calls but the last of a run compares once.

    Raises:
        InputError: an argument is not valid; a destination of the ring is not a stream; a super stream is passed as a stream, or a stream as a
            super stream; or `create` is not the number of partitions of an existing super stream.
        NotFoundError: the stream or super stream does not exist.
        BrokerRefusedError: the broker refuses the user, the vhost or the stream. A named publisher needs read permission, too.
        UnreachableError: no node answers.

    Example::

        with StreamPublisher("rabbitmq-stream://localhost", stream="orders-0", name="loader") as publisher:
            report = publisher.publish_many(keys, bodies, ids=range(1, len(keys) + 1))
    """

    @takes(WriterOptions)
    def __init__(self, options: WriterOptions) -> None:
        super_stream = options.super_stream
        name = options.name
        limits = options.limits
        target = options.stream or super_stream or options.exchange
        self._guard = UsageGuard(f"the StreamPublisher of {target!r}")
        self.streams: tuple[str, ...] = ()
        self.compares_known = True
        self._name = name
        self._filter_value = options.filter_value
        self._sub_entry_rows = options.sub_entry_rows
        self._compression = options.compression
        settings = read_secretly(partial(settings_of, credentials=options.credentials), options.url)
        management = _check_stream_options(options)
        self._placement: KeyMap | None = None if options.ring is None else check_stream_ring(options.ring)
        self._exchange = (super_stream or "") if options.exchange is None else options.exchange
        self._overhead = row_overhead(name, self._exchange, options.sub_entry_rows)
        self._routes = _Routes(settings, str(super_stream)) if options.routing == "key" else None
        self._last_id = 0
        self._closed = False
        self._unconfirmed_ids = np.empty(0, np.int64)  # of failed calls; a later call must begin with them
        reading = {
            "url": settings.copy(),
            "addresses": options.addresses and node_addresses(options.addresses),
            "limits": ReadLimits(timeout_s=limits.confirm_timeout_s),
        }

        with closing(open_any(settings)) as connection:
            connection.request_timeout_s = limits.confirm_timeout_s
            if options.create:
                _create_missing(connection, options)
            self.streams = self._find_streams(connection, options)

        if name is not None and management is not None:
            for destination in self.streams:
                check_references(management, settings[0], destination, name)
        self._writers = [
            StreamWriter(
                destination,
                settings.copy(),
                name,
                limits,
                reading=reading,
                rows_per_id=options.sub_entry_rows or 1,
            )
            for destination in self.streams
        ]

    def _find_streams(self, connection: StreamConnection, options: WriterOptions) -> tuple[str, ...]:
        """Return the streams after checking that they exist; keep what the broker can."""
        self._no_filters = connection.no_filters
        self._frame_max = connection.frame_max or DEFAULT_FRAME_MAX
        if options.name is not None and options.sub_entry_rows and self._frame_max < ENTRY_BYTES:
            raise errors.InputError(
                f"sub-entries with a name have up to {ENTRY_BYTES:,} bytes, and a frame of this broker {self._frame_max:,}: raise the broker's "
                "stream.frame_max, or leave sub_entry_rows out"
            )

        self._check_filters(self._filter_value)
        if options.super_stream is not None:
            self._placement = _super_stream(connection, options.super_stream, options.routing)
        streams: tuple[str, ...] = (str(options.stream),)
        if self._placement is not None:
            streams = tuple(map(str, self._placement.destinations))

        try:
            connection.metadata(streams)
        except errors.NotFoundError as cause:
            if options.ring is None:
                raise
            raise errors.InputError(f"{cause}. Each destination of the ring must be a stream") from None

        return streams

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        writers = getattr(self, "_writers", ())
        if any(writer.connected for writer in writers) and self._guard.is_this_process:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self._closed = True
            for writer in self._writers:
                writer.close(FINALIZER_S)

    def __repr__(self) -> str:
        return f"<StreamPublisher {self._name or 'without a name'}, {len(self.streams)} streams>"

    def close(self) -> None:
        """Close the connections; may be called again. In a forked process it does nothing.

        A publisher that is garbage-collected without it emits a ResourceWarning, and closes them.
        """
        if self._guard.is_this_process:
            self._close()

    @one_thread
    def _close(self) -> None:
        self._closed = True
        for writer in self._writers:
            writer.finish()

    @one_thread
    def publish_many(
        self,
        keys: Column,
        bodies: Column,
        *,
        ids: Iterable[int] | None = None,
        filter_values: Column = None,
    ) -> StreamReport:
        """Publish rows, and wait until the broker has confirmed all of them.

        After an error repeat the call with the same rows and ids, at least from the id that the error names.

        Args:
            keys: routing keys: a list, a NumPy or an Arrow array of str (UTF-8) or bytes.
            bodies: one body for each key, in the same forms.
            ids: with a name, one id for each row: increasing integers from 1 to 2^63 - 1, also from call to call; gaps are allowed.
            filter_values: instead of the publisher's `filter_value`, one filter value for each key, in the same forms; an empty one is
                none. Needs RabbitMQ 3.13.

        Returns:
            The counts of these rows.

        Raises:
            InputError: the columns or ids are not valid, or the publisher is closed; nothing was sent.
            PublishError: some rows are not confirmed; `report` has the counts, `__cause__` the reason.
        """
        if self._closed:
            raise errors.InputError(f"{self!r} is closed: open a new one")

        rows = self._validate_rows(keys, bodies, ids, filter_values)
        began = time.monotonic()
        for number, writer in enumerate(self._writers):
            has_all = rows.streams is None or not self._name  # without a name there are no ids
            writer.start_call(
                rows.ids if has_all else rows.ids[rows.streams == number], compares_known=self.compares_known
            )

        # A call may repeat only a part of a failed call: the ids after that part stay unconfirmed.
        last_id = rows.ids[-1:].max(initial=0)
        still_unconfirmed = self._unconfirmed_ids[
            np.searchsorted(self._unconfirmed_ids, last_id, side="right") :
        ]

        try:
            for batch in _batches(rows, self._sub_entry_rows):
                if self._name:
                    self._unconfirmed_ids = np.append(
                        rows.ids[np.searchsorted(rows.ids, batch.ids[0]) :], still_unconfirmed
                    )
                self._publish(batch)
        except BaseException as cause:
            unknown = sum(writer.give_up() for writer in self._writers)
            if not isinstance(cause, errors.RabbitChxError):
                raise
            report = self._report(rows, began, unknown)
            if unknown and isinstance(cause, (errors.AccessRefusedError, errors.NotFoundError)):
                cause = unknown_outcome(cause, f"{unknown:,} rows")
            # After a mismatch the same rows would fail again.
            may_repeat = len(self._unconfirmed_ids) and not isinstance(cause, errors.MismatchError)
            remedy = f"; publish again from id {self._unconfirmed_ids[0]} on" if may_repeat else ""
            raise errors.PublishError(
                f"{cause}; {report}{remedy}", report, queue=cause.queue, reply_code=cause.reply_code
            ) from cause

        if len(rows.ids):
            self._unconfirmed_ids = still_unconfirmed
            self._last_id = int(rows.ids[-1])
        return self._report(rows, began)

    def _report(self, rows: RowColumns, began: float, unknown: int = 0) -> StreamReport:
        counts = Counter[str]()
        for writer in self._writers:
            counts.update(writer.counts)
        return StreamReport(
            rows=len(rows.keys),
            streams={writer.stream: writer.counts["confirmed"] for writer in self._writers},
            seconds=time.monotonic() - began,
            unknown=unknown,
            **counts,
        )

    def _validate_rows(
        self, keys: Column, bodies: Column, ids: Iterable[int] | None, filter_values: Column
    ) -> RowColumns:
        """Validate all rows before any is sent, and return them with the stream of each."""
        if (self._name is None) != (ids is None):
            raise errors.InputError(
                "pass a name and ids, to store each row once, or neither, for at least once"
            )

        key_column = as_column(keys, "keys")
        body_column = as_column(bodies, "bodies")
        if len(key_column) != len(body_column):
            raise errors.InputError(
                f"{plural(len(key_column), 'key')} and {plural(len(body_column), 'body', 'bodies')}: pass one body for each key"
            )

        filter_column = self._filter_column(key_column, filter_values)
        self._check_row_sizes(key_column, body_column, filter_column)
        numbers = np.empty(0, np.int64) if ids is None else _check_ids(ids, len(key_column))
        if len(numbers):
            if len(self._unconfirmed_ids) and numbers[0] > self._unconfirmed_ids[0]:
                raise errors.InputError(
                    f"the rows begin at id {numbers[0]}, and a call before has failed: rows from id {self._unconfirmed_ids[0]} on may be "
                    "unconfirmed, and would be lost, so pass them again first"
                )
            if not len(self._unconfirmed_ids) and numbers[0] <= self._last_id:
                raise errors.InputError(
                    f"the rows begin at id {numbers[0]}, and id {self._last_id} is published: the broker would drop them, so ids rise "
                    "from call to call"
                )
            self._check_end(int(numbers[-1]))

        if self._placement is None:
            return RowColumns(key_column, body_column, numbers, None, filter_column)

        placement = self._placement if self._routes is None else self._routes
        streams = placement.indices(key_column)
        if len(streams) and streams.min() < 0:
            row = int(streams.argmin())
            what = "the ring has no stream for" if self._routes is None else "no partition is bound with"
            raise errors.InputError(f"row {row}: {what} the key {key_column[row].as_py()!r:.60}")

        return RowColumns(key_column, body_column, numbers, streams, filter_column)

    def _check_end(self, last_id: int) -> None:
        """Raise an InputError if rows end inside a sub-entry that a failed call has sent: the broker may still store it."""
        later = self._unconfirmed_ids[self._unconfirmed_ids > last_id]
        if self._sub_entry_rows is None or not len(later):
            return
        numbers = entry_numbers(np.append(last_id, later), self._sub_entry_rows)
        if numbers[0] == numbers[1]:
            end = int(later[np.flatnonzero(numbers[1:] == numbers[0])[-1]])
            raise errors.InputError(
                f"the rows end at id {last_id}, inside a sub-entry of a call that has failed: pass those up to id {end}, too, or all of that call"
            )

    def _check_filters(self, filter_value: object) -> None:
        """Raise an InputError if rows with this filter value, or with these filter values, cannot be published."""
        if filter_value is not None and self._no_filters:
            raise errors.InputError(self._no_filters)

    def _filter_column(self, keys: Column, given: Column) -> Column:
        """Return the filter values of rows, or None."""
        if given is None and self._filter_value is None:
            return None
        if given is None:
            return _map_keys(self._filter_value, keys) if callable(self._filter_value) else keys
        if self._filter_value is not None:
            raise errors.InputError("the publisher has a filter_value, and filter_values are given: pass one")
        if self._sub_entry_rows is not None:
            raise errors.InputError(_FILTERED_SUB_ENTRIES)
        self._check_filters(given)
        column = as_column(given, "filter_values")
        if len(column) != len(keys):
            raise errors.InputError(
                f"{len(keys)} keys and {len(column)} filter_values: pass one for each key"
            )
        return column

    def _check_row_sizes(self, keys: Column, bodies: Column, filter_values: Column) -> None:
        sizes: Any = pc.add(pc.binary_length(keys), pc.binary_length(bodies))
        sizes = sizes.to_numpy()
        overhead = self._overhead
        what = "key and body"

        if filter_values is not None:
            lengths: Any = pc.binary_length(filter_values)
            lengths = lengths.to_numpy()
            if lengths.max(initial=0) > MAX_TEXT_BYTES:
                row = int(np.argmax(lengths > MAX_TEXT_BYTES))
                raise errors.RowError(
                    f"row {row} has a filter value of {lengths[row]} bytes: pass at most {MAX_TEXT_BYTES}"
                )
            sizes = sizes + 2 * lengths  # in the frame, and in the row as an annotation
            overhead = overhead + FILTER_OVERHEAD
            what = "key, body and twice the filter value"

        max_bytes = self._frame_max - overhead
        if sizes.max(initial=0) > max_bytes:
            row = int(np.argmax(sizes > max_bytes))
            raise errors.RowError(
                f"row {row} has {sizes[row]} bytes of {what}: at most {max_bytes} fit into a frame of this broker, which has "
                f"{self._frame_max}; shorten it, or raise the broker's stream.frame_max"
            )

    def _publish(self, batch: RowColumns) -> None:
        busy = []
        for number, stream_rows in batch.by_stream():
            self._writers[number].start_batch(stream_rows, self._encode(stream_rows))
            busy.append(self._writers[number])
        wait_s = 0.0
        while busy:
            has_progress = [writer.poll(wait_s) for writer in busy]
            wait_s = 0.0 if any(has_progress) else _WAIT_S / len(busy)
            busy = [writer for writer in busy if not writer.done]

    def _encode(self, rows: RowColumns) -> EncodedRows | SubEntries:
        """Return rows of a stream as they are sent: single ones, with a name with their message ids, or in sub-entries."""
        message_ids = None
        if self._name is not None:
            texts = pa.array(rows.ids).cast(pa.string())
            message_ids = pc.binary_join_element_wise(pa.scalar(self._name), texts, ":")  # type: ignore[call-overload]

        if self._sub_entry_rows is not None:
            return SubEntries(
                rows.keys,
                rows.bodies,
                ids=np.arange(1, len(rows.keys) + 1) if self._name is None else rows.ids,
                message_ids=message_ids,
                exchange=self._exchange,
                most_rows=self._sub_entry_rows,
                codec=self._compression,
                most_bytes=self._frame_max if self._name is None else ENTRY_BYTES,
                overhead=self._overhead,
            )

        return encode_rows(
            rows.keys,
            rows.bodies,
            exchange=self._exchange,
            message_ids=message_ids,
            filter_values=rows.filter_values,
        )


def _batches(rows: RowColumns, sub_entry_rows: int | None) -> Iterator[RowColumns]:
    """Split rows into batches of equal numbers of rows, by their mean size; with ids not inside a sub-entry."""
    count = len(rows.keys)
    size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * count // max(1, rows.bodies.nbytes + rows.keys.nbytes)))
    numbers = None
    if sub_entry_rows is not None and len(rows.ids):
        numbers = entry_numbers(rows.ids, sub_entry_rows)
    start = 0
    while start < count:
        stop = min(start + size, count)
        if numbers is not None:
            stop = int(np.searchsorted(numbers, numbers[stop - 1], side="right"))
        yield rows.slice(start, stop - start)
        start = stop


def row_overhead(name: str | None, exchange: str, sub_entry_rows: int | None) -> int:
    """Return the bytes that a frame with one row, or one sub-entry of it, may need in addition to key and body."""
    text = b"." * 300  # AMQP encodes a size above 255 with 4 bytes instead of one
    message_ids = None if name is None else [f"{name}:{_MAX_ID}"]
    row = encode_rows([text], [text], exchange=exchange, message_ids=message_ids)
    (frame,) = row.frames(0, np.zeros(1, np.uint64), 0, 1, DEFAULT_FRAME_MAX)
    return len(frame) - 2 * len(text) + (SUB_ENTRY.size if sub_entry_rows else 0)


def _map_keys(function: Callable[[bytes], str | bytes], keys: Column) -> Column:
    """Return the values of a function of each key, which is called once for each distinct key."""
    distinct = as_single_array(keys).dictionary_encode()
    values = [function(key) for key in distinct.dictionary.to_pylist() if key is not None]
    return as_column(values, "the values of filter_value").take(distinct.indices)


# -- validation of arguments


def _check_stream_options(options: WriterOptions) -> ManagementUrl | None:
    """Check all options but the URL and the credentials, without a connection; return the URL of the management API."""
    limits = options.limits
    check_options(options)
    check_options(limits)
    management = (
        None if limits.management_url is None else read_secretly(ManagementUrl.of, limits.management_url)
    )
    _check_target(options)
    _check_rows(options)
    return management


def _check_rows(options: WriterOptions) -> None:
    """Check the arguments for ids, filter values and sub-entries."""
    name = options.name
    filter_value = options.filter_value
    compression = options.compression
    is_name = isinstance(name, str) and 0 < len(bytes_of(name, "name")) <= _MAX_NAME_BYTES
    if name is not None and not is_name:
        raise errors.InputError(f"name is {name!r:.60}: pass a text of 1 to {_MAX_NAME_BYTES} bytes")
    if filter_value not in (None, "key") and not callable(filter_value):
        raise errors.InputError(
            f"filter_value is {filter_value!r:.60}: pass 'key', or a function of the key; a column is filter_values= of publish_many"
        )
    if options.sub_entry_rows is None:
        if compression != "none":
            raise errors.InputError(f"compression is {compression!r}: pass sub_entry_rows, too, such as 100")
        return
    if not has_codec(compression):
        raise errors.InputError(f"compression is {compression!r}, and {NO_CODEC}; or pass another")
    if filter_value is not None:
        raise errors.InputError(_FILTERED_SUB_ENTRIES)


def _check_target(options: WriterOptions) -> None:
    """Check the arguments for the streams of the rows, and those that create them."""
    stream = options.stream
    super_stream = options.super_stream
    create = options.create
    if [stream, super_stream, options.ring].count(None) != 2:
        raise errors.InputError(
            "pass one of stream, super_stream and ring: it determines where the rows are stored"
        )

    if stream is not None:
        check_name(stream, "stream")
    check_super_stream(super_stream, options.routing)
    if options.ring is not None and options.exchange is None:
        raise errors.InputError(
            "a ring does not contain the name of its exchange: pass its name with exchange="
        )
    if create and super_stream is None and (stream is None or create > 1):
        raise errors.InputError(
            f"create is {create}: pass 1 for a stream, or super_stream= and its number of partitions; `Broker.declare` creates those of a ring"
        )


def _create_missing(connection: StreamConnection, options: WriterOptions) -> None:
    """Create the stream or super stream if it does not exist. Another client may create it at the same time."""
    stream = options.stream
    super_stream = options.super_stream
    count = options.create
    try:
        if stream is not None:
            connection.metadata([stream])
            return
        if super_stream is None:
            return
        has = len(connection.partitions(super_stream))
        if has != count:
            raise errors.InputError(
                f"create is {count}, and super stream {super_stream!r} has {plural(has, 'partition')}: pass create={has}, or leave create out",
                exchange=super_stream,
            )
    except errors.NotFoundError:
        with suppress(errors.MismatchError):
            if stream is not None:
                connection.create_stream(stream)
            elif super_stream is not None:
                connection.create_super_stream(super_stream, [f"{super_stream}-{n}" for n in range(count)])


def _super_stream(connection: StreamConnection, name: str, routing: StreamRouting | None) -> SuperStream:
    """Return the partitions, with a warning if the broker does not determine how clients route."""
    found = SuperStream(connection.partitions(name))
    if routing is None and are_names(connection.binding_keys(name, found.partitions)):
        warnings.warn(named_keys_text(name), stacklevel=4)
    return found


class _Routes:
    """The partitions of keys by binding key, as the broker gives them, each asked for once."""

    def __init__(self, settings: deque[ConnectionSettings], super_stream: str) -> None:
        self._settings = settings
        self._super_stream = super_stream
        self._known: dict[bytes, int] = {}

    def indices(self, keys: Column) -> NDArray[np.int32]:
        """Return the number of the partition of each key; -1 for a key without one, and for all that are unknown behind it."""
        coded: Column = as_single_array(keys.dictionary_encode())
        distinct = coded.dictionary.to_pylist()
        if any(key not in self._known for key in distinct):
            self._ask(key for key in distinct if key not in self._known)
        places: NDArray[np.int32] = np.array([self._known.get(key, -1) for key in distinct], np.int32)
        found: NDArray[np.int32] = places[coded.indices.to_numpy()]
        return found

    def _ask(self, keys: Iterable[bytes]) -> None:
        with closing(open_any(self._settings)) as connection:
            streams = connection.partitions(self._super_stream)
            for key in keys:
                bound = connection.routes(self._super_stream, key.decode(errors="replace"))
                if len(bound) > 1:
                    raise errors.InputError(
                        f"{len(bound)} partitions of super stream {self._super_stream!r} are bound with the key {key!r:.60}: unbind all but one"
                    )
                if not bound:
                    return  # the caller refuses its row
                self._known[key] = streams.index(bound[0])


def _check_ids(values: Any, rows: int) -> NDArray[np.int64]:
    """Return the ids as an array after checking their number and order."""
    try:
        values = values if hasattr(values, "__array__") else list(values)  # an iterator is consumed once
        count = len(values)
    except TypeError as cause:
        raise errors.InputError(f"ids is {shown(values)}: pass one whole number for each key") from cause

    if count != rows:
        raise errors.InputError(f"{rows} keys and {count} ids: pass one id for each key")
    if not rows:
        return np.empty(0, np.int64)
    ids = np.asarray(values)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 1 or ids.max() > _MAX_ID:
        wanted = "pass whole numbers from 1 to 2^63 - 1"
        for row, value in enumerate(values.to_pylist() if hasattr(values, "to_pylist") else values):
            plain = value.item() if isinstance(value, np.generic) else value
            if not is_whole(plain, 1, _MAX_ID):
                raise errors.InputError(f"row {row} has the id {shown(plain)}: {wanted}")
        raise errors.InputError(f"the ids are of type {ids.dtype}: {wanted}")
    if (ids[1:] <= ids[:-1]).any():
        row = int(np.argmax(ids[1:] <= ids[:-1])) + 1
        raise errors.InputError(
            f"row {row} has id {ids[row]}, and the row before it {ids[row - 1]}: ids rise, or rows would be dropped"
        )

    return ids.astype(np.int64)

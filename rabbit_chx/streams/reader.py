"""Read rows of a stream as Arrow record batches, up to an end that is fixed when the reader is opened.

How it works. The constructor asks the stream's leader for the offsets of start and end (`ends`), since a replica may lag behind. The
end is that of the last chunk *of rows*: publisher ids and consumer offsets are kept in chunks of their own, which take offsets too
and may be the last ones. A reader that waited for a row at the last committed offset might wait for ever.

A caller that knows the offsets, as Spark's tasks know them from the driver, passes `landmarks`, and the constructor does not connect.
The range is verified later if no chunk arrives, or one that ends before the start: the log may have been cut since.

Then the reader subscribes at a replica with ``chunk_selector=all``, which delivers the broker's own chunks too. So the chunks are
contiguous, and a skipped offset is a lost one (`_Progress`). After a lost connection it resubscribes at the last chunk of rows that it
received, which has to be the same one.

rabbitmq-server v4.3.5 and v3.10, rabbit_stream_reader.erl (Subscribe, Credit, ``chunk_selector``); osiris 1.13.1, osiris_log.erl
(``init_offset_reader0``: a start outside of the log is moved into it, silently).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.checks import check_seconds, check_whole, is_whole, shown
from rabbit_chx.connection.failures import interruption
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    DamagedChunkError,
    InputError,
    MissingRowsError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.retry import Backoff, Retry
from rabbit_chx.streams.chunks import MAX_SUB_ENTRY_BYTES, Chunk, Fingerprint, Piece, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.ends import ChunkFinder
from rabbit_chx.streams.frames import (
    LARGEST_FRAME,
    CreditRefused,
    Delivery,
    Node,
    OffsetSpec,
    StreamChanged,
    offset_spec,
)
from rabbit_chx.streams.nodes import AGAIN_S, open_at, settings_of
from rabbit_chx.streams.rows import columns_in, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_BATCH_BYTES = 16 << 20
#: How many bytes the broker may send ahead, estimated by the largest of the latest chunks.
_BYTES_AHEAD = 8 << 20
_MOST_CHUNKS_AHEAD = 128
_SUBSCRIPTION = 0
_PAUSE_S = 0.2
#: Seconds without a chunk after which the range of `landmarks` is verified.
_VERIFY_AFTER_S = 1.0
#: How often a damaged chunk is read before it is an error.
_MOST_DAMAGES = 3


class StreamReader:
    """An iterator over the rows of a stream, as `pyarrow.RecordBatch` with the columns offset, timestamp, key and value.

    ``offset`` is int64. ``timestamp`` is the broker's time of the row's chunk (us, UTC). ``key`` and ``value`` are binary; the key is
    the routing key, where the row has one.

    The constructor connects and fixes the end; rows that are written later are not read. The rows are in the order of the stream, each
    once, also after lost connections and leader changes. Some megabytes at most are read ahead. The loop may be slow: heartbeats are
    sent meanwhile. A reader is not thread-safe.

    Args:
        url: ``rabbitmq-stream://user:password@host:5552/vhost``, with TLS ``rabbitmq-stream+tls://`` (5551), or the AMQP URI of
            the same host; or settings of a connection. Several are tried in turn.
        stream: the stream's name.
        start: ``"first"``, ``"last"`` (the last chunk), ``"next"`` (behind the last row), an offset, or an aware datetime: the first
            chunk of that time or later. The time of a chunk is the clock of the leader that wrote it, in milliseconds.
        end: the first offset that is not read, or an aware datetime: the first chunk of that time or later is not read. None for the
            end of the stream at the time of opening.
        include: further columns: ``"exchange"``, ``"message_id"``, ``"properties"``, ``"headers"``; see `rabbit_chx.streams.rows`.
        batch_rows: about how many rows a batch has at most. It also ends at about 16 MiB of unpacked rows. A sub-entry is never split,
            nor is a chunk of less than 16 MiB without sub-entries.
        addresses: the address to connect to for an address that a node advertises: ``{"rabbit-0:5552": "127.0.0.1:15552"}``.
        on_missing: ``"raise"`` a MissingRowsError if the stream lacks offsets between start and end, or ``"count"`` them in `missing`.
        landmarks: fingerprints of chunks that the stream had when the offsets `start` and `end` were found. Then the constructor does
            not connect, one connection is enough, and the range is verified only if no rows arrive. A chunk that differs from its
            landmark is a MissingRowsError. None to find the range in the constructor.
        expect: the `fingerprint` of the reader that ended where this one starts. A log that was rewritten since then is a
            MissingRowsError. If retention has removed that chunk, nothing is compared.
        timeout_s: the longest time without a chunk in seconds, including reconnects.
        check_crc: whether the CRC of each chunk is checked.
        max_frame_bytes: the largest chunk that is received, in bytes. Brokers send chunks of hundreds of MiB where messages are large.
        max_sub_entry_bytes: the largest sub-entry that is unpacked, in bytes of its rows. A larger one is an error before it is unpacked.

    Attributes:
        stream: the stream's name.
        start_offset: the first offset to read.
        end_offset: the first offset that is not read.
        next_offset: the offset behind the returned batches; a later reader may start there.
        end_fingerprint: the fingerprint of the last chunk of rows at the time of opening; None without rows, and with `landmarks`.
        fingerprint: the fingerprint of the last returned chunk; before the first one it is `expect`.
        chunks: the number of returned chunks; the broker writes a chunk at once.

    Raises:
        InputError: an argument is not valid.
        MissingRowsError: the stream lacks a part of the range.
        NotFoundError: there is no such stream, whatever `on_missing` is.
        BrokerRefusedError: the broker refuses the user, the vhost or the stream.
        UnreachableError: no node answers in time.

    Example::

        with StreamReader("rabbitmq-stream://localhost", "orders-0") as reader:
            for batch in reader:
                print(batch.num_rows, batch["key"][0])
    """

    def __init__(
        self,
        url: str | ConnectionSettings | Sequence[str | ConnectionSettings],
        stream: str,
        *,
        start: OffsetSpec = "first",
        end: int | datetime | None = None,
        include: Collection[str] = (),
        batch_rows: int = 65_536,
        addresses: Mapping[str, str] | None = None,
        on_missing: Literal["raise", "count"] = "raise",
        landmarks: Collection[Fingerprint] | None = None,
        expect: Fingerprint | None = None,
        timeout_s: float = 60.0,
        check_crc: bool = True,
        max_frame_bytes: int = LARGEST_FRAME,
        max_sub_entry_bytes: int = MAX_SUB_ENTRY_BYTES,
    ) -> None:
        try:
            self._settings = settings_of(url)
        finally:
            del url  # no variable of a frame of an error has a password
        _check_range(start, end, expect)
        check_whole("batch_rows", batch_rows, 1)
        check_seconds("timeout_s", timeout_s, zero=False)
        if on_missing not in ("raise", "count"):
            raise InputError(f"on_missing is {shown(on_missing)}: give 'raise' or 'count'")
        check_whole("max_frame_bytes", max_frame_bytes, 1 << 20)
        check_whole("max_sub_entry_bytes", max_sub_entry_bytes, 1)
        schema_of(include if isinstance(include, str) else tuple(include))  # raises for unknown columns
        self._include = tuple(include)
        if not isinstance(stream, str):
            raise InputError(f"the stream is {shown(stream)}: give its name")
        self.stream = stream
        self._batch_rows = batch_rows
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._check_crc = check_crc
        self._max_frame_bytes = max_frame_bytes
        self._max_sub_entry_bytes = max_sub_entry_bytes
        self._connection: StreamConnection | None = None
        self._damaged = 0  # the offset of the damaged chunk,
        self._damaged_at = list[Node | None]()  # and the nodes that delivered it
        self._credit = 0  # chunks that the broker may still send
        self._ahead = 1  # the last credit limit
        self._largest = 0  # bytes of the largest of the latest chunks
        self._received: deque[tuple[Chunk, list[Piece]]] = deque()
        self._pieces: deque[Piece] = deque()  # the rest of the current chunk
        self._current: Chunk | None = None  # that chunk, until a row of it is returned
        self._failure: Exception | None = None
        self._progress = _Progress(stream, count_missing=on_missing == "count")
        self.end_fingerprint: Fingerprint | None = None
        self._is_unverified = landmarks is not None
        if landmarks is None:
            until = time.monotonic() + timeout_s
            self.end_fingerprint = self._patiently(until, lambda: self._find_range(start, end, expect, until))
        elif isinstance(start, int) and isinstance(end, int):
            self._progress.begin(start, end, end)
            self._progress.landmarks = list(landmarks)
        else:
            raise InputError(
                f"landmarks are given, start is {shown(start)} and end is {shown(end)}: give two offsets"
            )
        self.fingerprint = self._progress.last = expect
        self.start_offset = self.next_offset = self._progress.next
        self.chunks = 0
        self.end_offset = self._progress.end

    @property
    def missing(self) -> int:
        """The number of offsets between start and end that the stream lacks so far, with ``on_missing="count"``."""
        return self._progress.missing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises:
            MissingRowsError: rows before the end were removed, or the log was rewritten.
            UnreachableError: no chunk arrived within the timeout.
            RabbitChxError: reading failed. Each later call raises it again.
        """
        if self._failure is not None:
            raise self._failure
        try:
            batch = self._next_batch()
        except BaseException as cause:  # a later call would skip the received chunks
            where = f"the reader of stream {self.stream!r}"
            self._failure = cause if isinstance(cause, Exception) else interruption(where, cause)
            self._disconnect()
            raise
        if batch is None:
            self._disconnect()
            raise StopIteration
        return batch

    def close(self) -> None:
        """Close the connection; may be called again."""
        self._disconnect()
        self._failure = self._failure or InputError(
            f"the reader of stream {self.stream!r} is closed: open a new one"
        )

    # -- the range

    def _find_range(
        self, start: OffsetSpec, end: int | datetime | None, expect: Fingerprint | None, until: float
    ) -> Fingerprint | None:
        """Find the range on the leader, and return the fingerprint of the last chunk of rows."""
        connection = self._connection = self._open(until, leader=True)
        finder = ChunkFinder(connection, _left_s(until), check_crc=self._check_crc)
        log_end = finder.end(self.stream)
        begin, at_begin = finder.locate(self.stream, start, log_end)
        stop = log_end.offset
        if end is not None:
            stop = end if isinstance(end, int) else finder.locate(self.stream, end, log_end)[0]
        before = finder.chunk_at(self.stream, expect.offset) if expect else None
        self._disconnect()
        self._damaged_at.clear()
        self._progress.begin(begin, max(stop, begin), log_end.offset)
        self._progress.landmarks += [known for known in (at_begin, log_end.fingerprint) if known]
        if expect is not None:
            self._progress.compare(expect, before, log_end.offset)
        self._is_unverified = False
        return log_end.fingerprint

    def _verify_range(self, until: float) -> None:
        """Verify on the leader the range that the caller passed, over a connection of its own.

        Raises:
            MissingRowsError: the leader lacks a part of it, or the log was rewritten.
        """
        self._disconnect()
        self._received.clear()
        progress = self._progress
        self._find_range(progress.next, progress.end, progress.last, until)

    # -- reading

    def _next_batch(self) -> pa.RecordBatch | None:
        progress, batch, rows, size = self._progress, list[Piece](), 0, 0
        until = time.monotonic() + self._timeout_s
        while rows < self._batch_rows and size < _BATCH_BYTES:
            if not self._pieces:
                if progress.done:
                    break
                until = self._take_chunk(until)
                continue
            piece = self._pieces[0]
            if batch and size + piece.size > _BATCH_BYTES:
                break
            batch.append(self._pieces.popleft())
            rows += piece.records
            size += piece.size
            if self._current is not None:
                self.fingerprint, self._current = self._current.fingerprint, None
                self.chunks += 1
        columns = columns_in(batch, self.start_offset, self.end_offset, self._include) if batch else None
        # After the columns, which a damaged chunk may not have: its rows were not returned.
        self.next_offset = min(self._pieces[0].offset if self._pieces else progress.next, progress.end)
        return columns

    def _take_chunk(self, until: float) -> float:
        """Take the next chunk of the range, wait for it if necessary, and return the deadline for the following one."""
        progress = self._progress
        if not self._received:
            self._patiently(until, lambda: self._receive(self._connection or self._subscribe(until), until))
        if self._is_unverified and self._received and self._received[0][0].end <= progress.resume_at:
            self._patiently(until, lambda: self._verify_range(until))
        if not self._received:  # only the range was verified
            return until
        (chunk, found), before = self._received.popleft(), progress.next
        if progress.take(chunk):
            self._current = chunk
            self._pieces.extend(
                piece for piece in found if piece.end > before and piece.offset < progress.end
            )
        if progress.next <= before:  # a known chunk does not extend the deadline
            return until
        if progress.next > self._damaged:
            self._damaged_at.clear()
        return time.monotonic() + self._timeout_s

    def _patiently(self, until: float, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first successful attempt; each has a new connection."""

        def with_context() -> _T:
            try:
                return attempt()
            except DamagedChunkError as cause:
                raise self._damage(cause) from None
            except InputError as cause:
                raise InputError(f"stream {self.stream!r}: {cause}") from None

        def may_retry(cause: RabbitChxError) -> bool:
            self._disconnect()
            if isinstance(cause, DamagedChunkError):  # another replica may have the chunk undamaged
                is_worth_it = len(self._damaged_at) < _MOST_DAMAGES
            else:
                is_worth_it = is_transient(cause)
            if is_worth_it:
                _log.warning("%s; trying again", cause)
            return is_worth_it

        return Retry(until - AGAIN_S, Backoff(_PAUSE_S, _PAUSE_S)).call(with_context, may_retry)

    def _damage(self, cause: DamagedChunkError) -> DamagedChunkError:
        """Note the node that delivered a damaged chunk, and return an error with the nodes so far."""
        self._damaged = self._received[-1][0].end if self._received else self._progress.next
        self._damaged_at.append(self._connection.node if self._connection else None)
        nodes = ", ".join(str(node or "a node without an address") for node in self._damaged_at)
        return DamagedChunkError(
            f"stream {self.stream!r}: {cause} (read {len(self._damaged_at)} times, from {nodes})"
        )

    def _subscribe(self, until: float) -> StreamConnection:
        """Connect to a replica and subscribe at the last known chunk."""
        connection = self._connection = self._open(until, leader=False)
        # The broker waits for more than half of the *first* credit. That is 1 here, so it never waits.
        connection.subscribe(
            _SUBSCRIPTION, self.stream, self._progress.resume_at, 1, {"chunk_selector": "all"}
        )
        self._credit = self._ahead = 1
        return connection

    def _receive(self, connection: StreamConnection, until: float) -> None:
        """Wait for a chunk, or verify the range; a connection that is silent for half of the timeout is replaced."""
        silent_at = min(until, time.monotonic() + self._timeout_s / 2)
        if self._is_unverified and not self._received:
            self._receive_within(connection, min(_VERIFY_AFTER_S, _left_s(silent_at)))
            if not self._received:
                self._verify_range(until)
                return
        while not self._received:
            left_s = silent_at - time.monotonic()
            if left_s <= 0:
                with suppress(UnreachableError):
                    self._check_log(max(until, time.monotonic() + AGAIN_S))
                raise BrokerTimeoutError(
                    f"{connection.where}: stream {self.stream!r} gives nothing from offset {self._progress.next} on, and the reading "
                    f"ends at {self._progress.end}: look at its replicas (rabbitmq-streams stream_status), and whether it was made "
                    "again",
                    queue=self.stream,
                )
            self._receive_within(connection, left_s)

    def _check_log(self, until: float) -> None:
        """Check that the leader still has the range, which a majority had at the time of opening.

        Raises:
            MissingRowsError: the log ends before it.
        """
        with closing(self._open(until, leader=True)) as connection:
            last = ChunkFinder(connection, check_crc=self._check_crc).chunk_at(self.stream, "last")
        if last is not None:  # else a majority may not have it again yet
            self._progress.must_reach(last.end)

    def _receive_within(self, connection: StreamConnection, wait_s: float) -> None:
        """Receive the chunks that arrive within the wait, and replenish the credit."""
        largest = self._largest // 2
        for event in connection.events(wait_s):
            match event:
                case Delivery():
                    chunk = read_chunk(event.chunk, check_crc=self._check_crc)
                    self._received.append((chunk, self._pieces_of(chunk)))
                    self._credit -= 1
                    largest = max(largest, len(event.chunk))
                case StreamChanged() | CreditRefused():
                    raise ConnectionLostError(
                        f"{connection.where}: the broker has ended the subscription of stream {self.stream!r}: the stream is "
                        "deleted, or its replica or leader has changed",
                        queue=self.stream,
                    )
                case _:
                    pass
        self._largest = largest
        ahead = min(max(1, _BYTES_AHEAD // max(largest, 1)), _MOST_CHUNKS_AHEAD)
        # A small first chunk is no measure of the next ones: it is often the publisher's first row alone.
        ahead = min(ahead, 2 * self._ahead)
        if self._received and self._credit <= ahead // 2:
            connection.give_credit(_SUBSCRIPTION, ahead - self._credit)
            self._credit = self._ahead = ahead

    def _pieces_of(self, chunk: Chunk) -> list[Piece]:
        if chunk.kind != "user" or chunk.end <= self._progress.next:
            return []
        return pieces(chunk, max_sub_entry_bytes=self._max_sub_entry_bytes)

    def _open(self, until: float, *, leader: bool) -> StreamConnection:
        connection = open_at(
            self._settings,
            self.stream,
            leader=leader,
            addresses=self._addresses,
            timeout_s=_left_s(until),
            max_frame_bytes=self._max_frame_bytes,
            avoid=self._damaged_at,
            stay=self._is_unverified,
        )
        connection.deadline = until
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Progress:
    """The position in a range: decides which chunks are wanted, and which rows are missing. No I/O.

    Attributes:
        next: the first offset that was not seen yet.
        end: the first offset behind the range.
        last: the last chunk of rows before `next`: seen, or expected before the start.
        landmarks: further chunks that the stream had at the time of opening.
        missing: the number of skipped offsets.
    """

    def __init__(self, stream: str, *, count_missing: bool) -> None:
        self.next = self.end = 0
        self.last: Fingerprint | None = None
        self.landmarks: list[Fingerprint] = []
        self.missing = 0
        self._stream = stream
        self._count_missing = count_missing

    @property
    def done(self) -> bool:
        """Whether the end is reached."""
        return self.next >= self.end

    @property
    def resume_at(self) -> int:
        """The offset to subscribe at: the last chunk of rows again, to detect a rewritten log."""
        return self.next if self.last is None else self.last.offset

    def begin(self, start: int, end: int, log_end: int) -> None:
        """Set the range.

        Raises:
            MissingRowsError: the range begins or ends behind the end of the log.
        """
        if start > log_end and start == end:
            raise MissingRowsError(
                f"stream {self._stream!r} ends at offset {log_end}, before the start, {start}: it was deleted and made again, or its "
                "log was cut; start at an offset that it has",
                queue=self._stream,
            )
        self.next, self.end = start, end
        if end > log_end:
            self.end = max(start, log_end)
            self._lose(self.end, end, f", it ends at {log_end}", "end there")

    def take(self, chunk: Chunk) -> bool:
        """Advance by a chunk, and return whether it has rows of the range.

        Raises:
            MissingRowsError: it differs from the known chunk at its place, or offsets before it are missing.
        """
        for known in filter(None, (self.last, *self.landmarks)):
            if chunk.offset <= known.offset < chunk.end:
                self._must_be(known, chunk)
        if chunk.end <= self.next:  # known, or from a replica that lags behind
            return False
        if chunk.offset > self.next:
            self._lose(self.next, min(chunk.offset, self.end), f" any more, it goes on at {chunk.offset}")
            self.next = min(chunk.offset, self.end)
            if self.done:
                return False
        self.next = chunk.end
        if chunk.kind == "user":
            self.last = chunk.fingerprint
        return chunk.kind == "user"

    def compare(self, expected: Fingerprint, found: Chunk | None, log_end: int) -> None:
        """Compare a chunk with the first one that is now at its offset or behind it.

        Raises:
            MissingRowsError: another chunk is at its place.
        """
        if found is None or log_end <= expected.offset:
            raise self._rewritten(expected, f"it ends at {log_end}")
        if found.offset <= expected.offset:
            self._must_be(expected, found)

    def must_reach(self, log_end: int) -> None:
        """Check that the log reaches the end of the range.

        Raises:
            MissingRowsError: the log has lost rows.
        """
        if log_end < self.end:
            raise self._rewritten(self.landmarks[-1], f"it ends at {log_end}")

    def _must_be(self, expected: Fingerprint, chunk: Chunk) -> None:
        found = chunk.fingerprint
        if found != expected:
            raise self._rewritten(expected, f"{found} is there")

    def _rewritten(self, expected: Fingerprint, found: str) -> MissingRowsError:
        return MissingRowsError(
            f"the log of stream {self._stream!r} has been rewritten: where {expected} was, {found}. The stream was deleted and made "
            "again, or its log was cut, and its offsets now mean other rows: read it from the first one",
            queue=self._stream,
        )

    def _lose(
        self,
        begin: int,
        end: int,
        what: str,
        remedy: str = "retention has removed them, or its log was cut; start behind them",
    ) -> None:
        if not self._count_missing:
            raise MissingRowsError(
                f"stream {self._stream!r} does not have the offsets {begin} to {end - 1}{what}: {remedy}, or give "
                "on_missing='count'",
                queue=self._stream,
                offsets=range(begin, end),
            )
        self.missing += end - begin


def _left_s(until: float) -> float:
    return max(0.001, until - time.monotonic())


def _check_range(start: OffsetSpec, end: int | datetime | None, expect: Fingerprint | None) -> None:
    offset_spec(start)  # raises for an invalid start
    if not (
        end is None
        or is_whole(end, 0, (1 << 63) - 1)
        or (isinstance(end, datetime) and end.tzinfo is not None)
    ):
        raise InputError(f"end is {shown(end)}: give an offset from 0, an aware datetime, or None")
    for kind in (int, datetime):
        if isinstance(start, kind) and isinstance(end, kind) and end < start:  # type: ignore[operator]
            raise InputError(f"end is {end}, before the start, {start}")
    if expect is not None and not (isinstance(start, int) and expect.offset < start):
        raise InputError(
            f"expect is {expect}, and start is {shown(start)}: start at an offset behind that chunk"
        )

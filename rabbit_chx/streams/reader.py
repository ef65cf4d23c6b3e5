"""Read rows of a stream as Arrow record batches, up to an end that is fixed when the reader is opened, or as they arrive.

Method:

1. The constructor finds the offsets of start and end on the stream's leader (`ChunkFinder`), since a replica may lag behind. The end is
   that of the last chunk *of rows*: `rabbit_chx.streams.ends` explains why.
2. A `RangeReader` gets the offsets with `landmarks`: the fingerprints of chunks in the range. Spark's tasks receive both from the
   driver. Its constructor does not connect. The range is verified on the leader only if the log may have been cut since: if no chunk
   arrives, or one that ends before the start.
3. The reader subscribes at a replica with ``chunk_selector=all``, which delivers the broker's tracking chunks too. So the chunks are
   contiguous, and a skipped offset is a lost one (`Progress`).
4. After a lost connection it resubscribes at the last chunk of rows that it received. A different chunk there is an error.
5. With filters the broker omits chunks: `rabbit_chx.streams.filters` explains how the reader finds the end then.
6. With ``end="never"`` silence is normal. After half of the timeout the leader is asked (`_is_behind`): whether it has a chunk that was
   not delivered, and whether it still has the last one that was. It is also asked before the reader resubscribes. Otherwise a log that
   was rewritten and is shorter now would look like an idle one: the broker moves a start behind the end to the end.

rabbitmq-server v4.3.5 and v3.10, rabbit_stream_reader.erl (Subscribe, Credit, ``chunk_selector``); osiris 1.13.1, osiris_log.erl
(``init_offset_reader0``: a start outside of the log is moved into it, silently).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.checks import shown
from rabbit_chx.connection.failures import interruption
from rabbit_chx.connection.owner import Owner
from rabbit_chx.errors import (
    BrokerTimeoutError,
    DamagedChunkError,
    InputError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.retry import Backoff, Retry
from rabbit_chx.streams.batches import Batches
from rabbit_chx.streams.chunks import Chunk, Fingerprint, Piece, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.ends import ChunkFinder
from rabbit_chx.streams.filters import Filters
from rabbit_chx.streams.following import ATTEMPT_S, STOP_INTERVAL_S, Following
from rabbit_chx.streams.frames import (
    DeliveredChunk,
    Key,
    OffsetSpec,
    check_range,
)
from rabbit_chx.streams.nodes import MIN_ATTEMPT_S, node_addresses, open_at, settings_of
from rabbit_chx.streams.offsets import StoredOffset
from rabbit_chx.streams.options import RangeOptions, ReaderOptions
from rabbit_chx.streams.progress import DamagedReads, Progress
from rabbit_chx.streams.rows import columns_in, schema_of
from rabbit_chx.streams.subscription import BATCH_BYTES, Subscription

if TYPE_CHECKING:
    import pyarrow as pa


_T = TypeVar("_T")

_log = logging.getLogger(__name__)

#: With filters: the subscription to the last chunk of the range.
_END_SUBSCRIPTION_ID = 1
#: With filters: the subscription to the next matching chunk.
_NEXT_SUBSCRIPTION_ID = 2
#: Seconds without a chunk after which a reader with filters looks for the next matching one.
_QUIET_S = 0.05
_RETRY_PAUSE_S = 0.2
#: Seconds without a chunk after which the range of a `RangeReader` is verified.
_VERIFY_AFTER_S = 1.0


@documented(ReaderOptions)
class StreamReader(Batches):
    """An iterator over the rows of a stream, as `pyarrow.RecordBatch`. The columns are offset, timestamp, key and value.

    ``offset`` is int64. ``timestamp`` is the broker's time of the row's chunk (us, UTC). ``key`` and ``value`` are binary; the key is
    the routing key, where the row has one.

    The constructor connects and fixes the end; rows that are written later are not read, unless `end` is ``"never"``. The rows are in the
    order of the stream, each once, also after lost connections and leader changes. At most some megabytes are read ahead. The loop may be
    slow: heartbeats are sent meanwhile. A reader is not thread-safe, except for `stop`. In a forked process reading raises InputError.

    ``async for`` also returns the batches, each awaited in a thread: a batch has thousands of rows, so that costs little. A cancelled wait
    loses no batch. ``async with`` closes the reader in a thread, too. The other methods and the constructor block: call them by
    ``await asyncio.to_thread(StreamReader, ...)``. A reader is an Arrow stream (``__arrow_c_stream__``): DuckDB, Polars, pandas and
    DataFusion read it as a table.

    Attributes:
        stream: the stream's name.
        start_offset: the first offset to read.
        end_offset: the first offset that is not read; 2^63 - 1 for ``"never"``.
        next_offset: the offset after the returned batches; a later reader may start there.
        end_fingerprint: the fingerprint of the last chunk of rows at the time of opening; None without rows.
        fingerprint: the fingerprint of the last returned chunk; before the first one it is `expect`.
        chunks: the number of returned chunks; the broker writes a chunk at once.
        rows_read: the rows of the batches before the reader applied `filters` to them.
        rows_returned: the rows of the returned batches.

    Raises:
        InputError: an argument is not valid.
        MissingRowsError, NotFoundError: the stream lacks a part of the range, or does not exist.
        BrokerRefusedError, UnreachableError: the broker refuses the user, the vhost or the stream, or no node answers in time.

    Example::

        with StreamReader("rabbitmq-stream://localhost", "orders-0") as reader:
            print(sum(batch.num_rows for batch in reader))
    """

    @takes(ReaderOptions)
    def __init__(self, options: ReaderOptions) -> None:
        self._begin(options)

    def _begin(self, options: ReaderOptions) -> None:
        stream, limits, include, name = options.stream, options.limits, options.include, options.name
        self._settings = settings_of(options.url, options.credentials)
        landmarks = options.landmarks if isinstance(options, RangeOptions) else None
        check_range(options.start, options.end, options.expect)
        check_options(options)
        if name is not None and (options.expect is not None or landmarks is not None):
            raise InputError(
                f"the name is {shown(name)}, and expect or landmarks is given: the broker keeps the position, or the application does"
            )
        if not isinstance(stream, str):
            raise InputError(f"the stream is {shown(stream)}: give its name")
        schema_of(include if isinstance(include, str) else tuple(include))  # raises for unknown columns
        self._owner = Owner(f"the StreamReader of {stream!r:.80}")
        self.stream = stream
        self._include = tuple(include)
        is_filtered = options.filters or options.match_unfiltered
        self._filters = Filters.of(options.filters, options.match_unfiltered) if is_filtered else None
        self._addresses = options.addresses and node_addresses(options.addresses)
        self._limits, self._check_crc = limits, options.check_crc
        self._stored = None if name is None else StoredOffset(stream, name)
        self._following = (
            Following(stream, limits.max_wait_s, limits.timeout_s, self._receive_following, self._is_behind)
            if options.end == "never"
            else None
        )
        self._connection: StreamConnection | None = None
        self._failure: Exception | None = None
        # With filters: whether the replica of the connection has the whole range, and whether a further chunk in the range matches.
        self._is_stopped = self._has_end = self._has_next = False
        self._subscription = Subscription(stream)
        self._progress = Progress(stream, count_missing=options.on_missing == "count")
        self._damaged = DamagedReads(stream)
        self._unreturned_chunk: Chunk | None = None  # the current chunk, until a row of it is returned
        self.chunks = self.rows_read = self.rows_returned = 0
        self.end_fingerprint: Fingerprint | None = None
        #: True if the caller found the range, until it is verified on the leader.
        self._is_unverified = landmarks is not None
        start, end, expect = options.start, options.end, options.expect
        if landmarks is None:
            deadline = time.monotonic() + limits.timeout_s
            self.end_fingerprint = self._retry(
                deadline, lambda: self._find_range(start, end, expect, deadline)
            )
        elif isinstance(start, int) and isinstance(end, int):
            self._progress.set_range(start, end, end)
            self._progress.landmarks = list(landmarks)
        else:
            raise InputError(
                f"landmarks are given, start is {shown(start)} and end is {shown(end)}: give two offsets"
            )
        self.fingerprint = expect
        self._progress.last = expect or self._progress.last
        self.start_offset = self.next_offset = self._progress.next
        self.end_offset = self._progress.end

    @property
    def bytes_read(self) -> int:
        """The received bytes of chunks, without those that find the range."""
        return self._subscription.bytes_received

    @property
    def schema(self) -> pa.Schema:
        """The schema of each batch."""
        return schema_of(self._include)

    @property
    def missing(self) -> int:
        """The number of missing offsets between start and end so far, with ``on_missing="count"``."""
        return self._progress.missing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises:
            MissingRowsError: rows before the end were removed, or the log was rewritten.
            UnreachableError: no chunk arrived within the timeout.
            InputError: this is a forked process.
            RabbitChxError: reading failed. Each later call raises it again.
        """
        self._owner.check()
        if self._failure is not None:
            raise self._failure
        try:
            batch = self._next_batch()
            while batch is not None and self._filters and not batch.num_rows:
                batch = self._next_batch()
        except BaseException as cause:
            self._disconnect()
            if self._is_stopped and isinstance(cause, RabbitChxError):
                raise StopIteration from None
            # Also after an interruption: a later call would skip the chunks that were already taken.
            where = f"the reader of stream {self.stream!r}"
            self._failure = cause if isinstance(cause, Exception) else interruption(where, cause)
            raise
        if batch is None:
            self._disconnect()
            raise StopIteration
        self.rows_returned += batch.num_rows
        return batch

    def store_offset(self, batch: pa.RecordBatch) -> None:
        """Store that the rows up to the end of `batch` are processed, under the reader's name.

        The broker gets it with the next 10,000 rows, within 5 seconds, or at `close`, which waits until the leader has it. A program that
        is killed reads the rows since then again. A batch without rows stores nothing.

        Raises:
            InputError: the reader has no name, or is closed, or the batch has no column ``offset``.
        """
        self._owner.check()
        if self._stored is None:
            raise InputError(f"the reader of stream {self.stream!r} has no name, or is closed: give name=")
        self._stored.note(batch)
        if self._connection is not None:
            with suppress(RabbitChxError):  # the next connection writes it
                self._stored.write_if_due(self._connection)

    def stop(self) -> None:
        """End the iteration: the batch that is being filled is returned, and no further one. Another reader may start at `next_offset`.

        Another thread and a signal handler may call it. The loop ends within a fraction of a second, or some seconds while it reconnects.
        """
        self._is_stopped = True
        if self._following is not None:
            self._following.is_stopped = True

    def close(self) -> None:
        """Store the offset, and close the connection; may be called again. In a forked process it does nothing."""
        if not self._owner.is_this_process:
            return
        self.stop()
        self._disconnect()
        stored, self._stored = self._stored, None
        if stored is not None:
            stored.finish(lambda: self._open(time.monotonic() + ATTEMPT_S, leader=True))
        self._failure = self._failure or InputError(
            f"the reader of stream {self.stream!r} is closed: open a new one"
        )

    # -- the range

    def _find_range(
        self,
        start: OffsetSpec,
        end: int | datetime | Literal["never"] | None,
        expect: Fingerprint | None,
        deadline: float,
    ) -> Fingerprint | None:
        """Find the range on the leader, and return the fingerprint of the last chunk of rows."""
        connection = self._connection = self._open(deadline, leader=True)
        finder = ChunkFinder(connection, _remaining_s(deadline), check_crc=self._check_crc)
        log_start = 0
        if self._stored is not None:
            start, log_start = self._stored.start(finder, start)
        found = finder.find_range(self.stream, start, end, expect, with_last=self._filters is not None)
        self._disconnect()  # rows are read from a replica
        self._damaged.nodes.clear()
        self._progress.set_range(found.start, max(found.start, found.end), found.log_end.offset)
        if self._stored is not None and log_start:
            self._progress.skip_unstored(self._stored.name, log_start)
        self._progress.landmarks += found.chunks
        if expect is not None:
            self._progress.check_chunk(expect, found.expected, found.log_end.offset)
        last = found.log_end.fingerprint
        if self._following and last and last.offset < found.start:
            self._progress.last = last  # so that a rewritten log is detected before the first row
        self._is_unverified = False
        return last

    def _verify_range(self, deadline: float) -> None:
        """Verify on the leader the rest of the range that the caller passed; the next chunk needs a new subscription."""
        self._disconnect()
        self._subscription.waiting.clear()
        progress = self._progress
        self._find_range(progress.next, progress.end, progress.last, deadline)

    # -- reading

    def _next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""
        progress, pieces_left = self._progress, self._subscription.pieces
        taken, rows, size = list[Piece](), 0, 0
        deadline = time.monotonic() + self._limits.timeout_s
        while rows < self._limits.batch_rows and size < BATCH_BYTES and not self._is_stopped:
            if not pieces_left:
                if progress.next >= progress.end or (
                    taken and self._following and not self._has_more(self._following)
                ):
                    break
                deadline = self._take_chunk(deadline)
                continue
            piece = pieces_left[0]
            if taken and size + piece.size > BATCH_BYTES:
                break
            taken.append(pieces_left.popleft())
            rows += piece.records
            size += piece.size
            if self._unreturned_chunk is not None:
                self.fingerprint, self._unreturned_chunk = self._unreturned_chunk.fingerprint, None
                self.chunks += 1
        columns = None
        if taken:
            include = self._include if self._filters is None else self._filters.columns(self._include)
            columns = columns_in(taken, self.start_offset, self.end_offset, include)
            self.rows_read += columns.num_rows
            if self._filters is not None:
                columns = self._filters.select(columns, self._include)
        # Only now: `columns_in` fails for a damaged chunk, and rows that were not returned must not be skipped.
        if self._following is None:
            self.next_offset = min(pieces_left[0].offset if pieces_left else progress.next, progress.end)
        elif taken:  # not behind chunks of the broker: a stream without further rows ends before them
            self.next_offset = taken[-1].end
        return columns

    def _take_chunk(self, deadline: float) -> float:
        """Take the next chunk of the range, wait for it if necessary, and return the deadline for the following one."""
        progress = self._progress
        found = self._retry(deadline, lambda: self._received_chunk(deadline))
        if found is None:
            return time.monotonic() + self._limits.timeout_s if self._following else deadline
        chunk, chunk_pieces = found
        with suppress(RabbitChxError):  # the next wait raises it again
            if self._connection is not None:
                self._subscription.replenish()
        first = progress.next
        has_rows = progress.advance(chunk)
        if progress.next <= first:  # a chunk that was received before does not extend the deadline
            return deadline
        self._damaged.forget_before(progress.next)
        if has_rows:
            self._unreturned_chunk = chunk
            if chunk.offset < first or chunk.end > progress.end:
                chunk_pieces = [
                    piece for piece in chunk_pieces if piece.end > first and piece.offset < progress.end
                ]
            self._subscription.pieces.extend(chunk_pieces)
        return time.monotonic() + self._limits.timeout_s

    def _received_chunk(self, deadline: float) -> tuple[Chunk, list[Piece]] | None:
        """Return the next chunk with its pieces, received before or now; None if the range was verified, or none exists or matches."""
        subscription = self._subscription
        if not subscription.waiting:
            receive = self._receive if self._following is None else self._following.wait
            receive(self._connection or self._subscribe(deadline), deadline)
            if not subscription.waiting:
                return None
        chunk = read_chunk(subscription.take(), check_crc=self._check_crc)
        # If the log was cut, the broker moves the start to its end: the first chunk then is one before the start.
        if self._is_unverified and chunk.end <= self._resume_at:
            self._verify_range(deadline)
            return None
        if chunk.kind != "user" or chunk.end <= self._progress.next:
            return chunk, []
        # Parsing detects damage that the CRC does not.
        return chunk, pieces(chunk, max_sub_entry_bytes=self._limits.max_sub_entry_bytes)

    def _retry(self, deadline: float, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first successful attempt. A failed one closes the connection."""
        causes: list[RabbitChxError] = []  # of the failed attempts

        def with_context() -> _T:
            began = time.monotonic()
            try:
                return attempt()
            except UnreachableError as cause:
                if causes and _is_cut(cause, began, deadline):
                    raise causes[-1] from None
                raise
            except DamagedChunkError as cause:
                self._subscription.waiting.clear()  # they would be behind a gap
                node = self._connection.node if self._connection else None
                raise self._damaged.note(cause, self._progress.next, node) from None
            except InputError as cause:
                raise InputError(f"stream {self.stream!r}: {cause}") from None

        def may_retry(cause: RabbitChxError) -> bool:
            self._disconnect()
            causes.append(cause)
            if self._is_stopped:
                return False
            is_damage = isinstance(cause, DamagedChunkError)  # another replica may have the chunk undamaged
            may_succeed = self._damaged.may_retry if is_damage else is_transient(cause)
            if may_succeed:
                if self._following is not None:
                    self._following.is_interrupted = True
                _log.warning("%s; trying again", cause, extra={"queue": self.stream})
            return may_succeed

        return Retry(deadline - MIN_ATTEMPT_S, Backoff(_RETRY_PAUSE_S, _RETRY_PAUSE_S)).call(
            with_context, may_retry
        )

    @property
    def _resume_at(self) -> int:
        """The offset to subscribe at: the last chunk of rows again, to detect a rewritten log."""
        return self._progress.next if self._progress.last is None else self._progress.last.offset

    def _subscribe(self, deadline: float) -> StreamConnection:
        """Connect to a replica and subscribe; after an interruption with ``end="never"`` the leader is asked first."""
        if self._following is not None and self._following.is_interrupted:
            self._is_behind(deadline)
            self._following.is_interrupted = False
        start = self._resume_at
        connection = self._connection = self._open(deadline, leader=False)
        all_chunks = {"chunk_selector": "all"}
        self._has_end = False
        if self._filters and self._following is None:
            connection.subscribe(_END_SUBSCRIPTION_ID, self.stream, self._progress.end - 1, 1, all_chunks)
        properties = self._filters.properties if self._filters else all_chunks
        self._subscription.begin(connection, start, properties)
        return connection

    def _receive_following(self, connection: StreamConnection, wait_s: float) -> bool:
        """With ``end="never"``: receive within `wait_s` seconds, and return whether there are chunks."""
        connection.deadline = time.monotonic() + self._limits.timeout_s
        if self._stored is not None:
            self._stored.write_if_due(connection)
        self._receive_within(connection, wait_s)
        if self._filters and self._subscription.waiting:
            self._progress.log_start = connection.stats(self.stream)["first_chunk_id"]
        return bool(self._subscription.waiting)

    def _has_more(self, following: Following) -> bool:
        """With ``end="never"``: return whether the batch may get further rows. A lost connection is left to the next batch."""
        try:
            return bool(self._subscription.waiting) or (
                self._connection is not None and following.wait_for_more(self._connection)
            )
        except RabbitChxError as cause:
            _log.debug("%s; the batch is returned first", cause)
            self._disconnect()
            following.is_interrupted = True
            return bool(self._subscription.waiting)

    def _is_behind(self, deadline: float) -> bool:
        """Ask the leader for a chunk that was not received. If its log does not have the last one that was, that is an error."""
        progress = self._progress
        with closing(self._open(deadline, leader=True)) as connection:
            finder = ChunkFinder(connection, _remaining_s(deadline), check_crc=self._check_crc)
            log_end = finder.end(self.stream)
            if progress.last and not log_end.fingerprint and Key.STREAM_STATS not in connection.commands:
                raise UnreachableError(  # before 3.11 an empty stream looks like one whose leader is new
                    f"{connection.where}: the leader of stream {self.stream!r} gives no rows now",
                    queue=self.stream,
                )
            if progress.last and (log_end.fingerprint or log_end.offset <= progress.last.offset):
                found = finder.chunk_at(self.stream, progress.last.offset)
                progress.check_chunk(progress.last, found, log_end.offset)
            properties = self._filters.properties if self._filters else {}
            chunk = finder.chunk_at(self.stream, progress.next, 0.0, **properties)
            if chunk is not None and chunk.end > progress.next:
                return True
            if self._filters and log_end.offset > progress.next:  # retention may remove what does not match
                progress.log_start = connection.stats(self.stream)["first_chunk_id"]
                progress.skip_to(log_end.offset, log_end.offset)
        return False

    def _receive(self, connection: StreamConnection, deadline: float) -> None:
        """Wait for a chunk, for half of the timeout: another connection is tried in the other half."""
        connection.deadline = deadline
        silent_at = min(deadline, time.monotonic() + self._limits.timeout_s / 2)
        if self._is_unverified and not self._subscription.waiting:
            self._receive_within(connection, min(_VERIFY_AFTER_S, _remaining_s(silent_at)))
            if not self._subscription.waiting and not self._has_end:
                self._verify_range(deadline)
                return
        while not self._subscription.waiting:
            left_s = silent_at - time.monotonic()
            if left_s <= 0:
                with suppress(UnreachableError):  # then the silence itself is reported
                    self._check_log_end(max(deadline, time.monotonic() + MIN_ATTEMPT_S))
                raise BrokerTimeoutError(
                    f"{connection.where}: stream {self.stream!r} delivers nothing from offset {self._progress.next} on, and the reading "
                    f"ends at {self._progress.end}: look at its replicas (rabbitmq-streams stream_status), and whether it was made "
                    "again",
                    queue=self.stream,
                )
            self._receive_within(connection, min(left_s, _QUIET_S if self._has_end else STOP_INTERVAL_S))
            if self._is_stopped:
                return
            if self._has_end and not self._subscription.waiting and self._end_if_nothing_matches(connection):
                return
        if self._filters:
            self._progress.log_start = connection.stats(self.stream)["first_chunk_id"]

    def _end_if_nothing_matches(self, connection: StreamConnection) -> bool:
        """Look for the next matching chunk in the range, on a replica that has all of it, and end the range if there is none."""
        self._has_next = False
        properties = self._filters.properties if self._filters else {}
        connection.subscribe(_NEXT_SUBSCRIPTION_ID, self.stream, self._progress.next, 1, properties)
        log_start = connection.stats(self.stream)["first_chunk_id"]  # the reply arrives after the chunk
        connection.unsubscribe(_NEXT_SUBSCRIPTION_ID)
        self._receive_within(connection, 0.0)
        if self._subscription.waiting or self._has_next:
            return False
        self._progress.log_start = log_start
        self._progress.skip_to(self._progress.end, self._progress.end)
        return True

    def _check_log_end(self, deadline: float) -> None:
        """Check that the leader still has the range, which a majority had at the time of opening."""
        with closing(self._open(deadline, leader=True)) as connection:
            last = ChunkFinder(connection, check_crc=self._check_crc).chunk_at(self.stream, "last")
        if last is not None:  # a new leader delivers nothing until a majority has caught up
            self._progress.check_reached_by(last.end)

    def _receive_within(self, connection: StreamConnection, wait_s: float) -> None:
        """Receive the chunks that arrive within `wait_s` seconds."""
        for event in self._subscription.receive(wait_s):
            if isinstance(event, DeliveredChunk):  # with filters
                chunk = read_chunk(event.chunk, check_crc=self._check_crc)
                if event.subscription_id == _NEXT_SUBSCRIPTION_ID:
                    self._has_next = chunk.offset < self._progress.end
                    continue
                self._progress.check_landmarks(chunk)
                self._has_end = chunk.end >= self._progress.end
                if not self._has_end:
                    connection.give_credit(_END_SUBSCRIPTION_ID, 1)

    def _open(self, deadline: float, *, leader: bool) -> StreamConnection:
        connection = open_at(
            self._settings,
            self.stream,
            leader=leader,
            addresses=self._addresses,
            timeout_s=min(_remaining_s(deadline), ATTEMPT_S if self._following else math.inf),
            max_frame_bytes=self._limits.max_frame_bytes,
            avoid=self._damaged.nodes,
            stay=self._is_unverified,  # with landmarks one connection is enough
        )
        connection.deadline = deadline
        if self._filters and connection.no_filters:
            connection.close()
            raise InputError(connection.no_filters)
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@documented(RangeOptions)
class RangeReader(StreamReader):
    """A `StreamReader` of a range that the caller has found, as Spark's driver does for its tasks: `start` and `end` are offsets.

    The constructor does not connect, one connection is enough, and the range is verified only if no rows arrive.

    Raises:
        InputError: an argument is not valid.
    """

    @takes(RangeOptions)
    def __init__(self, options: RangeOptions) -> None:
        self._begin(options)


def _is_cut(cause: RabbitChxError, began: float, deadline: float) -> bool:
    """Return whether the deadline has cut a short attempt between two requests: the error of the attempt before it tells more."""
    return cause.queue is None and deadline - ATTEMPT_S < began and time.monotonic() >= deadline


def _remaining_s(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())

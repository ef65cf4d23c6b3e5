"""The chunks of a stream that a `StreamReader` reads: those of a range, or all as they arrive.

Method:

1. The reader's constructor finds the offsets of start and end on the stream's leader (`ChunkFinder`), since a replica may lag behind. The end is
   that of the last chunk *of rows*: `rabbit_chx.streams.log_lookup` explains why.
2. A `RangeChunkReader` gets the offsets with `landmarks`: the fingerprints of chunks in the range. Spark's tasks receive both from the
   driver. Its constructor does not connect. The range is verified on the leader only if the log may have been cut since: if no chunk
   arrives, or one that ends before the start.
3. The reader subscribes at a replica with ``chunk_selector=all``, which delivers the broker's tracking chunks too. So the chunks are
   contiguous, and a skipped offset is a lost one (`Progress`).
4. After a lost connection it resubscribes at the last chunk of rows that it received. A different chunk there is an error.
5. With filters the broker omits chunks: `rabbit_chx.streams.options` explains how the reader finds the end then.
6. With ``end="never"`` silence is normal. After half of the timeout the leader is asked (`is_behind`): whether it has a chunk that was
   not delivered, and whether it still has the last one that was. It is also asked before the reader resubscribes. Otherwise a log that
   was rewritten and is shorter now would look like an idle one: the broker moves a start behind the end to the end.

rabbitmq-server v4.3.5 and v3.10, rabbit_stream_reader.erl (Subscribe, Credit, ``chunk_selector``); osiris 1.13.1, osiris_log.erl
(``init_offset_reader0``: a start outside of the log is moved into it, silently).
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import replace
from typing import ClassVar, TypeVar

from rabbit_chx import errors
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.checks import shown
from rabbit_chx.retry import Backoff, Retry
from rabbit_chx.streams.chunks import Chunk, Fingerprint, Piece, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import DeliveredChunk, Key
from rabbit_chx.streams.log_lookup import ChunkFinder, DamagedReads, Progress
from rabbit_chx.streams.nodes import MIN_ATTEMPT_S, node_addresses, open_at, settings_of
from rabbit_chx.streams.offsets import StoredOffset
from rabbit_chx.streams.options import Filters, RangeOptions, ReaderOptions, StreamSubscription

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

#: The longest wait, and the longest attempt to connect, after which the reader looks for a call of `stop`.
STOP_INTERVAL_S = 0.2
ATTEMPT_S = 5.0
#: Seconds in which a chunk that the leader has may still arrive.
_LAG_S = 1.0
_ALL_CHUNKS = {"chunk_selector": "all"}
#: With filters: the subscription to the last chunk of the range.
_END_SUBSCRIPTION_ID = 1
#: With filters: the subscription to the next matching chunk.
_NEXT_SUBSCRIPTION_ID = 2
#: Seconds without a chunk after which a reader with filters looks for the next matching one.
_QUIET_S = 0.05
_RETRY_PAUSE_S = 0.2
#: Seconds without a chunk after which a range with landmarks is verified.
_VERIFY_AFTER_S = 1.0


class ChunkReader(ABC):
    """The chunks of a stream, in their order and each once, over one connection at a time.

    Attributes:
        stored: the position on the broker; None without a name.
        filters: selects rows; None without filters.
        unreturned_chunk: the chunk that was taken last, until the reader returns a row of it.
        is_stopped: ends the waits; another thread may set it.
    """

    #: The longest attempt to connect.
    attempt_s: ClassVar[float] = math.inf
    #: Whether a wait in which nothing arrived begins a new timeout.
    may_be_idle: ClassVar[bool] = False
    #: Whether one connection, to any node that has the stream, is enough.
    stays = False

    def __init__(self, options: ReaderOptions) -> None:
        self.stream = stream = options.stream
        self.limits = options.limits
        self.check_crc = options.check_crc
        self.filters: Filters | None = None
        if options.filters or options.match_unfiltered:
            self.filters = Filters.of(options.filters, options.match_unfiltered)
        self.stored = None if options.name is None else StoredOffset(stream, options.name)
        self.subscription = StreamSubscription(stream)
        self.progress = Progress(stream, count_missing=options.on_missing == "count")
        self.unreturned_chunk: Chunk | None = None
        self.connection: StreamConnection | None = None
        self.is_stopped = False
        self.is_interrupted = False  # whether a connection was lost and the leader was not asked since
        self._options = options
        self._settings = settings_of(options.url, options.credentials)
        self._addresses = options.addresses and node_addresses(options.addresses)
        self._damaged = DamagedReads(stream)

    @abstractmethod
    def wait(self, connection: StreamConnection, deadline: float) -> None:
        """Wait for a chunk. Afterwards `subscription.waiting` has one, or there is none now."""

    def has_more(self) -> bool:
        """Return whether a batch that has rows may get further ones, as one of a range whose end is known."""
        return True

    @abstractmethod
    def offset_after(self, taken: list[Piece], before: int) -> int:
        """Return the offset after the rows of a batch, for a later reader; `before` is that after the batch before."""

    # -- the range

    def open_range(self, options: ReaderOptions) -> Fingerprint | None:
        """Find the range on the leader, and return the fingerprint of the last chunk of rows."""
        deadline = time.monotonic() + self.limits.timeout_s
        return self.retry(deadline, lambda: self._find_range(options, deadline))

    def _find_range(self, options: ReaderOptions, deadline: float) -> Fingerprint | None:
        """Find the range on the leader once, and return the fingerprint of the last chunk of rows."""
        connection = self.connection = self.open(deadline, leader=True)
        finder = ChunkFinder(connection, _remaining_s(deadline), check_crc=self.check_crc)
        start = options.start
        expect = options.expect
        log_start = 0
        if self.stored is not None:
            start, log_start = self.stored.start(finder, start)
        found = finder.find_range(options, start, with_last=self.filters is not None)
        self.disconnect()  # rows are read from a replica
        self._damaged.nodes.clear()
        self.progress.set_range(found.start, max(found.start, found.end), found.log_end.offset)
        if self.stored is not None and log_start:
            self.progress.skip_unstored(self.stored.name, log_start)
        self.progress.landmarks += found.chunks
        if expect is not None:
            self.progress.check_chunk(expect, found.expected, found.log_end.offset)
        return found.log_end.fingerprint

    # -- chunks

    def take_chunk(self, deadline: float) -> float:
        """Take the next chunk of the range, wait for it if necessary, and return the deadline for the following one."""
        progress = self.progress
        found = self.retry(deadline, lambda: self._next_chunk(deadline))
        if found is None:
            return time.monotonic() + self.limits.timeout_s if self.may_be_idle else deadline

        chunk, chunk_pieces = found
        with suppress(errors.RabbitChxError):  # the next wait raises it again
            if self.connection is not None:
                self.subscription.replenish()

        first = progress.next
        has_rows = progress.advance(chunk)
        if progress.next <= first:  # a chunk that was received before does not extend the deadline
            return deadline

        self._damaged.forget_before(progress.next)
        if has_rows:
            self.unreturned_chunk = chunk
            if chunk.offset < first or chunk.end > progress.end:
                chunk_pieces = [
                    piece for piece in chunk_pieces if piece.end > first and piece.offset < progress.end
                ]
            self.subscription.pieces.extend(chunk_pieces)

        return time.monotonic() + self.limits.timeout_s

    def _next_chunk(self, deadline: float) -> tuple[Chunk, list[Piece]] | None:
        """Return the next chunk with its pieces, received before or now; None if the range was verified, or none exists or matches."""
        subscription = self.subscription
        if not subscription.waiting:
            self.wait(self.connection or self.subscribe(deadline), deadline)
            if not subscription.waiting:
                return None
        chunk = read_chunk(subscription.take(), check_crc=self.check_crc)
        if self.verify_cut(chunk, deadline):
            return None
        if chunk.kind != "user" or chunk.end <= self.progress.next:
            return chunk, []
        # Parsing detects damage that the CRC does not.
        return chunk, pieces(chunk, max_sub_entry_bytes=self.limits.max_sub_entry_bytes)

    def verify_cut(self, chunk: Chunk, deadline: float) -> bool:  # noqa: ARG002  # of a known range
        """Return whether the range was verified because of a chunk before it."""
        return False

    def retry(self, deadline: float, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first successful attempt. A failed one closes the connection."""
        causes: list[errors.RabbitChxError] = []  # of the failed attempts

        def with_context() -> _T:
            began = time.monotonic()
            try:
                return attempt()
            except errors.UnreachableError as cause:
                if causes and _is_cut(cause, began, deadline):
                    raise causes[-1] from None
                raise
            except errors.DamagedChunkError as cause:
                self.subscription.waiting.clear()  # they would be behind a gap
                node = self.connection.node if self.connection else None
                raise self._damaged.note(cause, self.progress.next, node) from None
            except errors.InputError as cause:
                raise errors.InputError(f"stream {self.stream!r}: {cause}") from None

        def may_retry(cause: errors.RabbitChxError) -> bool:
            self.disconnect()
            causes.append(cause)
            if self.is_stopped:
                return False
            is_damage = isinstance(
                cause, errors.DamagedChunkError
            )  # another replica may have the chunk undamaged
            may_succeed = self._damaged.may_retry if is_damage else is_transient(cause)
            if may_succeed:
                self.is_interrupted = True
                _log.warning("%s; trying again", cause, extra={"queue": self.stream})
            return may_succeed

        return Retry(deadline - MIN_ATTEMPT_S, Backoff(_RETRY_PAUSE_S, _RETRY_PAUSE_S)).call(
            with_context, may_retry
        )

    # -- connections

    @property
    def resume_at(self) -> int:
        """The offset to subscribe at: the last chunk of rows again, to detect a rewritten log."""
        return self.progress.next if self.progress.last is None else self.progress.last.offset

    def subscribe(self, deadline: float) -> StreamConnection:
        """Connect to a replica, and subscribe to the chunks of rows."""
        connection = self.connection = self.open(deadline, leader=False)
        self.subscription.begin(
            connection, self.resume_at, self.filters.properties if self.filters else _ALL_CHUNKS
        )
        return connection

    def open(self, deadline: float, *, leader: bool) -> StreamConnection:
        """Connect to the leader, or to a replica."""
        connection = open_at(
            self._settings,
            self.stream,
            leader=leader,
            addresses=self._addresses,
            timeout_s=min(_remaining_s(deadline), self.attempt_s),
            max_frame_bytes=self.limits.max_frame_bytes,
            avoid=self._damaged.nodes,
            stay=self.stays,
        )
        connection.deadline = deadline
        if self.filters and connection.no_filters:
            connection.close()
            raise errors.InputError(connection.no_filters)
        return connection

    def disconnect(self) -> None:
        """Close the connection; received chunks stay."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class RangeChunkReader(ChunkReader):
    """The chunks of a range. With landmarks the caller has found it; it is verified only if the log may have been cut since."""

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        # With filters: whether the replica of the connection has the whole range, and whether a further chunk in the range matches.
        self._has_end = self._has_next = False

    def open_range(self, options: ReaderOptions) -> Fingerprint | None:
        """Take a range with landmarks as it is; find another one, and return the fingerprint of its last chunk of rows."""
        if not isinstance(options, RangeOptions):
            return super().open_range(options)
        start = options.start
        end = options.end
        if not isinstance(start, int) or not isinstance(end, int):
            raise errors.InputError(
                f"landmarks are given, start is {shown(start)} and end is {shown(end)}: pass two offsets"
            )
        if not isinstance(options.landmarks, Collection):
            raise errors.InputError(
                f"landmarks is {shown(options.landmarks)}: pass the fingerprints of chunks"
            )
        self.progress.set_range(start, end, end)
        self.progress.landmarks = list(options.landmarks)
        self.stays = True  # until the range is verified
        return None

    def verify_cut(self, chunk: Chunk, deadline: float) -> bool:
        """Verify a range with landmarks if a chunk shows that the log was cut, and return whether it was verified.

        The broker moves a start behind the log to its end: the first chunk then is one before the start.
        """
        if not self.stays or chunk.end > self.resume_at:
            return False
        self._verify_range(deadline)
        return True

    def _verify_range(self, deadline: float) -> None:
        """Verify on the leader the rest of the range that the caller passed; the next chunk needs a new subscription."""
        self.disconnect()
        self.subscription.waiting.clear()
        progress = self.progress
        rest = replace(self._options, start=progress.next, end=progress.end, expect=progress.last)
        self._find_range(rest, deadline)
        self.stays = False

    def offset_after(self, taken: list[Piece], before: int) -> int:  # noqa: ARG002
        """Return the offset of the next row, or the end."""
        pieces_left = self.subscription.pieces
        progress = self.progress
        return min(pieces_left[0].offset if pieces_left else progress.next, progress.end)

    def subscribe(self, deadline: float) -> StreamConnection:
        """Connect to a replica and subscribe; with filters to the end of the range, too."""
        self._has_end = False
        connection = super().subscribe(deadline)
        if self.filters:
            connection.subscribe(_END_SUBSCRIPTION_ID, self.stream, self.progress.end - 1, 1, _ALL_CHUNKS)
        return connection

    def wait(self, connection: StreamConnection, deadline: float) -> None:
        """Wait for a chunk, for half of the timeout: another connection is tried in the other half."""
        connection.deadline = deadline
        silent_at = min(deadline, time.monotonic() + self.limits.timeout_s / 2)
        if self.stays and not self.subscription.waiting:
            self._receive_within(connection, min(_VERIFY_AFTER_S, _remaining_s(silent_at)))
            if not self.subscription.waiting and not self._has_end:
                self._verify_range(deadline)
                return

        while not self.subscription.waiting:
            left_s = silent_at - time.monotonic()
            if left_s <= 0:
                with suppress(errors.UnreachableError):  # then the silence itself is reported
                    self._check_log_end(max(deadline, time.monotonic() + MIN_ATTEMPT_S))
                raise errors.BrokerTimeoutError(
                    f"{connection.where}: stream {self.stream!r} delivers nothing from offset {self.progress.next} on, and the reading "
                    f"ends at {self.progress.end}: look at its replicas (rabbitmq-streams stream_status), and whether it was made "
                    "again",
                    queue=self.stream,
                )

            self._receive_within(connection, min(left_s, _QUIET_S if self._has_end else STOP_INTERVAL_S))
            if self.is_stopped:
                return
            if self._has_end and not self.subscription.waiting and self._end_if_nothing_matches(connection):
                return

        if self.filters:
            self.progress.log_start = connection.stats(self.stream)["first_chunk_id"]

    def _end_if_nothing_matches(self, connection: StreamConnection) -> bool:
        """Look for the next matching chunk in the range, on a replica that has all of it, and end the range if there is none."""
        self._has_next = False
        properties = self.filters.properties if self.filters else {}
        connection.subscribe(_NEXT_SUBSCRIPTION_ID, self.stream, self.progress.next, 1, properties)
        log_start = connection.stats(self.stream)["first_chunk_id"]  # the reply arrives after the chunk
        connection.unsubscribe(_NEXT_SUBSCRIPTION_ID)
        self._receive_within(connection, 0.0)
        if self.subscription.waiting or self._has_next:
            return False
        self.progress.log_start = log_start
        self.progress.skip_to(self.progress.end, self.progress.end)
        return True

    def _check_log_end(self, deadline: float) -> None:
        """Check that the leader still has the range, which a majority had at the time of opening."""
        with closing(self.open(deadline, leader=True)) as connection:
            last = ChunkFinder(connection, check_crc=self.check_crc).chunk_at(self.stream, "last")
        if last is not None:  # a new leader delivers nothing until a majority has caught up
            self.progress.check_reached_by(last.end)

    def _receive_within(self, connection: StreamConnection, wait_s: float) -> None:
        """Receive the chunks that arrive within `wait_s` seconds."""
        for event in self.subscription.receive(wait_s):
            if isinstance(event, DeliveredChunk):  # with filters
                chunk = read_chunk(event.chunk, check_crc=self.check_crc)
                if event.subscription_id == _NEXT_SUBSCRIPTION_ID:
                    self._has_next = chunk.offset < self.progress.end
                    continue
                self.progress.check_landmarks(chunk)
                self._has_end = chunk.end >= self.progress.end
                if not self._has_end:
                    connection.give_credit(_END_SUBSCRIPTION_ID, 1)


class FollowingChunkReader(ChunkReader):
    """All chunks from a start on, as they arrive. Silence is normal while the leader has no further chunk."""

    attempt_s = ATTEMPT_S
    may_be_idle = True

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._polled_at = -math.inf  # when the last receiving ended
        self._arrived_at = -math.inf  # when the oldest row of the batch has arrived, at the earliest

    def open_range(self, options: ReaderOptions) -> Fingerprint | None:
        """Find the start on the leader, and remember the chunk before it."""
        last = super().open_range(options)
        if last and last.offset < self.progress.next:
            self.progress.last = last  # so that a rewritten log is detected before the first row
        return last

    def subscribe(self, deadline: float) -> StreamConnection:
        """Connect to a replica and subscribe. After an interruption the leader is asked first."""
        if self.is_interrupted:
            self.is_behind(deadline)
            self.is_interrupted = False
        return super().subscribe(deadline)

    def offset_after(self, taken: list[Piece], before: int) -> int:
        """Return the end of the last row, not that of chunks of the broker: a stream without further rows ends before them."""
        return taken[-1].end if taken else before

    def wait(self, connection: StreamConnection, deadline: float) -> None:
        """Wait for the first chunk of a batch. There is none after `stop`, or if the leader has none either.

        Half of the timeout passes before the leader is asked: another connection is tried in the other half.
        """
        silent_at = min(deadline, time.monotonic() + self.limits.timeout_s / 2)
        self._arrived_at = self._polled_at
        found = self._poll(connection, 0.0)
        while not found and not self.is_stopped:
            left_s = silent_at - time.monotonic()
            if left_s <= 0:
                is_behind = self.is_behind(max(deadline, time.monotonic() + ATTEMPT_S))
                if is_behind and not self.receive(connection, _LAG_S):
                    raise errors.BrokerTimeoutError(
                        f"{connection.where}: stream {self.stream!r} delivers nothing, and its leader has further rows: look at its "
                        "replicas (rabbitmq-streams stream_status)",
                        queue=self.stream,
                    )
                return
            found = self._poll(connection, left_s)
            self._arrived_at = self._polled_at

    def has_more(self) -> bool:
        """Wait for a chunk until the batch must be returned. A lost connection is left to the next batch."""
        try:
            return bool(self.subscription.waiting) or (
                self.connection is not None and self._wait_for_more(self.connection)
            )
        except errors.RabbitChxError as cause:
            _log.debug("%s; the batch is returned first", cause)
            self.disconnect()
            self.is_interrupted = True
            return bool(self.subscription.waiting)

    def _wait_for_more(self, connection: StreamConnection) -> bool:
        while not self.is_stopped:
            left_s = self._arrived_at + self.limits.max_wait_s - time.monotonic()
            if self._poll(connection, max(left_s, 0.0)):
                return True
            if left_s <= 0:
                break
        return False

    def _poll(self, connection: StreamConnection, wait_s: float) -> bool:
        found = self.receive(connection, min(wait_s, STOP_INTERVAL_S))
        self._polled_at = time.monotonic()
        return found

    def receive(self, connection: StreamConnection, wait_s: float) -> bool:
        """Receive within `wait_s` seconds, and return whether there are chunks."""
        connection.deadline = time.monotonic() + self.limits.timeout_s
        if self.stored is not None:
            self.stored.write_if_due(connection)
        for _ in self.subscription.receive(wait_s):
            pass  # it has no other subscriptions
        if self.filters and self.subscription.waiting:
            self.progress.log_start = connection.stats(self.stream)["first_chunk_id"]
        return bool(self.subscription.waiting)

    def is_behind(self, deadline: float) -> bool:
        """Ask the leader for a chunk that was not received. If its log does not have the last one that was, that is an error."""
        progress = self.progress
        with closing(self.open(deadline, leader=True)) as connection:
            finder = ChunkFinder(connection, _remaining_s(deadline), check_crc=self.check_crc)
            log_end = finder.end(self.stream)
            if progress.last and not log_end.fingerprint and Key.STREAM_STATS not in connection.commands:
                raise errors.UnreachableError(  # before 3.11 an empty stream looks like one whose leader is new
                    f"{connection.where}: the leader of stream {self.stream!r} gives no rows now",
                    queue=self.stream,
                )

            if progress.last and (log_end.fingerprint or log_end.offset <= progress.last.offset):
                found = finder.chunk_at(self.stream, progress.last.offset)
                progress.check_chunk(progress.last, found, log_end.offset)

            properties = self.filters.properties if self.filters else {}
            chunk = finder.chunk_at(self.stream, progress.next, 0.0, **properties)
            if chunk is not None and chunk.end > progress.next:
                return True

            if self.filters and log_end.offset > progress.next:  # retention may remove what does not match
                progress.log_start = connection.stats(self.stream)["first_chunk_id"]
                progress.skip_to(log_end.offset, log_end.offset)

        return False


def _is_cut(cause: errors.RabbitChxError, began: float, deadline: float) -> bool:
    """Return whether the deadline has cut a short attempt between two requests: the error of the attempt before it tells more."""
    return cause.queue is None and deadline - ATTEMPT_S < began and time.monotonic() >= deadline


def _remaining_s(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())

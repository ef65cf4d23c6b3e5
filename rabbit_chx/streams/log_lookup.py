"""Find chunks of streams: the first and the last chunk of rows, and that of an offset or a time.

Each lookup is a subscription with credit for one chunk. The broker replies in order, so a chunk that has not arrived before the reply
to a later request is not in the stream. The end of a stream is that of the last chunk *of rows*. The broker keeps publisher ids and
consumer offsets in chunks of their own, which take offsets too: an end that counted them would move without a new row.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.retry import Retry
from rabbit_chx.streams import frames
from rabbit_chx.streams.chunks import Chunk, Fingerprint, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import MIN_ATTEMPT_S, open_any, open_at

if TYPE_CHECKING:
    from rabbit_chx.streams.options import ReaderOptions

# -- The position of a reader in a range of offsets, and what may be missing there. No I/O

#: The end of a range that has none.
NEVER = (1 << 63) - 1
#: The number of deliveries of a damaged chunk that is an error.
_MAX_DAMAGED_READS = 3


class Progress:
    """The position in a range.

    Attributes:
        next: the first offset that was not received yet.
        end: the first offset after the range.
        last: the last chunk of rows before `next`: received, or that of the reader that ended at the start.
        landmarks: further chunks that the stream had when the range was found.
        log_start: with filters: the first offset of the log now, so that omitted offsets are not missing; else None.
        missing: the number of missing offsets, if they are counted.
    """

    def __init__(self, stream: str, *, count_missing: bool) -> None:
        self.next = self.end = 0
        self.last: Fingerprint | None = None
        self.landmarks: list[Fingerprint] = []
        self.log_start: int | None = None
        self.missing = 0
        self._stream = stream
        self._count_missing = count_missing

    def set_range(self, start: int, end: int, log_end: int) -> None:
        """Set the range. It ends with the log at the latest: later offsets are missing."""
        if start > log_end and end in (start, NEVER):
            raise errors.MissingRowsError(
                f"stream {self._stream!r} ends at offset {log_end}, before the start, {start}: it was deleted and created again, or its "
                "log was cut; start at an offset that it has",
                queue=self._stream,
            )
        self.next = start
        self.end = end
        if log_end < end < NEVER:
            self.end = max(start, log_end)
            self._skip(
                self.end,
                end,
                f"does not have the offsets {self.end} to {end - 1}, it ends at {log_end}: end there",
            )

    def skip_unstored(self, name: str, log_start: int) -> None:
        """Count as missing what is before the start: a position that was stored under a name may have been removed with its row."""
        self._skip(
            0,
            self.next,
            f"begins at offset {log_start}, and has no position under the name {name!r}: retention may have removed it and the rows after "
            "it. If the name is new, start at an offset, or at a time after the first row",
        )

    def advance(self, chunk: Chunk) -> bool:
        """Advance past a received chunk, and return whether it has new rows of the range."""
        self.check_landmarks(chunk)
        if chunk.end <= self.next:  # received before, or from a replica that lags behind
            return False
        if chunk.offset > self.next:
            self.skip_to(min(chunk.offset, self.end), chunk.offset)
            if self.next >= self.end:
                return False
        self.next = chunk.end
        if chunk.kind == "user":
            self.last = chunk.fingerprint
        return chunk.kind == "user"

    def skip_to(self, offset: int, next_offset: int) -> None:
        """Advance past offsets that were not delivered: the log does not have them and continues at the next one, or filters omit them."""
        if self.log_start is not None:
            next_offset = self.log_start
        if next_offset > self.next:
            missing = min(next_offset, offset)
            self._skip(
                self.next,
                missing,
                f"does not have the offsets {self.next} to {missing - 1} any more, it continues at {next_offset}: retention has removed "
                "them, or its log was cut; start after them",
            )
        self.next = offset

    def check_landmarks(self, chunk: Chunk) -> None:
        """Check that a received chunk is the known one of its offset."""
        for known in filter(None, (self.last, *self.landmarks)):
            if chunk.offset <= known.offset < chunk.end:
                self._check_same(known, chunk)

    def check_chunk(self, expected: Fingerprint, found: Chunk | None, log_end: int) -> None:
        """Check that a chunk is still in the log, unless retention has removed it; `found` is the first chunk at its offset or after it."""
        if found is None or log_end <= expected.offset:
            raise self._rewritten_error(expected, f"it ends at {log_end}")
        if found.offset <= expected.offset:
            self._check_same(expected, found)

    def check_reached_by(self, log_end: int) -> None:
        """Check that the log still has the range."""
        if log_end < self.end:
            raise self._rewritten_error(self.landmarks[-1], f"it ends at {log_end}")

    def _check_same(self, expected: Fingerprint, chunk: Chunk) -> None:
        found = chunk.fingerprint
        if found != expected:
            raise self._rewritten_error(expected, f"{found} is there")

    def _rewritten_error(self, expected: Fingerprint, found: str) -> errors.MissingRowsError:
        return errors.MissingRowsError(
            f"the log of stream {self._stream!r} has been rewritten: where {expected} was, {found}. The stream was deleted and created "
            "again, or its log was cut, and its offsets now mean other rows: read it from the first one",
            queue=self._stream,
        )

    def _skip(self, begin: int, end: int, why: str) -> None:
        if not self._count_missing:
            raise errors.MissingRowsError(
                f"stream {self._stream!r} {why}, or pass on_missing='count'",
                queue=self._stream,
                offsets=range(begin, end),
            )
        self.missing += end - begin


class DamagedReads:
    """The deliveries of a damaged chunk. Another replica may have it undamaged.

    Attributes:
        nodes: the nodes that delivered it.
    """

    def __init__(self, stream: str) -> None:
        self.nodes: list[frames.Node | None] = []
        self._stream = stream
        self._offset = 0

    @property
    def may_retry(self) -> bool:
        """Whether the chunk may be read again."""
        return len(self.nodes) < _MAX_DAMAGED_READS

    def note(
        self, cause: errors.DamagedChunkError, offset: int, node: frames.Node | None
    ) -> errors.DamagedChunkError:
        """Note which node delivered the damaged chunk at an offset, and return an error with all such nodes."""
        self._offset = offset
        self.nodes.append(node)
        nodes = ", ".join(str(node or "a node without an address") for node in self.nodes)
        return errors.DamagedChunkError(
            f"stream {self._stream!r}: {cause} (read {len(self.nodes)} times: {nodes})"
        )

    def forget_before(self, offset: int) -> None:
        """Forget the chunk once everything before an offset after it was read."""
        if offset > self._offset:
            self.nodes.clear()


_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_EMPTY_POLL_S = 0.2
#: After this time without a delivery, a stream of a broker without statistics (before 3.11) counts as empty.
_EMPTY_TIMEOUT_S = 3.0
_UNLIMITED = 1 << 32  # bytes
_RETRY_PAUSE_S = 0.5
#: The time for which an end is cached while the statistics are unchanged: a deleted and recreated stream may have the same.
_CACHE_S = 1.0


class LogEnd(NamedTuple):
    """The end of a stream.

    Attributes:
        offset: the offset after the last row; without rows that of the first tracking chunk, or 0.
        fingerprint: of the last chunk of rows; None in a stream without rows.
    """

    offset: int
    fingerprint: Fingerprint | None


class LogRange(NamedTuple):
    """A range of a log, as its leader has it.

    Attributes:
        start: the first offset to read.
        end: the first offset that is not read.
        log_end: the end of the log.
        chunks: the chunks at the start, at the end if wanted, and at the end of the log, as far as they exist.
        expected: the first chunk at the offset of the expected one or after it.
    """

    start: int
    end: int
    log_end: LogEnd
    chunks: list[Fingerprint]
    expected: Chunk | None


class ChunkFinder:
    """Finds chunks of the streams whose leader is on one node.

    Args:
        connection: an open connection to the node, without other subscriptions.
        timeout_s: the time in seconds for a chunk that exists to arrive.
    """

    def __init__(
        self, connection: StreamConnection, timeout_s: float = 60.0, *, check_crc: bool = True
    ) -> None:
        self.connection = connection
        self._timeout_s = timeout_s
        self._check_crc = check_crc
        # Ids are reused as late as possible: a late chunk must not be taken for that of a newer subscription.
        self._subscriptions = cycle(range(frames.MAX_IDS))

    def end(self, stream: str) -> LogEnd:
        """Return the end of a stream. Without rows it is the start of the log: rows that retention has removed were before it."""
        last = self.chunk_at(stream, "last")
        if last is None and self.first(stream):  # its rows are not committed again yet: see `first`
            last = self.chunk_at(stream, "last", self._timeout_s)
        if last is not None:
            return LogEnd(last.end, last.fingerprint)
        lowest = self.chunk_at(stream, "first", chunk_selector="all")
        # If it does not give chunks that it has, that is an error, and not an empty stream.
        has_statistics = frames.Key.STREAM_STATS in self.connection.commands
        if lowest is None and has_statistics and self.connection.stats(stream)["committed_chunk_id"] >= 0:
            lowest = self.chunk_at(stream, "first", self._timeout_s, chunk_selector="all")
        return LogEnd(lowest.offset if lowest else 0, None)

    def locate(self, stream: str, spec: frames.OffsetSpec, end: LogEnd) -> tuple[int, Fingerprint | None]:
        """Return the offset of an offset specification, and the fingerprint of the chunk of rows there, if it exists.

        An offset is returned unchanged, even after the end; a time after the last chunk is the end.
        """
        if spec == "next":
            return end.offset, end.fingerprint
        if spec == "last":
            return end.fingerprint.offset if end.fingerprint else end.offset, end.fingerprint
        if isinstance(spec, int):
            chunk = self.chunk_at(stream, min(spec, end.offset))
            return spec, chunk and chunk.fingerprint
        chunk = self._chunk_of_time(stream, spec) if isinstance(spec, datetime) else self.first(stream)
        if chunk is None or chunk.offset >= end.offset:
            return end.offset, None
        return chunk.offset, chunk.fingerprint

    def find_range(self, options: ReaderOptions, start: frames.OffsetSpec, *, with_last: bool) -> LogRange:
        """Return the range of a reader from `start` on; `with_last` for the chunk at the end of the range."""
        stream = options.stream
        end = options.end
        expect = options.expect
        log_end = self.end(stream)
        start_offset, start_chunk = self.locate(stream, start, log_end)
        if end is None:
            end = log_end.offset
        elif end == "never":
            end = NEVER
        elif isinstance(end, datetime):
            end = self.locate(stream, end, log_end)[0]
        last = self.chunk_at(stream, end - 1) if with_last and start_offset < end < log_end.offset else None
        chunks = [start_chunk, last and last.fingerprint, log_end.fingerprint]
        expected = self.chunk_at(stream, expect.offset) if expect else None
        return LogRange(start_offset, end, log_end, [chunk for chunk in chunks if chunk], expected)

    def _chunk_of_time(self, stream: str, moment: datetime) -> Chunk | None:
        """Return the first chunk of this time or later. Chunks have milliseconds, so the time is rounded up to them."""
        with suppress(OverflowError):  # datetime.max
            moment += timedelta(microseconds=-moment.microsecond % 1000)
        chunk = self.chunk_at(stream, moment)
        # If all chunks are older, the broker moves the start into the log: the chunk is too old.
        return chunk if chunk is not None and chunk.timestamp_ms >= frames.milliseconds(moment) else None

    def first(self, stream: str) -> Chunk | None:
        """Return the first chunk of rows; None in a stream without rows.

        A new leader delivers nothing until a majority has confirmed its log (osiris v1.13.1, osiris_writer.erl, ``handle_continue/2``). The
        statistics distinguish that from an empty stream: their committed chunk is before the first one. Before 3.11 there are no
        statistics, and a stream that delivers nothing for 3 s counts as empty.
        """
        connection = self.connection
        has_statistics = frames.Key.STREAM_STATS in connection.commands
        timeout_s = self._timeout_s if has_statistics else min(self._timeout_s, _EMPTY_TIMEOUT_S)
        deadline = time.monotonic() + timeout_s

        while True:
            statistics = connection.stats(stream) if has_statistics else {}
            if has_statistics and not {"committed_chunk_id", "first_chunk_id"} <= statistics.keys():
                raise errors.ConnectionLostError(
                    f"{connection.where}: the figures of stream {stream!r} do not have its chunks, but {', '.join(statistics)}",
                    queue=stream,
                )
            first = self.chunk_at(stream, "first")
            is_committed = has_statistics and statistics["committed_chunk_id"] >= statistics["first_chunk_id"]
            if first or is_committed:  # a stream without chunks has -1 in both
                return first
            if time.monotonic() + _EMPTY_POLL_S >= deadline:
                break
            time.sleep(_EMPTY_POLL_S)

        if has_statistics:
            raise self._timeout(stream, self._timeout_s)
        return None

    def chunk_at(
        self, stream: str, start: frames.OffsetSpec, wait_s: float = 0.0, **properties: str | bytes
    ) -> Chunk | None:
        """Return the first chunk that a subscription with these `properties` delivers; if `wait_s` is 0, None if none is stored now.

        Raises:
            BrokerTimeoutError: no chunk arrives within `wait_s`.
            ConnectionLostError: the stream is deleted or has another leader, so that nothing can arrive.
        """
        connection = self.connection
        subscription = next(self._subscriptions)
        connection.subscribe(subscription, stream, start, 1, properties)
        connection.metadata([stream])  # any request whose reply comes after the chunk
        deadline = time.monotonic() + wait_s

        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            for event in connection.events(remaining_s):
                if isinstance(event, frames.DeliveredChunk) and event.subscription_id == subscription:
                    connection.unsubscribe(subscription)
                    chunk = read_chunk(event.chunk, check_crc=self._check_crc)
                    if chunk.kind == "user":  # raises if the header, which the CRC does not cover, is damaged
                        pieces(chunk, max_sub_entry_bytes=_UNLIMITED)
                    return chunk
                if isinstance(event, frames.StreamChanged) and event.stream == stream:
                    raise errors.ConnectionLostError(
                        f"{connection.where}: stream {stream!r} is deleted or has another leader",
                        queue=stream,
                    )

            if not wait_s:
                connection.unsubscribe(subscription)
                return None
            if not remaining_s:
                raise self._timeout(stream, wait_s)

    def _timeout(self, stream: str, wait_s: float) -> errors.BrokerTimeoutError:
        return errors.BrokerTimeoutError(
            f"{self.connection.where}: stream {stream!r} has rows, and does not send them within {wait_s:g} s: is a majority of its "
            "replicas up?",
            queue=stream,
        )


class LogEnds:
    """Lookups in the streams of a cluster, over one connection to each node that has leaders. Lost connections are replaced.

    It is not thread-safe. `timeout_s` bounds each call in seconds, including reconnects.
    """

    def __init__(
        self, settings: Iterable[ConnectionSettings], addresses: Mapping[str, str], timeout_s: float
    ) -> None:
        self._settings = deque(settings)
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._finders: dict[frames.Node | None, ChunkFinder] = {}
        self._leaders: dict[str, frames.Node] = {}  # of each stream
        # Of each stream: its statistics, its end, and when it was found, by time.monotonic().
        self._cached_ends: dict[str, tuple[dict[str, int], LogEnd, float]] = {}
        self._deadline = math.inf  # of the present call

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        finders = self._finders
        self._finders = {}
        self._leaders.clear()
        self._cached_ends.clear()
        for finder in finders.values():
            finder.connection.close()

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream."""
        return self._retry(lambda: self._any_connection().partitions(super_stream))

    def streams_of(self, exchange: str) -> tuple[str, ...]:
        """Return the streams that are bound to an exchange."""

        def find() -> tuple[str, ...]:
            connection = self._any_connection()
            queues = connection.queues_of(exchange)
            metadata = connection.metadata(queues, missing_ok=True)
            return tuple(
                queue for queue in queues if metadata[queue].code != frames.Code.STREAM_DOES_NOT_EXIST
            )

        return self._retry(find)

    def ends(self, streams: Iterable[str]) -> dict[str, LogEnd]:
        """Return the ends of the existing streams among these; an InputError for a super stream. The leaders are looked up in each call."""
        return self._retry(partial(self._find_ends, list(streams)))

    def check_filters(self) -> None:
        """Raise an InputError if the broker does not filter streams."""
        if refused := self._retry(lambda: self._any_connection().no_filters):
            raise errors.InputError(refused)

    def chunk_at(self, stream: str, offset: int) -> Chunk | None:
        """Return the chunk of rows with this offset, or the first one after it."""
        return self._retry(lambda: self._leader_finder(stream).chunk_at(stream, offset))

    def offset_of(self, stream: str, spec: frames.OffsetSpec, end: LogEnd) -> int:
        """Return the offset of a spec, as `ChunkFinder.locate` does."""
        return self._retry(lambda: self._leader_finder(stream).locate(stream, spec, end)[0])

    def _find_ends(self, streams: list[str]) -> dict[str, LogEnd]:
        if not streams:
            return {}
        connection = self._any_connection()
        ends = {}
        metadata_of = connection.metadata(streams, missing_ok=True)
        for stream in streams:
            metadata = metadata_of[stream]
            if metadata.code == frames.Code.STREAM_DOES_NOT_EXIST:
                connection.check_no_super_stream(stream)
                self._cached_ends.pop(stream, None)
                continue
            if metadata.code != frames.Code.OK:
                raise connection.refusal(f"find the nodes of stream {stream!r}", metadata.code, stream)
            self._leaders[stream] = self._leader_of(stream, metadata)
            ends[stream] = self._find_end(stream)
        return ends

    def _find_end(self, stream: str) -> LogEnd:
        """Return the end of a stream, from the cache if its statistics have not changed."""
        finder = self._leader_finder(stream)
        if frames.Key.STREAM_STATS not in finder.connection.commands:  # before 3.11
            return finder.end(stream)
        statistics = finder.connection.stats(stream)
        if stream in self._cached_ends:
            statistics_before, end, found_at = self._cached_ends[stream]
            if statistics_before == statistics and time.monotonic() - found_at < _CACHE_S:
                return end
        end = finder.end(stream)
        self._cached_ends[stream] = statistics, end, time.monotonic()
        return end

    def _any_connection(self) -> StreamConnection:
        if not self._finders:
            connection = open_any(self._settings)
            self._finders[connection.node] = ChunkFinder(connection, self._timeout_s)
        return next(iter(self._finders.values())).connection

    def _leader_of(self, stream: str, metadata: frames.StreamMetadata) -> frames.Node:
        if metadata.leader is None:
            raise errors.UnreachableError(
                f"{self._any_connection().where}: stream {stream!r} has no leader now: wait until one is elected",
                queue=stream,
            )
        return metadata.leader

    def _leader_finder(self, stream: str) -> ChunkFinder:
        connection = self._any_connection()
        if stream not in self._leaders:  # not looked up since the connections were closed
            self._leaders[stream] = self._leader_of(stream, connection.metadata([stream])[stream])
        node = self._leaders[stream]
        if node not in self._finders:
            # A node behind a load balancer is found by connecting again, and may not be the leader any more.
            remaining_s = max(MIN_ATTEMPT_S, self._deadline - time.monotonic())
            connection = open_at(
                self._settings, stream, leader=True, addresses=self._addresses, timeout_s=remaining_s
            )
            node = self._leaders[stream] = connection.node or node
            if node in self._finders:
                connection.close()
            else:
                self._finders[node] = ChunkFinder(connection, self._timeout_s)
        return self._finders[node]

    def _retry(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first successful attempt. A failed one closes all connections."""

        def may_retry(cause: errors.RabbitChxError) -> bool:
            self.close()
            may_succeed = is_transient(cause)
            if may_succeed:
                _log.warning("%s; trying again", cause)
            return may_succeed

        self._deadline = time.monotonic() + self._timeout_s
        return Retry.within(self._timeout_s, _RETRY_PAUSE_S).call(attempt, may_retry)

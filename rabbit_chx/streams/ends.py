"""The ends of streams: the offset and the fingerprint of the first and the last chunk of rows, and the offset of a time.

Each lookup is a subscription for one chunk. The broker replies in order, so a chunk that has not arrived before the reply to a later
request is not in the stream. An end is that of the last chunk *of rows*: the broker keeps publisher ids and consumer offsets in
chunks of their own, which take offsets too, so an end that counted them would move in a stream that nobody writes to.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import cycle
from typing import NamedTuple, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError, UnreachableError
from rabbit_chx.retry import Retry
from rabbit_chx.streams.chunks import Chunk, Fingerprint, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import (
    MOST_IDS,
    Code,
    Delivery,
    Key,
    Node,
    OffsetSpec,
    StreamChanged,
    StreamPlaces,
    milliseconds,
    refusal,
)
from rabbit_chx.streams.nodes import at_node, open_any

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_PAUSE_S = 0.2
#: How long a broker without statistics is asked whether a stream is really empty.
_UNSURE_S = 3.0
_ANY_SIZE = 1 << 32
_RETRY_PAUSE_S = 0.5
#: How long an end is valid while the statistics of the stream stay the same. A stream that was deleted and created may have the same.
_CACHED_S = 1.0


class LogEnd(NamedTuple):
    """The end of a stream.

    Attributes:
        offset: the offset behind the last row.
        fingerprint: of the last chunk of rows; None in a stream without rows.
    """

    offset: int
    fingerprint: Fingerprint | None


class ChunkFinder:
    """Finds chunks and ends of the streams that a node leads.

    Args:
        connection: an open connection, on which nobody else subscribes meanwhile.
        timeout_s: how long a chunk that must be there may take to arrive, in seconds.
        check_crc: whether the CRC of each chunk is checked.
    """

    def __init__(
        self, connection: StreamConnection, timeout_s: float = 60.0, *, check_crc: bool = True
    ) -> None:
        self.connection = connection
        self._timeout_s = timeout_s
        self._check_crc = check_crc
        # An id is reused after all others, so a late chunk is not taken for that of another subscription.
        self._subscriptions = cycle(range(MOST_IDS))

    def end(self, stream: str) -> LogEnd:
        """Return the end of a stream. Without rows it is where the log begins: rows that were removed are before that."""
        last = self.chunk_at(stream, "last")
        if last is None and self.first(stream):
            # A majority does not have it yet.
            last = self.chunk_at(stream, "last", self._timeout_s)
        if last is not None:
            return LogEnd(last.end, last.fingerprint)
        lowest = self.chunk_at(stream, "first", chunk_selector="all")
        return LogEnd(lowest.offset if lowest else 0, None)

    def locate(self, stream: str, place: OffsetSpec, end: LogEnd) -> tuple[int, Fingerprint | None]:
        """Return the offset of a place, and the fingerprint of the chunk of rows there, if it is known.

        Args:
            stream: the stream.
            place: an offset, which is returned as it is; another place is at the end at most. A datetime is the first chunk of that
                time or later.
            end: the end of the stream.
        """
        if place == "next":
            return end
        if place == "last":
            return end.fingerprint.offset if end.fingerprint else end.offset, end.fingerprint
        if isinstance(place, int):
            chunk = self.chunk_at(stream, min(place, end.offset))
            return place, chunk and chunk.fingerprint
        chunk = self._chunk_of_time(stream, place) if isinstance(place, datetime) else self.first(stream)
        if chunk is None or chunk.offset >= end.offset:
            return end.offset, None
        return chunk.offset, chunk.fingerprint

    def _chunk_of_time(self, stream: str, moment: datetime) -> Chunk | None:
        with suppress(OverflowError):  # datetime.max
            moment += timedelta(microseconds=-moment.microsecond % 1000)
        chunk = self.chunk_at(stream, moment)
        # If all chunks are older, the broker moves the start to the end of the log.
        return chunk if chunk is not None and chunk.timestamp_ms >= milliseconds(moment) else None

    def first(self, stream: str) -> Chunk | None:
        """Return the first chunk of rows; None in a stream without rows.

        A new leader does not know yet what a majority has, and delivers nothing (osiris v1.13.1, osiris_writer.erl,
        ``handle_continue/2``). The statistics tell that from an empty stream. Before 3.11 there are none, and time has to tell.

        Raises:
            BrokerTimeoutError: there are rows, and none arrives in time.
        """
        connection = self.connection
        has_statistics = Key.STREAM_STATS in connection.commands
        until = time.monotonic() + (self._timeout_s if has_statistics else min(self._timeout_s, _UNSURE_S))
        while True:
            statistics = connection.stats(stream) if has_statistics else {}
            if has_statistics and not {"committed_chunk_id", "first_chunk_id"} <= statistics.keys():
                raise ConnectionLostError(
                    f"{connection.where}: the figures of stream {stream!r} do not have its chunks, but {', '.join(statistics)}",
                    queue=stream,
                )
            first = self.chunk_at(stream, "first")
            if first or (has_statistics and statistics["committed_chunk_id"] >= statistics["first_chunk_id"]):
                return first
            if time.monotonic() + _PAUSE_S >= until:
                break
            time.sleep(_PAUSE_S)
        if has_statistics:
            raise self._timeout(stream, self._timeout_s)
        return None

    def chunk_at(
        self, stream: str, start: OffsetSpec, wait_s: float = 0.0, **properties: str
    ) -> Chunk | None:
        """Return the first chunk that a subscription delivers.

        Args:
            stream: the stream.
            start: where the subscription starts.
            wait_s: how long the chunk may take in seconds; 0 for None if it is not there now.
            properties: of the subscription.

        Raises:
            BrokerTimeoutError: no chunk arrives within `wait_s`.
            ConnectionLostError: the stream is deleted or has another leader, so that nothing can arrive.
        """
        connection, subscription = self.connection, next(self._subscriptions)
        connection.subscribe(subscription, stream, start, 1, properties)
        connection.metadata([stream])  # its reply comes behind a chunk that is there
        until = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, until - time.monotonic())
            for event in connection.events(left_s):
                if isinstance(event, Delivery) and event.subscription_id == subscription:
                    connection.unsubscribe(subscription)
                    chunk = read_chunk(event.chunk, check_crc=self._check_crc)
                    if chunk.kind == "user":  # the CRC does not cover the counts in the header
                        pieces(chunk, max_sub_entry_bytes=_ANY_SIZE)
                    return chunk
                if isinstance(event, StreamChanged) and event.stream == stream:
                    raise ConnectionLostError(
                        f"{connection.where}: stream {stream!r} is deleted or has another leader",
                        queue=stream,
                    )
            if not wait_s:
                connection.unsubscribe(subscription)
                return None
            if not left_s:
                raise self._timeout(stream, wait_s)

    def _timeout(self, stream: str, wait_s: float) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self.connection.where}: stream {stream!r} has rows, and does not give them within {wait_s:g} s: is a majority of its "
            "replicas up?",
            queue=stream,
        )


class _CachedEnd(NamedTuple):
    statistics: dict[str, int]
    end: LogEnd
    at: float


class LogEnds:
    """The ends of the streams of a cluster, over one connection to each leader. The connections are kept, and replaced when lost.

    One thread uses it.

    Args:
        settings: nodes of the cluster, tried in turn.
        addresses: as for `open_at`.
        timeout_s: how long a call may take in seconds, including reconnects.
    """

    def __init__(
        self, settings: Iterable[ConnectionSettings], addresses: Mapping[str, str], timeout_s: float
    ) -> None:
        self._settings = deque(settings)
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._finders: dict[Node | None, ChunkFinder] = {}
        self._leaders: dict[str, Node] = {}
        self._cached: dict[str, _CachedEnd] = {}

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        finders, self._finders = self._finders, {}
        self._leaders.clear()
        self._cached.clear()
        for finder in finders.values():
            finder.connection.close()

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream.

        Raises:
            NotFoundError: there is no such super stream.
            UnreachableError: no node answers in time.
        """
        return self._patiently(lambda: self._any().partitions(super_stream))

    def streams_of(self, exchange: str) -> tuple[str, ...]:
        """Return the streams that are bound to an exchange.

        Raises:
            NotFoundError: there is no such exchange.
            UnreachableError: no node answers in time.
        """

        def find() -> tuple[str, ...]:
            connection = self._any()
            queues = connection.queues_of(exchange)
            places = connection.metadata(queues, missing_ok=True)
            return tuple(queue for queue in queues if places[queue].code != Code.STREAM_DOES_NOT_EXIST)

        return self._patiently(find)

    def ends(self, streams: Iterable[str]) -> dict[str, LogEnd]:
        """Return the ends of the streams that exist.

        Raises:
            AccessRefusedError: the user may not read a stream.
            UnreachableError: no node answers in time, or a stream has no leader.
        """
        return self._patiently(partial(self._ends, list(streams)))

    def chunk_at(self, stream: str, offset: int) -> Chunk | None:
        """Return the chunk of rows with this offset, or the first one behind it."""
        return self._patiently(lambda: self._finder_of(stream).chunk_at(stream, offset))

    def offset_of(self, stream: str, place: OffsetSpec, end: LogEnd) -> int:
        """Return the offset of a place, as `ChunkFinder.locate` does."""
        return self._patiently(lambda: self._finder_of(stream).locate(stream, place, end)[0])

    def _ends(self, streams: list[str]) -> dict[str, LogEnd]:
        if not streams:
            return {}
        connection = self._any()
        ends = {}
        found = connection.metadata(streams, missing_ok=True)
        for stream in streams:
            places = found[stream]
            if places.code == Code.STREAM_DOES_NOT_EXIST:
                self._cached.pop(stream, None)
                continue
            if places.code != Code.OK:
                raise refusal(connection.where, f"tell where stream {stream!r} is", places.code, stream)
            self._leaders[stream] = self._leader(stream, places)
            ends[stream] = self._end(stream)
        return ends

    def _end(self, stream: str) -> LogEnd:
        finder = self._finder_of(stream)
        if Key.STREAM_STATS not in finder.connection.commands:  # before 3.11
            return finder.end(stream)
        statistics, cached = finder.connection.stats(stream), self._cached.get(stream)
        if cached and cached.statistics == statistics and time.monotonic() - cached.at < _CACHED_S:
            return cached.end
        end = finder.end(stream)
        self._cached[stream] = _CachedEnd(statistics, end, time.monotonic())
        return end

    def _any(self) -> StreamConnection:
        if not self._finders:
            connection = open_any(self._settings)
            self._finders[connection.node] = ChunkFinder(connection, self._timeout_s)
        return next(iter(self._finders.values())).connection

    def _leader(self, stream: str, places: StreamPlaces) -> Node:
        if places.leader is None:
            raise UnreachableError(
                f"{self._any().where}: stream {stream!r} has no leader now: wait until one is elected",
                queue=stream,
            )
        return places.leader

    def _finder_of(self, stream: str) -> ChunkFinder:
        """Return the finder on the leader's node."""
        connection = self._any()
        if stream not in self._leaders:  # the connections are new
            self._leaders[stream] = self._leader(stream, connection.metadata([stream])[stream])
        node = self._leaders[stream]
        if node not in self._finders:
            connection = StreamConnection(at_node(self._settings[0], node, self._addresses))
            self._finders[node] = ChunkFinder(connection, self._timeout_s)
        return self._finders[node]

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first successful attempt; each has new connections."""

        def may_retry(cause: RabbitChxError) -> bool:
            self.close()
            is_worth_it = is_transient(cause)
            if is_worth_it:
                _log.warning("%s; trying again", cause)
            return is_worth_it

        return Retry.within(self._timeout_s, _RETRY_PAUSE_S).call(attempt, may_retry)

"""Where streams begin and end, asked over a few connections that are kept: one to each node that leads some of them.

The end is that of the last chunk *of rows*: what the broker notes for itself takes offsets too, so an end with its notes would
move in a stream that nobody writes to.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.errors import RabbitChxError, UnreachableError
from rabbit_chx.retry import Retry
from rabbit_chx.streams.chunks import Chunk, Fingerprint
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code, Key, Node, StreamPlaces, refusal
from rabbit_chx.streams.look import Look
from rabbit_chx.streams.nodes import at_node, open_any

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_PAUSE_S = 0.5
#: How long an end counts that has the same figures. A stream that was made again may have them, too.
_KNOWN_S = 1.0


class LogEnd(NamedTuple):
    """Where a stream ends.

    Attributes:
        offset: the offset behind its last row.
        fingerprint: of the chunk of that row; None where there are no rows.
    """

    offset: int
    fingerprint: Fingerprint | None


class _Line(NamedTuple):
    connection: StreamConnection
    look: Look


class _Known(NamedTuple):
    stats: dict[str, int]
    end: LogEnd
    at: float


class LogEnds:
    """What is asked about streams. A lost connection is opened again, within bounds. It is used by one thread.

    Args:
        settings: nodes of the cluster, to be tried in turn.
        addresses: where advertised addresses are for us.
        timeout_s: how long a question may take in seconds, with all attempts to connect again.
    """

    def __init__(
        self, settings: Iterable[ConnectionSettings], addresses: Mapping[str, str], timeout_s: float
    ) -> None:
        self._settings = deque(settings)
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._lines: dict[Node | None, _Line] = {}
        self._leaders: dict[str, Node] = {}
        self._known: dict[str, _Known] = {}

    def close(self) -> None:
        """Close the connections; the next question opens some again."""
        lines, self._lines = self._lines, {}
        self._leaders.clear()
        self._known.clear()
        for line in lines.values():
            line.connection.close()

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream.

        Raises:
            NotFoundError: there is none of that name.
            UnreachableError: nobody answers in time.
        """
        return self._patiently(lambda: self._any().connection.partitions(super_stream))

    def streams_of(self, exchange: str) -> tuple[str, ...]:
        """Return the streams that are bound to an exchange.

        Raises:
            NotFoundError: there is no such exchange.
            UnreachableError: nobody answers in time.
        """

        def ask() -> tuple[str, ...]:
            connection = self._any().connection
            queues = connection.queues_of(exchange)
            places = connection.metadata(queues, missing_ok=True)
            return tuple(queue for queue in queues if places[queue].code != Code.STREAM_DOES_NOT_EXIST)

        return self._patiently(ask)

    def ends(self, streams: Iterable[str]) -> dict[str, LogEnd]:
        """Return where streams end; those that are not there are left out.

        Raises:
            AccessRefusedError: the user may not read one.
            UnreachableError: nobody answers in time, or a stream has no leader.
        """
        return self._patiently(partial(self._ends, list(streams)))

    def first(self, stream: str) -> int:
        """Return the offset of the first row of a stream, or where it will be. The stream is one whose end was asked."""
        return self._patiently(partial(self._first, stream))

    def chunk_at(self, stream: str, offset: int) -> Chunk | None:
        """Return the chunk of rows with this offset, or the first one behind it. The stream is one whose end was asked."""
        return self._patiently(lambda: self._line_of(stream).look.chunk_at(stream, offset))

    def offset_at(self, stream: str, moment: datetime, end: int) -> int:
        """Return the offset of the first chunk of rows of this time or later; `end` where there is none before that."""
        return min(end, self._patiently(lambda: self._line_of(stream).look.offset_at(stream, moment, end)))

    def _ends(self, streams: list[str]) -> dict[str, LogEnd]:
        if not streams:
            return {}
        connection = self._any().connection
        ends = {}
        found = connection.metadata(streams, missing_ok=True)
        for stream in streams:
            places = found[stream]
            if places.code == Code.STREAM_DOES_NOT_EXIST:
                self._known.pop(stream, None)
                continue
            if places.code != Code.OK:
                raise refusal(connection.where, f"tell where stream {stream!r} is", places.code, stream)
            self._leaders[stream] = self._leader(stream, places)
            ends[stream] = self._end(stream)
        return ends

    def _end(self, stream: str) -> LogEnd:
        connection, look = self._line_of(stream)
        stats = None
        if Key.STREAM_STATS in connection.commands:  # from 3.11 on
            stats, known = connection.stats(stream), self._known.get(stream)
            if known is not None and known.stats == stats and time.monotonic() - known.at < _KNOWN_S:
                return known.end
        last = look.chunk_at(stream, "last")
        if last is None and look.first_chunk(stream, self._timeout_s):
            # One that is not with a majority yet comes as soon as it is.
            last = look.chunk_at(stream, "last", self._timeout_s)
        end = LogEnd(last.end, last.fingerprint) if last else LogEnd(self._first(stream), None)
        if stats is not None:
            self._known[stream] = _Known(stats, end, time.monotonic())
        return end

    def _first(self, stream: str) -> int:
        look = self._line_of(stream).look
        # Without rows the log begins with what the broker keeps there; rows that there were are before that.
        first = look.first_chunk(stream, self._timeout_s)
        chunk = first or look.chunk_at(stream, "first", chunk_selector="all")
        return chunk.offset if chunk else 0

    def _any(self) -> _Line:
        if not self._lines:
            connection = open_any(self._settings)
            self._lines[connection.node] = _Line(connection, Look(connection))
        return next(iter(self._lines.values()))

    def _leader(self, stream: str, places: StreamPlaces) -> Node:
        if places.leader is None:
            raise UnreachableError(
                f"{self._any().connection.where}: stream {stream!r} has no leader now: wait until one is elected",
                queue=stream,
            )
        return places.leader

    def _line_of(self, stream: str) -> _Line:
        """Return the line to the leader's node."""
        connection = self._any().connection
        if stream not in self._leaders:  # the connections are new
            self._leaders[stream] = self._leader(stream, connection.metadata([stream])[stream])
        node = self._leaders[stream]
        if node not in self._lines:
            connection = StreamConnection(at_node(self._settings[0], node, self._addresses))
            self._lines[node] = _Line(connection, Look(connection))
        return self._lines[node]

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Ask, over new connections again while the time is not over and others may do better."""

        def may_retry(cause: RabbitChxError) -> bool:
            self.close()
            _log.warning("%s", cause)
            return is_transient(cause)

        return Retry.within(self._timeout_s, _PAUSE_S).call(ask, may_retry)

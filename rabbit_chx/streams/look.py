"""Looks into streams: each is a subscription for one chunk, and the broker's answers in order say that there is none."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import cycle

from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError
from rabbit_chx.streams.chunks import Chunk, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import MOST_IDS, Delivery, Key, OffsetSpec, StreamChanged, milliseconds

_PAUSE_S = 0.2
_UNSURE_S = 3.0
_ANY_SIZE = 1 << 32


class Look:
    """Looks into the streams that the node of a connection has.

    Args:
        connection: an open one, which nobody else subscribes on meanwhile.
        check_crc: whether the CRC of each chunk is checked.
    """

    def __init__(self, connection: StreamConnection, *, check_crc: bool = True) -> None:
        self._connection = connection
        self._check_crc = check_crc
        # An id comes again when all others were used: what comes late is not taken for another's chunk.
        self._subscriptions = cycle(range(MOST_IDS))

    def first_chunk(self, stream: str, wait_s: float) -> Chunk | None:
        """Return the first chunk of rows; None in a stream that has none.

        A leader that has just begun does not know what a majority has, and gives nothing (osiris v1.13.1, osiris_writer.erl,
        ``handle_continue/2``). Its figures tell that from an empty stream, and before 3.11 time alone does.

        Args:
            stream: the stream.
            wait_s: how long it may take in seconds.

        Raises:
            BrokerTimeoutError: there are rows, and it takes longer.
        """
        connection = self._connection
        has_figures = Key.STREAM_STATS in connection.commands
        until = time.monotonic() + (wait_s if has_figures else min(wait_s, _UNSURE_S))
        while True:
            figures = connection.stats(stream) if has_figures else {}
            if has_figures and not {"committed_chunk_id", "first_chunk_id"} <= figures.keys():
                raise ConnectionLostError(
                    f"{connection.where}: the figures of stream {stream!r} do not have its chunks, but {', '.join(figures)}",
                    queue=stream,
                )
            first = self.chunk_at(stream, "first")
            if first or (has_figures and figures["committed_chunk_id"] >= figures["first_chunk_id"]):
                return first
            if time.monotonic() + _PAUSE_S >= until:
                break
            time.sleep(_PAUSE_S)
        if has_figures:
            raise self._late(stream, wait_s)
        return None

    def chunk_at(
        self, stream: str, start: OffsetSpec, wait_s: float = 0.0, **properties: str
    ) -> Chunk | None:
        """Return the first chunk that a subscription gives.

        Args:
            stream: the stream.
            start: where it begins.
            wait_s: how long it may take in seconds; 0 for what is there now, else None.
            properties: of the subscription.

        Raises:
            BrokerTimeoutError: there is none within the wait.
            ConnectionLostError: the stream is deleted or has another leader, so that nothing comes any more.
        """
        connection, subscription = self._connection, next(self._subscriptions)
        connection.subscribe(subscription, stream, start, 1, properties)
        connection.metadata([stream])  # the answer comes behind a chunk that is there
        until = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, until - time.monotonic())
            for event in connection.events(left_s):
                if isinstance(event, Delivery) and event.subscription_id == subscription:
                    connection.unsubscribe(subscription)
                    chunk = read_chunk(event.chunk, check_crc=self._check_crc)
                    if chunk.kind == "user":  # the header's numbers have no CRC
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
                raise self._late(stream, wait_s)

    def _late(self, stream: str, wait_s: float) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._connection.where}: stream {stream!r} has rows, and does not give them within {wait_s:g} s: is a majority of its "
            "replicas up?",
            queue=stream,
        )

    def offset_at(self, stream: str, moment: datetime, log_end: int) -> int:
        """Return the offset of the first chunk of rows of this time or later; `log_end` where there is none."""
        with suppress(OverflowError):  # the last moment that Python has
            moment += timedelta(microseconds=-moment.microsecond % 1000)
        chunk = self.chunk_at(stream, moment)
        if chunk is None:
            return log_end
        return chunk.offset if chunk.timestamp_ms >= milliseconds(moment) else chunk.end

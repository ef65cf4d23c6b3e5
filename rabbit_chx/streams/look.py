"""Looks into streams: each is a subscription for one chunk, and the broker's answers in order say that there is none."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import cycle

from rabbit_chx.errors import BrokerTimeoutError
from rabbit_chx.streams.chunks import Chunk, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import MOST_IDS, Delivery, OffsetSpec, milliseconds


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
                    return read_chunk(event.chunk, check_crc=self._check_crc)
            if not wait_s:
                connection.unsubscribe(subscription)
                return None
            if not left_s:
                raise BrokerTimeoutError(
                    f"{connection.where}: stream {stream!r} has rows, and does not give the last of them within {wait_s:g} s: "
                    "is a majority of its replicas up?",
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

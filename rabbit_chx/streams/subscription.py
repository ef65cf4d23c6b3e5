"""A subscription of a stream, as a `StreamReader` and a member of a `StreamGroup` read it: its chunks, and the credit that bounds them.

The broker sends one chunk for each credit. It gets so much that the chunks that are under way or wait here have about 8 MiB together, if
each is as large as the largest of the latest ones. A chunk of more bytes comes alone. When the credit is replenished is up to the user:
before a wait it must be, and a user that must not hold two large chunks does so only then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.streams.chunks import Piece
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import (
    ConsumerUpdate,
    CreditRefused,
    DeliveredChunk,
    Event,
    OffsetSpec,
    StreamChanged,
)

#: The most rows of a batch by default, and the most unpacked bytes; a single piece may have more.
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
_READ_AHEAD_BYTES = 8 << 20
_MAX_CREDIT = 128
_ID = 0


@dataclass(eq=False)
class StreamSubscription:
    """A subscription of a stream over one connection at a time, for one thread. Received chunks stay when a connection is lost.

    Attributes:
        stream: the stream's name.
        waiting: the received chunks that were not taken.
        pieces: the rest of the chunk that was taken last.
        bytes_received: the bytes of all chunks, also those of other subscriptions of the connection.
        is_paused: whether the broker has made this single active consumer passive.
    """

    stream: str
    waiting: deque[memoryview] = field(default_factory=deque)
    pieces: deque[Piece] = field(default_factory=deque)
    bytes_received: int = 0
    is_paused: bool = False
    _connection: StreamConnection = field(init=False)
    _credit: int = 1  # chunks that the broker may still send
    _limit: int = 1  # chunks that may be under way or wait here
    _largest_chunk: int = 0  # in bytes, of the latest chunks

    def begin(
        self, connection: StreamConnection, start: OffsetSpec, properties: Mapping[str, str | bytes]
    ) -> None:
        """Subscribe over a connection."""
        self._connection = connection
        # The broker waits for more than half of the *first* credit. That is 1 here, so it never waits.
        connection.subscribe(_ID, self.stream, start, 1, properties)
        self._credit = self._limit = 1
        self.is_paused = False

    def drop(self) -> None:
        """Drop what was received and not taken."""
        self.waiting.clear()
        self.pieces.clear()

    def resume(self) -> None:
        """End the pause, and let the broker send a chunk."""
        self.is_paused = False
        # The broker may have dropped credit during the pause.
        self._connection.give_credit(_ID, 1)
        self._credit = 1

    @property
    def is_large(self) -> bool:
        """Whether a chunk may be so large that a second one would exceed the bound."""
        return self._largest_chunk >= _READ_AHEAD_BYTES // 2

    def receive(self, wait_s: float) -> list[Event]:
        """Receive within a time, and return the events that are not chunks of this subscription; ConnectionLostError if it has ended."""
        others: list[Event] = []
        for event in self._connection.events(wait_s):
            match event:
                case DeliveredChunk(subscription_id, data):
                    self.bytes_received += len(data)
                    if subscription_id == _ID:
                        self.waiting.append(data)
                        self._credit -= 1
                    else:
                        others.append(event)
                case ConsumerUpdate(_, is_active, _):
                    self.is_paused = self.is_paused or not is_active
                    others.append(event)
                case CreditRefused() if self.is_paused:
                    pass  # it has crossed with the update
                case StreamChanged() | CreditRefused():
                    raise ConnectionLostError(
                        f"{self._connection.where}: the broker has ended the subscription of stream {self.stream!r}: the stream is "
                        "deleted, or its replica or leader has changed",
                        queue=self.stream,
                    )
                case _:
                    others.append(event)
        return others

    def take(self) -> memoryview:
        """Remove and return the first waiting chunk."""
        data = self.waiting.popleft()
        # Half of the one before, so that the effect of a single large chunk fades.
        self._largest_chunk = max(len(data), self._largest_chunk // 2)
        return data

    def replenish(self) -> None:
        """Give the broker credit for further chunks, once half of it is used."""
        if self.is_paused:
            return
        # The limit only doubles: the first chunk often has the publisher's first row alone, and larger ones follow.
        limit = min(max(1, _READ_AHEAD_BYTES // max(1, self._largest_chunk)), _MAX_CREDIT, 2 * self._limit)
        left = self._credit + len(self.waiting)
        if self._largest_chunk and left <= limit // 2:
            self._connection.give_credit(_ID, limit - left)
            self._credit = limit - len(self.waiting)
            self._limit = limit

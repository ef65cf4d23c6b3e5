"""Whether another writer publishes under the same name: its ids make the broker confirm our rows, and drop them.

Each writer has a random number, and stores it in the stream as the offset of readers of these names::

    name/opening    by each writer that opens, and by one that has found another there: the last one's number
    name/writing    by each writer that has opened: the last one's number
    name/closed     by a writer that closes, and was the last one to open

A writer that opens stores its number as opening, reads the other two, stores it as writing, and reads opening. It is *alone* if the last
writer has closed, and none has opened meanwhile: of writers that open at once, at most one finds that (Lamport's splitter). The others tell
it, by opening again before they send a row. A writer that is not alone compares its rows with the stored ones.

So a writer looks at opening before it reports rows as confirmed, and before it sends rows if it has not looked for a second. Therefore one
that died without closing counts as a writer for some seconds only. All numbers are above all offsets, so that retention does not remove them.
"""

from __future__ import annotations

import logging
import secrets
import time

from rabbit_chx.streams.connection import StreamConnection

_log = logging.getLogger(__name__)

#: A writer sends rows for this time after it has looked whether it is alone.
_LOOK_S = 1.0
#: The time for which a writer that did not close counts as one that still sends rows: much longer than `_LOOK_S`, for rows on their way. They
#: may need longer, so that a call which began in this time compares its rows to its end.
_WATCH_S = 10.0
_CLOSE_S = 1.0


class OtherWriters:
    """The other writers of a name in one stream.

    Attributes:
        may_send: whether there may be one: the rows of the call must be compared.
    """

    def __init__(self, stream: str, name: str) -> None:
        self._stream = stream
        self._name = name
        self._number = 1 << 62 | secrets.randbits(61)
        self.may_send = False
        self._is_over = True
        self._has_opened = False
        self._watch_until = 0.0
        self._next_look = 0.0

    def look_if_due(self, connection: StreamConnection) -> None:
        """Look for others, unless that was done in the last second; the first time tell that a writer opens."""
        if time.monotonic() < self._next_look:
            return
        if not self._has_opened:
            self._has_opened = True
            self._store(connection, "opening")
            if self._stored(connection, "writing") != self._stored(connection, "closed"):
                self._watch()
            self._store(connection, "writing")
        self._note(self._stored(connection, "opening"), connection)

    def start_call(self) -> None:
        """Begin with a call: once there may be another writer, rows are compared to the end of the call."""
        if self._is_over:
            self.may_send = False

    def may_have_sent(self, connection: StreamConnection, last_id: int, highest_id: int) -> bool:
        """Return whether rows up to `last_id` must be compared, in one round trip; we have sent none above `highest_id`."""
        reader = f"{self._name}/opening"
        sequence, number = connection.sequence_and_offset(self._name, reader, self._stream)
        self._note(number, connection)
        if not last_id <= sequence <= highest_id:
            self._watch()
        self._is_over = time.monotonic() >= self._watch_until
        return self.may_send

    def close(self, connection: StreamConnection) -> None:
        """Tell that this writer has ended, unless another one has opened."""
        connection.deadline = time.monotonic() + _CLOSE_S
        if self._stored(connection, "opening") == self._number:
            self._store(connection, "closed")

    def _note(self, opening: int | None, connection: StreamConnection) -> None:
        self._next_look = time.monotonic() + _LOOK_S
        if opening != self._number:
            words = "stream %s: another writer has opened with the name %r: rows are compared with the stored ones"
            _log.warning(words, self._stream, self._name, extra={"queue": self._stream})
            self._store(connection, "opening")
            self._store(connection, "writing")
            self._watch()

    def _watch(self) -> None:
        self.may_send = True
        self._is_over = False
        self._watch_until = time.monotonic() + _WATCH_S

    def _stored(self, connection: StreamConnection, what: str) -> int | None:
        return connection.query_offset(f"{self._name}/{what}", self._stream)

    def _store(self, connection: StreamConnection, what: str) -> None:
        connection.store_offset(f"{self._name}/{what}", self._stream, self._number)

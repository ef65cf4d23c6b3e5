"""Write rows to one stream, each exactly once, over a connection to its leader that is replaced when it is lost.

The broker keeps the last publishing id of each publisher reference (here: the *name*) in each stream. It confirms a row whose id is not
higher, and does not store it. So a row that is sent again is stored once, under these rules:

1. Ids increase. A row is sent only after all earlier rows of its stream were sent on the same connection: after a lost connection, a
   refused row or a leader change all rows from the lowest unconfirmed one are sent again, in order, and before any newer row. Otherwise the
   newer id would make the broker drop the older row.
2. The last id that the broker reports on a new connection (the *claimed* id) is verified, since its row may not be stored. When the broker
   starts a new segment, it writes the ids of a batch of rows into the log before the rows. If it crashes in between, it confirms and drops
   those rows when they are sent again (osiris v1.13.1, osiris_writer.erl, ``handle_batch/2``; osiris_log.erl,
   ``evaluate_tracking_snapshot/2``). So rows up to the claimed id are sent before all others. Their confirms mean that the stored ones
   among them are committed. Then our highest id is looked up in the stream. Claimed rows above it are not stored: they are published under
   the reference ``name~1``, by the same rules. (The ids in the trailer of a chunk are not sufficient: the first chunk of a segment has
   none.)
3. The lookup needs the id in the row: the property message-id is ``name:id``.
4. A row that earlier runs have stored is *known*: the broker drops it. The highest known row of each call is compared with the stored one.
   A difference is an error, and so is a row that retention has removed.
5. Ids of another writer of the name make the broker drop our rows, too. `OtherWriters` tells whether there may be one. Then confirmed
   rows are compared with the stored ones before they are reported.

What has an id is an *entry*: a row, or a sub-entry with the id of its last row. The broker stores or drops a sub-entry as a whole, so the
rules hold if all attempts make the same sub-entries (`rows.entry_cuts`). A claimed id inside one of them shows that they do not.

`StoredIds` answers what is stored, and draws the method. Without a name no ids are claimed, and a row may be stored more than once.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rabbit_chx import errors
from rabbit_chx.amqp.frames import is_transient, may_be_limit
from rabbit_chx.retry import Backoff, jitter
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code, Confirms, PublishErrors, StreamChanged, code_in_words
from rabbit_chx.streams.nodes import MIN_ATTEMPT_S, open_at
from rabbit_chx.streams.options import WriteLimits
from rabbit_chx.streams.rows import EncodedRows, SubEntries, as_single_array
from rabbit_chx.streams.stored_ids import StoredIds, index_after
from rabbit_chx.text import plural

if TYPE_CHECKING:
    from collections import deque

    import pyarrow as pa
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings

# -- Whether another writer publishes under the same name: its ids make the broker confirm our rows, and drop them
# Each writer has a random number, and stores it in the stream as the offset of readers of these names::
#
# name/opening    by each writer that opens, and by one that has found another there: the last one's number
# name/writing    by each writer that has opened: the last one's number
# name/closed     by a writer that closes, and was the last one to open
#
# A writer that opens stores its number as opening, reads the other two, stores it as writing, and reads opening. It is *alone* if the last
# writer has closed, and none has opened meanwhile: of writers that open at once, at most one finds that (Lamport's splitter). The others tell
# it, by opening again before they send a row. A writer that is not alone compares its rows with the stored ones.
#
# So a writer looks at opening before it reports rows as confirmed, and before it sends rows if it has not looked for a second. Therefore one
# that died without closing counts as a writer for some seconds only. All numbers are above all offsets, so that retention does not remove them.


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


_log = logging.getLogger(__name__)

#: The most rows that are sent before confirms are processed.
_SEND_ROWS = 4_096
DEFAULT_FRAME_MAX = 1 << 20  # bytes, if the broker has no limit
_WAIT_S = 0.05
_BACKOFF = Backoff(0.2, 5.0)
_MAX_REPAIRS = 9


class RowColumns(NamedTuple):
    """Rows as columns.

    Attributes:
        ids: the publishing ids; empty without a name.
        streams: the index of each row's stream; None for a single stream.
        filter_values: the filter values; None without.
    """

    keys: pa.Array[Any]
    bodies: pa.Array[Any]
    ids: NDArray[np.int64]
    streams: NDArray[np.int32] | None = None
    filter_values: pa.Array[Any] | None = None

    def slice(self, start: int, rows: int) -> RowColumns:
        """Return so many rows from `start` on."""
        selected = slice(start, start + rows)
        return RowColumns(
            as_single_array(self.keys.slice(start, rows)),
            as_single_array(self.bodies.slice(start, rows)),
            self.ids[selected],
            None if self.streams is None else self.streams[selected],
            None if self.filter_values is None else as_single_array(self.filter_values.slice(start, rows)),
        )

    def by_stream(self) -> Iterator[tuple[int, RowColumns]]:
        """Yield the index of each stream that has rows, with its rows in their order."""
        if self.streams is None:
            yield 0, self
            return
        order = np.argsort(self.streams, kind="stable")
        ends = np.cumsum(np.bincount(self.streams))
        for number, (start, end) in enumerate(zip(np.append(0, ends[:-1]), ends, strict=True)):
            if start < end:
                indices = order[start:end]
                ids = self.ids[indices] if len(self.ids) else self.ids
                filter_values = None if self.filter_values is None else self.filter_values.take(indices)
                yield (
                    number,
                    RowColumns(self.keys.take(indices), self.bodies.take(indices), ids, None, filter_values),
                )


class Window:
    """A sliding window over rows, or sub-entries, in the order of their ids: the sent and the confirmed ones. No I/O.

    Attributes:
        is_unconfirmed: of each row, whether it is not confirmed.
        lowest: the first unconfirmed row.
        next: the first row that was not sent on this connection.
        furthest: the first row that was not sent on an earlier connection.
        stop: the row after the last one.
    """

    def __init__(self, ids: NDArray[np.int64], size: int, start: int = 0, stop: int | None = None) -> None:
        self.stop = len(ids) if stop is None else stop
        self.lowest = self.next = self.furthest = start
        self._ids = ids
        self._size = size
        self.is_unconfirmed = np.ones(self.stop, bool)

    @property
    def done(self) -> bool:
        """True if all rows are confirmed."""
        return self.lowest >= self.stop

    @property
    def room(self) -> int:
        """The number of rows that may be sent now."""
        in_flight = int(np.count_nonzero(self.is_unconfirmed[self.lowest : self.next]))
        return min(self._size - in_flight, self.stop - self.next)

    def confirm(self, ids: NDArray[Any]) -> NDArray[np.intp]:
        """Mark rows as confirmed by their ids, and return the indices of the new ones. Ids that were not sent are ignored."""
        ids = ids.astype(np.int64)
        indices = np.searchsorted(self._ids[: self.next], ids)
        may_be_sent = indices < self.next
        indices = indices[may_be_sent][self._ids[indices[may_be_sent]] == ids[may_be_sent]]
        return self._confirm(np.unique(indices[self.is_unconfirmed[indices]]))

    def confirm_before(self, stop: int) -> NDArray[np.intp]:
        """Mark all rows before `stop` as confirmed, and return the indices of the new ones."""
        return self._confirm(self.lowest + np.flatnonzero(self.is_unconfirmed[self.lowest : stop]))

    def _confirm(self, indices: NDArray[np.intp]) -> NDArray[np.intp]:
        self.is_unconfirmed[indices] = False
        unconfirmed = self.is_unconfirmed[self.lowest :]
        self.lowest = self.lowest + int(unconfirmed.argmax()) if unconfirmed.any() else self.stop
        self.next = max(self.next, self.lowest)
        return indices

    def rewind(self) -> int:
        """Go back to the lowest unconfirmed row, and return the number of rows to send again."""
        self.furthest = max(self.furthest, self.next)
        to_resend = self.next - self.lowest
        self.next = self.lowest
        return to_resend


class StreamWriter:
    """Writes to one stream, over a connection to its leader that is replaced when it is lost.

    Args:
        stream: the stream.
        settings: nodes of the cluster, tried in turn; not shared, since unreachable nodes are moved to the end.
        name: the publisher reference; None for at-least-once.
        limits: the window and the time limits.
        reading: the arguments of the readers for the lookup of our rows: url, addresses, limits.
        rows_per_id: the most rows that are sent under one id: those of a sub-entry.

    `counts` are those of the current call, by the names of `StreamReport`.
    """

    def __init__(
        self,
        stream: str,
        settings: deque[ConnectionSettings],
        name: str | None,
        limits: WriteLimits,
        *,
        reading: Mapping[str, Any],
        rows_per_id: int = 1,
    ) -> None:
        self.stream = stream
        self.counts = Counter[str]()
        self._settings = settings
        self._name = name
        # Both count ids: rows, or sub-entries.
        self._window_size = max(1, limits.window // rows_per_id)
        self._send_size = max(1, _SEND_ROWS // rows_per_id)
        self._limits = limits
        self._reading = reading
        self._connection: StreamConnection | None = None
        self._connection_count = 0
        self._stored = StoredIds(stream, name, reading)
        self._others = None if name is None else OtherWriters(stream, name)
        self._is_counted = (
            True  # after a comparison with what other writers of the name may have stored instead
        )
        self._highest_id = 0
        self._last_number = 0  # without a name, rows are numbered to match their confirms
        # Of each entry: its id, which is that of its last row, and the id of its first row.
        self._ids = self._first_ids = np.empty(0, np.int64)
        self._encoded: EncodedRows | SubEntries | None = None
        self._window = Window(self._ids, limits.window)
        # Of each entry: whether it was not stored although the broker confirmed it, and so was sent under a further reference.
        self._is_repaired = np.empty(0, bool)
        self._last_progress_at = 0.0  # when rows were confirmed, or first sent with none in flight
        self._outage_began: float | None = None
        self._attempts = 0
        self._refusal: errors.RabbitChxError | None = None  # of the last attempt, if it may be by a limit
        self._next_attempt = 0.0

    @property
    def connected(self) -> bool:
        """True if a connection is open."""
        return self._connection is not None

    @property
    def done(self) -> bool:
        """True if all rows are confirmed, and compared if another writer's ids may have made the broker drop some."""
        return self._is_counted

    def start_call(self, ids: NDArray[np.int64], *, compares_known: bool) -> None:
        """Begin with a call; `ids` are those of its rows for this stream, and `compares_known` whether the highest known one is compared."""
        self.counts = Counter[str]()
        self._stored.start_call(ids, compares_known=compares_known)
        if self._others:
            self._others.start_call()

    def start_batch(self, rows: RowColumns, encoded: EncodedRows | SubEntries) -> None:
        """Begin with the next rows, which are `encoded`; all earlier ones are confirmed."""
        self._encoded = encoded
        if self._name is None:
            count = len(encoded.rows)
            self._ids = self._first_ids = np.arange(self._last_number + 1, self._last_number + count + 1)
            self._last_number += count
        else:
            ends = np.cumsum(encoded.rows)
            self._ids = rows.ids[ends - 1]
            self._first_ids = rows.ids[ends - encoded.rows]
            self._highest_id = max(self._highest_id, int(self._ids[-1]))

        self._stored.start_batch(rows.ids, rows.keys, rows.bodies)
        self._window = Window(self._ids, self._window_size)
        self._is_counted = False
        self._is_repaired = np.zeros(len(self._ids), bool)
        # If a connection was lost with the last earlier rows, that outage is over: all of them are confirmed.
        self._outage_began = None
        self._attempts = 0
        self._next_attempt = 0.0

    def poll(self, wait_s: float) -> bool:
        """Connect and verify claimed ids if necessary, send the rows that the window allows, and process received confirms.

        Return whether rows were sent or confirmed, after a wait of at most `wait_s` seconds for events. A RabbitChxError means that the
        connection cannot be replaced, or not in time.
        """
        try:
            if self._connection is None:
                if time.monotonic() < self._next_attempt:
                    time.sleep(wait_s)
                    return False
                self._connect()

            if self._connection and self._others:
                self._others.look_if_due(self._connection)
            self._check_cut(self._stored.last_claim)  # of rows in any batch and call
            self._stored.compare_last()
            self._verify_claim()
            is_idle = self._window.next == self._window.lowest
            if self._connection and is_idle and self._window.next < self._window.stop:
                self._stored.note_end(self._connection)

            sent = self._send(0, self._window)
            confirmed = self._collect(0, self._window, 0.0 if sent else wait_s)
            if self._window.done and self._connection:
                self._compare(self._connection)
        except errors.RabbitChxError as cause:
            self._lose_connection(cause)
            return False

        return bool(sent or confirmed)

    def finish(self) -> None:
        """Close the connection after the last row: the next writer of the name need not look for this one."""
        with suppress(errors.RabbitChxError):
            if self._connection and self._others and self.done:
                self._others.close(self._connection)
        self.close()

    def close(self, within_s: float | None = None) -> None:
        """Close the connection, in the time of `StreamConnection.close` or a shorter one; may be called again."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close(within_s)

    def give_up(self) -> int:
        """Forget the rows of a batch that is not done, and close their connection; return how many were sent: each may be stored.

        With a name, confirmed rows are among them: another writer's ids may have made the broker drop them.
        """
        if self.done or self._encoded is None:
            return 0
        self.close()
        unknown = int(self._encoded.rows[: max(self._window.next, self._window.furthest)].sum())
        if self._name is None:
            unknown -= self._count()
        self._window = Window(np.empty(0, np.int64), self._window_size)
        self._is_counted = True
        return unknown

    # -- the connection

    def _connect(self) -> None:
        """Connect to the leader, and go back to the lowest unconfirmed row; a MismatchError if the stream has forgotten confirmed ids."""
        remaining_s = math.inf
        if self._outage_began is not None:
            remaining_s = max(
                MIN_ATTEMPT_S, self._outage_began + self._limits.reconnect_timeout_s - time.monotonic()
            )
        connection = open_at(
            self._settings,
            self.stream,
            leader=True,
            addresses=self._reading["addresses"],
            timeout_s=min(self._settings[0].connection_timeout_s, remaining_s),
        )
        self._connection = connection
        connection.request_timeout_s = min(self._limits.confirm_timeout_s, remaining_s)
        self._declare(connection, 0, self._name)

        if self._name is not None:
            self._stored.note_first_end(connection)
            self._stored.claim(connection.publisher_sequence(self._name, self.stream), connection.where)

        self.counts["reconnects"] += self._connection_count > 0
        self.counts["resent"] += self._in_flight
        self._window.rewind()
        self._connection_count += 1
        connection.request_timeout_s = self._limits.confirm_timeout_s

    def _declare(self, connection: StreamConnection, publisher_id: int, reference: str | None) -> None:
        """Declare a publisher whose id and name are new on this connection; an alarm of the broker counts as an outage.

        With a new id and name, code 17 means a resource alarm (rabbitmq-server, rabbit_stream_reader.erl, ``handle_frame_post_auth``,
        declare_publisher). Other commands answer it to wrong arguments.
        """
        try:
            connection.declare_publisher(publisher_id, self.stream, reference)
        except errors.BrokerRefusedError as cause:
            if cause.reply_code != Code.PRECONDITION_FAILED:
                raise
            raise errors.UnreachableError(
                f"{connection.where}: the broker takes no publisher of stream {self.stream!r} ({code_in_words(Code.PRECONDITION_FAILED)}): "
                "probably a disk or memory alarm is on: look at rabbitmq-diagnostics alarms, and free disk or memory there",
                queue=self.stream,
                reply_code=cause.reply_code,
            ) from cause

    def _lose_connection(self, cause: errors.RabbitChxError) -> None:
        """Close the connection after an error, and schedule the next attempt; raise the error if it is permanent or too late."""
        with suppress(
            errors.RabbitChxError
        ):  # rows that were confirmed before the loss need not be sent again
            self._collect(0, self._window, 0.0)

        self.close()
        if self._window.done and self._name is None and not self._is_counted:
            self._count()
        now = time.monotonic()
        if self._outage_began is None:
            self._outage_began = now
        if not is_transient(cause) and not may_be_limit(cause):  # the publisher has opened the vhost before
            raise cause

        before = self._refusal
        self._refusal = cause if may_be_limit(cause) else None
        if now - self._outage_began >= self._limits.reconnect_timeout_s:
            if before is not None and isinstance(cause, errors.UnreachableError):
                cause = before  # the broker refuses after 3 s, and the last attempt may have less
            raise errors.ConnectionLostError(
                f"{cause}; gave up after {plural(self._attempts, 'attempt')} to connect in {now - self._outage_began:.0f} s",
                queue=self.stream,
            ) from cause

        _log.info("stream %s: connecting again: %s", self.stream, cause, extra={"queue": self.stream})
        self._next_attempt = now + _BACKOFF.delay_s(self._attempts, jitter())
        self._attempts += 1

    @property
    def _in_flight(self) -> int:
        """The number of rows that were sent on this connection, from the first unconfirmed one on."""
        window = self._window
        return 0 if self._encoded is None else int(self._encoded.rows[window.lowest : window.next].sum())

    def _send(self, publisher_id: int, window: Window) -> int:
        """Send the rows or sub-entries that the window allows, and return their number."""
        rows = min(window.room, self._send_size)
        # Many small frames would be slow: wait for more room, unless these are the last rows.
        min_rows = min(self._send_size, self._window_size // 4, window.stop - window.next)
        if rows < max(1, min_rows):
            return 0
        assert self._connection is not None  # `poll` connects
        assert self._encoded is not None
        ids = self._ids.view(np.uint64)
        if window.next == window.lowest:
            self._last_progress_at = time.monotonic()
        start = window.next
        window.next = window.next + rows
        for frames in self._encoded.frames(
            publisher_id, ids, start, window.next, self._connection.frame_max or DEFAULT_FRAME_MAX
        ):
            self._connection.send(frames, stall_s=self._limits.confirm_timeout_s)
        return rows

    def _collect(self, publisher_id: int, window: Window, wait_s: float) -> int:
        """Process the received events, and return the number of newly confirmed rows.

        After a RabbitChxError (a refused row, a changed stream, overdue confirms) all unconfirmed rows must be sent again over another
        connection.
        """
        if self._connection is None:
            return 0

        confirmed = 0
        for event in self._connection.events(wait_s):
            if isinstance(event, Confirms) and event.publisher_id == publisher_id:
                new = window.confirm(event.ids)
                confirmed += len(new)
                if len(new):
                    self._outage_began = None
                    self._attempts = 0
                    self._last_progress_at = time.monotonic()
                # Claimed rows have a window of their own, and count when they are verified.
                if window is self._window:
                    self._note_confirmed()
            elif isinstance(event, PublishErrors):
                raise self._refusal_error(int(event.codes[0]))
            elif isinstance(event, StreamChanged) and event.stream == self.stream:
                raise errors.ConnectionLostError(
                    f"{self._connection.where}: stream {self.stream!r} is deleted or has another leader",
                    queue=self.stream,
                )

        silent_s = time.monotonic() - self._last_progress_at
        if window.next > window.lowest and silent_s > self._limits.confirm_timeout_s:
            raise errors.BrokerTimeoutError(
                f"{self._connection.where}: stream {self.stream!r} has confirmed nothing for {silent_s:.0f} s, and "
                f"{window.next - window.lowest if window is not self._window else self._in_flight} rows are unconfirmed: look at the broker's alarms and log",
                queue=self.stream,
            )

        return confirmed

    def _note_confirmed(self) -> None:
        if self._window.lowest:
            self._stored.confirmed_id = int(self._ids[self._window.lowest - 1])

    def _count(self) -> int:
        """Count the confirmed rows of a batch, each as known, repaired or neither, and return their number."""
        assert self._encoded is not None  # a batch has begun
        confirmed = np.where(self._window.is_unconfirmed, 0, self._encoded.rows)
        known = confirmed[: self._index_after(self._stored.known_id)]
        count = int(confirmed.sum())
        self.counts["confirmed"] += count
        self.counts["repaired"] += int(confirmed[self._is_repaired].sum())
        self.counts["known"] += int(known[~self._is_repaired[: len(known)]].sum())
        self._is_counted = True
        return count

    def _refusal_error(self, code: int) -> errors.RabbitChxError:
        """Return the error for a refused row. Unless access is refused, the row is sent again over a new connection."""
        assert self._connection is not None  # it refused the row
        error = self._connection.refusal(f"take rows into stream {self.stream!r}", code, self.stream)
        if isinstance(error, errors.AccessRefusedError):
            return error
        return errors.ConnectionLostError(str(error), queue=self.stream)

    # -- verification of the confirmed and the claimed ids

    def _compare(self, connection: StreamConnection) -> None:
        """Compare the confirmed rows with the stored ones, if another writer may have used their ids; a MismatchError if some are not stored."""
        last_id = int(self._ids[-1])
        highest = self._highest_id
        unstored = 0
        is_new = last_id > self._stored.known_id
        if self._others and is_new and self._others.may_have_sent(connection, last_id, highest):
            unstored = self._stored.count_unstored()
        self._count()
        self.counts["confirmed"] -= unstored
        if unstored:
            raise errors.MismatchError(
                f"stream {self.stream!r}: another writer uses the name {self._name!r}, and {plural(unstored, 'confirmed row')} up to id {last_id} "
                f"{'is' if unstored == 1 else 'are'} not stored: stop one writer, and publish these rows with higher ids, or under another name",
                queue=self.stream,
            )

    def _check_cut(self, row_id: int) -> None:
        """Raise a MismatchError if an id that the stream has is inside a sub-entry: an earlier run has made others, and rows would be doubled."""
        index = self._index_after(row_id) - 1
        if index >= 0 and row_id < self._ids[index]:
            raise errors.MismatchError(
                f"stream {self.stream!r} has id {row_id} of {self._name!r}, inside the sub-entry of ids {self._first_ids[index]} to "
                f"{self._ids[index]}: an earlier run has made other sub-entries; pass its sub_entry_rows, and end calls at the same ids",
                queue=self.stream,
            )

    def _verify_claim(self) -> None:
        """Send the rows up to the claimed id, and store those of them that are missing in the stream."""
        stored = self._stored
        if self._name is None:
            return
        start = self._window.lowest
        stop = self._index_after(stored.claimed_id)
        if start < stop and self._store(0, start, stop, stored.claimed_id):
            stored.claimed_id = 0  # else later rows up to it are verified, too
        stored.compare_known()
        if start < stop:
            self._window.confirm_before(stop)
            self._note_confirmed()

    def _store(self, level: int, start: int, stop: int, claimed_id: int) -> bool:
        """Store rows under a reference, and return whether the broker has stored all rows up to the claimed id.

        The rows up to the claimed id are sent first, and looked up. Those that are missing are stored under the next reference, by the same
        method. Then the remaining rows are sent.

        Args:
            level: 0 for the name, n for the reference ``name~n``; also the publisher id on the connection.
            start: the index of the first row.
            stop: the index after the last row.
            claimed_id: the last id of the reference that the broker reports.
        """
        if level:
            self._check_cut(claimed_id)
        claimed = min(stop, max(start, self._index_after(claimed_id)))
        is_claim_true = True
        if start < claimed:
            self._send_and_wait(level, start, claimed)
            last_id = self._stored.find_last(
                claimed_id, int(self._first_ids[start]), int(self._ids[claimed - 1])
            )
            if self._first_ids[start] <= last_id < self._ids[claimed - 1]:  # a lower id may be that of a copy
                self._check_cut(last_id)
            is_claim_true = last_id >= claimed_id
            lost = max(start, self._index_after(last_id))
            if lost < claimed:
                self._store_lost(level + 1, lost, claimed)

        if claimed < stop:
            self._is_repaired[claimed:stop] |= level > 0
            self._send_and_wait(level, claimed, stop)
        return is_claim_true

    def _store_lost(self, level: int, start: int, stop: int) -> None:
        """Store rows that the broker has confirmed but not stored, under the reference of this level."""
        assert self._connection is not None  # rows were sent over it
        reference = f"{self._name}~{level}"
        if level > _MAX_REPAIRS:
            raise errors.MismatchError(
                f"stream {self.stream!r} has confirmed {stop - start} rows from id {self._first_ids[start]} on under {level} references and "
                "has not stored them: is the stream cut short all the time? Look at the broker's log",
                queue=self.stream,
            )
        _log.warning(
            "stream %s: the broker confirmed %d rows from id %d on that it has not stored; storing them as %s",
            self.stream, stop - start, self._first_ids[start], reference, extra={"queue": self.stream},
        )  # fmt: skip
        self._declare(self._connection, level, reference)
        claimed_id = self._connection.publisher_sequence(reference, self.stream)
        self._store(level, start, stop, claimed_id)
        self._connection.delete_publisher(level)

    def _send_and_wait(self, publisher_id: int, start: int, stop: int) -> None:
        """Send rows, and wait for their confirms, which count only after the lookup."""
        window = Window(self._ids, self._window_size, start, stop)
        while not window.done:
            sent = self._send(publisher_id, window)
            self._collect(publisher_id, window, 0.0 if sent else _WAIT_S)

    def _index_after(self, row_id: int) -> int:
        """Return the index after the last entry that has a row with an id up to this one: a stored row, or a copy, proves its whole entry."""
        return index_after(self._first_ids, row_id)

"""A stream as a member of a `StreamGroup` reads it: a subscription over a connection of its own, and the thread that reads it.

The broker elects one subscription of each stream and group name by a `ConsumerUpdate` that the client answers with the offset to start at
(rabbitmq-server v4.3.6, rabbit_stream_sac_coordinator.erl; tested with 4.0.5 and 4.3.6): of the partitions of a super stream in turn, so
that each member gets its share; of any other stream the one that subscribed first. When a member joins or leaves, the broker makes the
active subscription of a partition passive, and elects the next one after the client's answer.

The election is delivered like a message, which is handled by calling the hook `on_gained`. The next messages are batches of rows, each after
the one before is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import queue as queues
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from rabbit_chx import errors
from rabbit_chx.connection.failures import start_thread
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.consuming.settings import GroupReading, LoopWatch, waiting
from rabbit_chx.options import check_options
from rabbit_chx.streams.chunks import Piece, pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import (
    ConsumerUpdate,
    OffsetSpec,
    check_range,
)
from rabbit_chx.streams.log_lookup import NEVER, ChunkFinder, DamagedReads, Progress
from rabbit_chx.streams.nodes import open_any, open_at
from rabbit_chx.streams.offsets import log_start_without_position
from rabbit_chx.streams.options import BATCH_BYTES, BATCH_ROWS, StreamSubscription
from rabbit_chx.streams.rows import columns_in, schema_of
from rabbit_chx.text import typed_error_text

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

_log = logging.getLogger(__name__)

#: Seconds between two looks at a connection while its thread waits.
LOOK_S = 0.2
REQUEST_S = 10.0
_OPEN_S = 60.0
_CLOSE_S = 5.0
_STORED_CHECKS = 20
#: The beginning of the names of all connections of stream groups; the group, a dot and the member follow.
CONNECTION_NAME = "rabbit-chx.stream-group."


@dataclass
class GroupStreams:
    """How the streams of a group are read. An InputError if `given` has an invalid value.

    Attributes:
        super_stream: the super stream whose partitions they are; None for streams.
        open_s: the longest time in seconds to connect to a member of a stream.
        given: where to start, the columns, and the size of a batch.
        missing: the missing rows of each stream.
        damaged: the reads of a damaged chunk of each stream.
        failed_starts: how often `on_gained` has failed for each stream since it last succeeded.
        loop_watch: whether the event loop that handles the batches still answers.
    """

    settings: deque[ConnectionSettings]
    group: str
    super_stream: str | None = None
    given: GroupReading = field(default_factory=GroupReading)
    addresses: Mapping[str, str] | None = None
    missing: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, DamagedReads] = field(default_factory=dict)
    failed_starts: Counter[str] = field(default_factory=Counter)
    loop_watch: LoopWatch = field(default_factory=LoopWatch)
    open_s: float = _OPEN_S

    def __post_init__(self) -> None:
        check_range(self.given.start, None, None)
        check_options(self.given)
        include = self.given.include
        self.include = include if isinstance(include, str) else tuple(include)
        schema_of(self.include)  # raises for unknown columns

    def open_any(self) -> StreamConnection:
        """Open a connection to any node."""
        settings = self.settings.copy()  # other threads connect meanwhile
        connection = open_any(settings, request_timeout_s=REQUEST_S)
        self.settings = settings  # a node that does not answer is the last
        return connection

    def open(self, stream: str, *, leader: bool = False, timeout_s: float = _OPEN_S) -> StreamConnection:
        """Open a connection to a member of a stream."""
        settings = self.settings.copy()
        connection = open_at(
            settings,
            stream,
            leader=leader,
            addresses=self.addresses,
            timeout_s=timeout_s,
            request_timeout_s=REQUEST_S,
            avoid=self.damage_of(stream).nodes,
        )
        self.settings = settings
        return connection

    def damage_of(self, stream: str) -> DamagedReads:
        """Return the reads of a damaged chunk of a stream."""
        return self.damaged.setdefault(stream, DamagedReads(stream))


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """What a handler gets over a channel: a batch of rows, or the election, which has no rows."""

    stream: str
    channel: StreamChannel
    rows: pa.RecordBatch | None = None
    attempt: int = 1

    @property
    def raiser(self) -> str:
        """What raises an error for it."""
        return "the handler" if self.rows is not None else "on_gained"

    @property
    def label(self) -> str:
        """The batch, for errors."""
        if self.rows is None:
            return ""
        offsets = self.rows["offset"]
        return f" for the offsets {offsets[0]} to {offsets[-1]}"


class SubscribedStream:
    """A subscription of a stream over a connection of its own, for one thread.

    Args:
        reading: how it is read.
        stream: the stream.
        start: where to start.
        properties: of the subscription.
    """

    def __init__(
        self,
        reading: GroupStreams,
        stream: str,
        start: OffsetSpec,
        properties: Mapping[str, str],
    ) -> None:
        self.updates: deque[ConsumerUpdate] = deque()
        self.connection = reading.open(stream, timeout_s=reading.open_s)
        self._reading = reading
        self._stream = stream
        self._subscription = StreamSubscription(stream)
        self._first = 0  # rows before this offset are not returned
        self._begin(start)
        try:
            self._subscription.begin(self.connection, start, {"chunk_selector": "all", **properties})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def answer(self, update: ConsumerUpdate, start: OffsetSpec) -> None:
        """Begin at `start` as the active consumer."""
        self._begin(start)
        self.connection.answer_consumer_update(update.correlation_id, start)
        if self._subscription.is_paused:
            self._subscription.resume()

    def drop(self) -> None:
        """Drop what was received: the next member reads it."""
        self._subscription.drop()

    def _begin(self, start: OffsetSpec) -> None:
        """Expect the first rows at `start`; if it is not an offset, at the first chunk."""
        self.progress = Progress(self._stream, count_missing=self._reading.given.on_missing == "count")
        self.progress.end = NEVER
        self._is_placed = isinstance(start, int)  # otherwise the first chunk tells the offset
        if isinstance(start, int):
            self.progress.next = self._first = start

    def poll(self, wait_s: float) -> None:
        """Receive what has arrived, and wait for it if nothing has; raise a ConnectionLostError if the subscription has ended."""
        subscription = self._subscription
        is_idle = not (subscription.waiting or subscription.pieces)
        if wait_s and is_idle:
            subscription.replenish()
        events = subscription.receive(wait_s if is_idle else 0.0)
        self.updates += [event for event in events if isinstance(event, ConsumerUpdate)]

    def batch(self) -> pa.RecordBatch | None:
        """Return the rows that have arrived; None without any. A damaged chunk is a lost connection until it was read several times."""
        try:
            return self._batch()
        except errors.DamagedChunkError as cause:
            damaged = self._reading.damage_of(self._stream)
            error = damaged.note(cause, self.progress.next, self.connection.node)
            if damaged.may_retry:
                raise errors.ConnectionLostError(f"{error}", queue=self._stream) from None
            raise error from None

    def _batch(self) -> pa.RecordBatch | None:
        found = list[Piece]()
        rows = 0
        size = 0
        waiting = self._subscription.waiting
        pieces_left = self._subscription.pieces

        while rows < BATCH_ROWS and (pieces_left or waiting):
            if not pieces_left:
                self._take_chunk()
                continue
            size += pieces_left[0].size
            if found and size > BATCH_BYTES:
                break
            found.append(pieces_left.popleft())
            rows += found[-1].records

        if not self._subscription.is_large:  # otherwise its successor would be there with it
            self._subscription.replenish()
        if not found:
            return None

        if size > BATCH_BYTES:  # a few large rows
            pa.default_memory_pool().release_unused()  # of the batch before
        end = found[-1].end
        batch = columns_in(_take_all(found), self._first, NEVER, self._reading.include)
        self._reading.damage_of(self._stream).forget_before(end)
        return batch if batch.num_rows else None

    def _take_chunk(self) -> None:
        progress = self.progress
        chunk = read_chunk(self._subscription.take())
        if not self._is_placed:
            self._is_placed = True
            progress.next = chunk.offset
            self._first = chunk.offset
        first = progress.next
        missing = progress.missing
        if progress.advance(chunk):
            self._subscription.pieces.extend(piece for piece in pieces(chunk) if piece.end > first)
        self._count_missing(missing)

    def skip_unstored(self, start: int, log_start: int) -> None:
        """Raise or count that rows before `start` may be missing, as no position is stored."""
        self._begin(start)
        self.progress.skip_unstored(self._reading.group, log_start)
        self._count_missing(0)

    def _count_missing(self, before: int) -> None:
        rows = self.progress.missing - before
        if rows:
            _log.warning(
                "stream %r: %d rows are missing: let retention keep them longer, or add members",
                self._stream,
                rows,
                extra={"queue": self._stream},
            )
            self._reading.missing[self._stream] += rows


def _take_all(pieces: list[Piece]) -> list[Piece]:
    """Return a copy of a list, and clear the list, so that the callee may free the pieces."""
    moved = pieces.copy()
    pieces.clear()
    return moved


class _Begin(NamedTuple):
    start: OffsetSpec | None


class _Done:
    """The batch was handled."""


class _StepDown:
    """What was delivered is handled or given up: let the broker elect the next member."""


class _End:
    """The thread ends."""


_Command: TypeAlias = _Begin | _Done | _StepDown | _End


class StreamChannel:
    """A subscription of a stream as a single active consumer, and the thread that reads it.

    Args:
        reading: how it is read.
        stream: the stream.
        take: is called with the election and each batch.
        on_passive: is called when the broker has made this subscription passive. `step_down` answers that.
        pause_s: seconds before it subscribes.
    """

    def __init__(
        self,
        reading: GroupStreams,
        stream: str,
        take: Callable[[DeliveredMessage], None],
        on_passive: Callable[[], None],
        pause_s: float,
    ) -> None:
        self.stream = stream
        self.take = take
        self.has_handled = False
        self.is_passive = False  # made so by the broker, and not answered yet
        self._reading = reading
        self._on_passive = on_passive
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self.subscribed: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._commands: queues.SimpleQueue[_Command] = queues.SimpleQueue()
        self._closed: Callable[[errors.RabbitChxError | None], None] | None = None
        self._error: errors.RabbitChxError | None = None
        # To be answered; of the thread.
        self._election: ConsumerUpdate | None = None
        self._passive: ConsumerUpdate | None = None
        self._stored: int | None = None  # what the broker has
        self._handled: int | None = None  # since the election
        thread = threading.Thread(target=self._run, name=f"rabbit_chx stream {stream}", daemon=True)
        start_thread(thread, f"stream {stream!r}")

    # -- called by the event loop

    @property
    def is_abandoned(self) -> bool:
        """True if it was not lost but abandoned."""
        return self._stop.is_set()

    @property
    def is_connected(self) -> bool:
        """True if it is subscribed."""
        return self.subscribed.done() and not self._ended.is_set()

    async def ack(self, tag: int) -> None:
        """Let the thread store the offset of the batch; tag 0 is the election."""
        if tag:
            self.has_handled = True
            self._commands.put(_Done())

    def begin(self, start: OffsetSpec | None) -> None:
        """Read from `start`; None for the offset after the stored one, or the start of the group."""
        self._commands.put(_Begin(start))

    def step_down(self, take: Callable[[DeliveredMessage], None]) -> None:
        """Let the thread store the offset of the handled rows, and the broker elect the next member. The subscription stays, and calls `take`."""
        self.take = take
        self.is_passive = False
        self._commands.put(_StepDown())

    async def abandon(self) -> None:
        """Store the offset of the handled rows and close the connection. After some seconds the thread does that alone."""
        self._stop.set()
        self._commands.put(_End())
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._ended.wait()

    def when_closed(self, call: Callable[[errors.RabbitChxError | None], None]) -> None:
        """Register a callback for the loss of the subscription."""
        self._closed = call
        if self._ended.is_set():
            call(self._error)

    def _on_ended(self, error: errors.RabbitChxError | None) -> None:
        self._error = error
        self._ended.set()
        if not self.subscribed.done():
            self.subscribed.set_exception(
                error or errors.ConnectionLostError(f"{self.stream!r} was abandoned")
            )
            self.subscribed.exception()  # nobody may wait for it
        elif self._closed is not None and not self._stop.is_set() and not self._reading.loop_watch.is_late:
            self._closed(error)  # otherwise the session ends anyway

    def _note_passive(self) -> None:
        self.is_passive = True
        self._on_passive()

    def _deliver(self, message: DeliveredMessage) -> None:
        self.take(message)

    # -- the thread

    def _run(self) -> None:
        error: errors.RabbitChxError | None = None
        try:
            self._stop.wait(self._pause_s)
            if not self._stop.is_set():
                self._read()
        except errors.RabbitChxError as cause:
            error = cause
            if isinstance(cause, errors.NotFoundError) and self.subscribed.done():  # it was deleted
                error = errors.ConnectionLostError(f"{cause}: subscribing again", queue=self.stream)
        except Exception as cause:  # noqa: BLE001  # a bug, which must not leave the stream without a reader
            _log.exception("stream %s: reading failed", self.stream, extra={"queue": self.stream})
            error = self._lost(f"reading failed: {typed_error_text(cause)}")
        call_in(self._loop, self._on_ended, error)

    def _read(self) -> None:
        properties = {"single-active-consumer": "true", "name": self._reading.group}
        if self._reading.super_stream is not None:
            properties["super-stream"] = self._reading.super_stream
        with closing(SubscribedStream(self._reading, self.stream, "next", properties)) as subscribed:
            call_in(self._loop, _set_done, self.subscribed)
            while self._await_election(subscribed):
                self._handled = None
                try:
                    self._be_active(subscribed)
                finally:
                    self._store_at_end(subscribed.connection)
                if not self._stop.is_set():
                    self._answer_passive(subscribed)

    def _await_election(self, subscribed: SubscribedStream) -> bool:
        """Wait until this consumer is elected; return False if the thread must end."""
        while not self._stop.is_set():
            self._check_loop()
            subscribed.poll(LOOK_S)
            while subscribed.updates:
                update = subscribed.updates.popleft()
                if update.is_active:
                    self._election = update
                    return True
                subscribed.connection.answer_consumer_update(update.correlation_id, None)
        return False

    def _answer_passive(self, subscribed: SubscribedStream) -> None:
        """Let the broker elect the next member, after everything that it has asked before is answered."""
        subscribed.drop()
        for update in (self._election, self._passive):
            if update is not None:
                subscribed.connection.answer_consumer_update(update.correlation_id, None)
        self._election = None
        self._passive = None

    def _be_active(self, subscribed: SubscribedStream) -> None:
        """Let the election be handled, and then each batch, until the thread must end, or the next member is to be elected."""
        election = StreamBatch(self.stream, self)
        attempt = 1 + self._reading.failed_starts[self.stream]
        call_in(self._loop, self._deliver, DeliveredMessage(0, "", election, attempt=attempt))
        command = self._next_command(subscribed)
        if not isinstance(command, _Begin):
            return
        start = self._start(subscribed, command.start)
        if self._must_step_down():
            # It asks for no rows before it has handed over.
            self._await_step_down(subscribed)
            return
        assert self._election is not None  # for mypy
        subscribed.answer(self._election, start)
        self._election = None
        self._deliver_batches(subscribed)

    def _must_step_down(self) -> bool:
        return self._passive is not None

    def _await_step_down(self, subscribed: SubscribedStream) -> None:
        while not isinstance(self._next_command(subscribed), _StepDown | _End):
            pass

    def _start(self, subscribed: SubscribedStream, start: OffsetSpec | None) -> int:
        self._stored = subscribed.connection.query_offset(self._reading.group, self.stream)
        log_start = 0
        is_unstored = start is None and self._stored is None
        origin = "as on_gained returned"

        if start is None:
            start = self._reading.given.start if self._stored is None else self._stored + 1
            origin = "as the group begins" if is_unstored else "after the offset that is stored for the group"

        what = "its leader to tell its end: look whether a majority of its nodes is up"
        with (
            waiting(f"stream {self.stream}", what),
            closing(self._reading.open(self.stream, leader=True)) as leader,
        ):
            finder = ChunkFinder(leader, REQUEST_S)
            deadline = time.monotonic() + _OPEN_S
            written = leader.stats(self.stream).get("last_chunk_id", -1)
            while True:
                committed = leader.stats(self.stream)["committed_chunk_id"]
                end = finder.end(self.stream)
                offset = start if isinstance(start, int) else finder.locate(self.stream, start, end)[0]
                # The end of a new leader is earlier until a majority has caught up with what it had first.
                is_known = committed >= written or time.monotonic() > deadline
                if offset <= end.offset or is_known or self._stop.is_set():
                    break
                self._stop.wait(LOOK_S)

            if is_unstored:
                log_start = log_start_without_position(finder, self.stream, start)

        if offset > end.offset and not self._stop.is_set():  # the broker would begin at the end
            raise errors.MissingRowsError(
                f"stream {self.stream!r} ends at offset {end.offset}, before the start, {offset}, {origin}: it was deleted and created again, "
                "its log was cut, or another program stored the offset; return from on_gained an offset that it has",
                queue=self.stream,
            )

        if log_start:
            subscribed.skip_unstored(offset, log_start)
        # Stored, so that the next member does not start after rows that this one has not handled.
        if not isinstance(start, int) and offset > 0 and self._stored is None:
            self._handled = offset - 1
            self._store_handled(subscribed.connection)
        return offset

    def _deliver_batches(self, subscribed: SubscribedStream) -> None:
        tag = 0
        while not self._stop.is_set():
            self._check_loop()
            subscribed.poll(LOOK_S)
            self._note_update(subscribed)
            if self._must_step_down():
                self._await_step_down(subscribed)
                return

            rows = subscribed.batch()
            if rows is None:
                continue

            for batch in self._parts(rows):
                tag += 1
                last = batch["offset"][-1].as_py()
                content = StreamBatch(self.stream, self, batch)
                call_in(self._loop, self._deliver, DeliveredMessage(tag, "", content))
                del batch, content
                if not isinstance(self._next_command(subscribed), _Done):
                    return
                self._handled = last
                self._store(subscribed)
                if self._must_step_down():
                    break

            rows = None  # so that two large batches are not there at a time

    def _parts(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        most = self._reading.given.batch_rows
        for first in range(0, rows.num_rows, most):
            yield rows.slice(first, most)

    def _note_update(self, subscribed: SubscribedStream) -> None:
        """Tell the event loop if the broker has made this consumer passive. It is answered once what was delivered is handled."""
        if subscribed.updates and self._passive is None:
            self._passive = subscribed.updates.popleft()
            call_in(self._loop, self._note_passive)

    def _next_command(self, subscribed: SubscribedStream) -> _Command:
        """Return the next command of the event loop, and look after the connection meanwhile."""
        while True:
            try:
                return self._commands.get(timeout=LOOK_S)
            except queues.Empty:
                self._check_loop()
                subscribed.poll(0.0)
                self._note_update(subscribed)

    def _check_loop(self) -> None:
        """Give up the stream if nobody handles its batches: the broker would leave it to this connection permanently."""
        watch = self._reading.loop_watch
        if watch.is_late:
            _log.warning(
                "%s is given up: the event loop has not answered for %g s (loop_timeout_s): run blocking code by asyncio.to_thread",
                self.stream,
                watch.timeout_s,
                extra={"queue": self.stream},
            )
            raise self._lost("the event loop does not answer")

    def _lost(self, why: str) -> errors.ConnectionLostError:
        return errors.ConnectionLostError(f"stream {self.stream!r}: {why}", queue=self.stream)

    def _store(self, subscribed: SubscribedStream) -> None:
        """Store the offset of the handled rows, and wait for an answer: a member whose connection is lost handles no further batch."""
        self._store_handled(subscribed.connection)
        subscribed.connection.query_offset(self._reading.group, self.stream)
        subscribed.poll(0.0)
        self._note_update(subscribed)

    def _store_handled(self, connection: StreamConnection) -> None:
        if self._handled is not None:
            connection.store_offset(self._reading.group, self.stream, self._handled)
            self._stored = self._handled

    def _store_at_end(self, connection: StreamConnection) -> None:
        """Store the last offset, and wait until the leader has it: the next member reads it there."""
        # If the connection is lost, the next member repeats the rows after the stored offset.
        with suppress(errors.RabbitChxError):
            for _ in range(_STORED_CHECKS):
                if self._handled is None:
                    return
                self._store_handled(connection)
                stored = connection.query_offset(self._reading.group, self.stream)
                if stored is not None and stored >= self._handled:
                    return
                time.sleep(LOOK_S)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function in the thread of the event loop, unless the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)

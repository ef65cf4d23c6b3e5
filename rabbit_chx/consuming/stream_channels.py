"""The adapter for streams: a connection and a thread for each stream, and two for the journal, all over the stream protocol.

The broker elects one subscription of each stream and group name, in the order of subscription, by a `ConsumerUpdate` that the client
answers with the offset to start at (rabbitmq-server v4.3.6, rabbit_stream_sac_coordinator.erl; tested with 4.0.5 and 4.3.6). A
subscription with the property ``super-stream`` would be elected by the number of members instead, which moves almost all streams when
a member joins.

The election is delivered like a message: it is handled once the claim is read, by calling the hook `on_gained`. The next messages are
batches of rows, each after the one before is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import queue as queues
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.checks import shown
from rabbit_chx.consuming.journal import JournalEntry
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    MismatchError,
    MissingRowsError,
    NotFoundError,
    PublishError,
    RabbitChxError,
)
from rabbit_chx.retry import Backoff
from rabbit_chx.streams import StreamPublisher
from rabbit_chx.streams.chunks import pieces, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.ends import ChunkFinder
from rabbit_chx.streams.frames import (
    ConsumerUpdate,
    CreditRefused,
    Delivery,
    OffsetSpec,
    StreamChanged,
    check_range,
)
from rabbit_chx.streams.nodes import open_any, open_at
from rabbit_chx.streams.rows import columns_in, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rabbit_chx.amqp import ConnectionSettings

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

#: The most rows and bytes of a batch; it ends with a chunk.
_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 << 20
#: The chunks in flight have at most about this size together.
_READ_AHEAD_BYTES = 8 << 20
_MAX_CREDIT = 128
#: The offset of handled rows is stored after so many rows or seconds, whichever comes first.
STORE_ROWS = 10_000
STORE_S = 1.0
#: Seconds between two looks at a connection while its thread waits.
_LOOK_S = 0.2
_END = 1 << 62  # after every offset
_REQUEST_S = 10.0
_OPEN_S = 60.0
#: Pauses before a lost stream is subscribed again, and before an entry is published again.
_AGAIN = Backoff(0.1, 5.0)
_REPUBLISH_S = 1.0
#: Seconds after which an unconfirmed entry counts as blocked.
_BLOCKED_S = 1.0
_CLOSE_S = 5.0
_STORED_CHECKS = 20
#: As the AMQP client declares it.
_JOURNAL_ARGUMENTS = {"max-length-bytes": "10000000", "stream-max-segment-size-bytes": "1000000"}
_SINCE = "3.11"
#: The beginning of the names of all connections of stream groups; the group, a dot and the member follow.
CONNECTION_NAME = "rabbit-chx.stream-group."


@dataclass(frozen=True)
class StreamReading:
    """How the streams of a group are read. `StreamGroup` documents the attributes; `missing` is counted for each stream."""

    settings: deque[ConnectionSettings]
    group: str
    start: OffsetSpec = "first"
    include: str | tuple[str, ...] = ()
    on_missing: Literal["raise", "count"] = "raise"
    addresses: Mapping[str, str] | None = None
    missing: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        check_range(self.start, None, None)
        if self.on_missing not in ("raise", "count"):
            raise InputError(f"on_missing is {shown(self.on_missing)}: give 'raise' or 'count'")
        schema_of(self.include)  # raises for unknown columns

    def open_any(self) -> StreamConnection:
        """Open a connection to any node."""
        return open_any(self.settings.copy(), request_timeout_s=_REQUEST_S)

    def open(self, stream: str, *, leader: bool = False) -> StreamConnection:
        """Open a connection to a member of a stream."""
        return open_at(
            self.settings.copy(),
            stream,
            leader=leader,
            addresses=self.addresses,
            timeout_s=_OPEN_S,
            request_timeout_s=_REQUEST_S,
        )


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """What a handler gets: a batch of rows, or the election, which has no rows but the channel that won it."""

    stream: str
    rows: pa.RecordBatch | None = None
    won: StreamChannel | None = None
    generation: int | None = None
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


class _Feed:
    """A subscription of a stream over a connection of its own, for one thread."""

    def __init__(
        self, reading: StreamReading, stream: str, start: OffsetSpec, properties: Mapping[str, str]
    ) -> None:
        self.updates: deque[ConsumerUpdate] = deque()
        self.connection = reading.open(stream)
        self._reading = reading
        self._stream = stream
        self._chunks: deque[memoryview] = deque()
        self._next = start if isinstance(start, int) else None  # None before the first chunk
        self._has_chunk = False
        self._credit = self._limit = 1
        try:
            # The broker waits for more than half of the first credit, so that is 1.
            self.connection.subscribe(0, stream, start, 1, {"chunk_selector": "all", **properties})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.connection.close()

    def answer(self, update: ConsumerUpdate, start: OffsetSpec) -> None:
        """Begin at `start` as the active consumer."""
        self._next = start if isinstance(start, int) else None
        self.connection.answer_consumer_update(update.correlation_id, start)

    def poll(self, wait_s: float) -> None:
        """Receive what has arrived, and wait for it if nothing has; raise a ConnectionLostError if the subscription has ended."""
        for event in self.connection.events(0.0 if self._chunks else wait_s):
            match event:
                case Delivery(_, data):
                    self._chunks.append(data)
                    self._credit -= 1
                case ConsumerUpdate():
                    self.updates.append(event)
                case StreamChanged() | CreditRefused():
                    raise ConnectionLostError(
                        f"{self.connection.where}: the broker has ended the subscription of stream {self._stream!r}: the stream is "
                        "deleted, or its replica or leader has changed",
                        queue=self._stream,
                    )
                case _:
                    pass

    def batch(self) -> pa.RecordBatch | None:
        """Return the rows that have arrived; None without any."""
        found, rows, size, largest, start = [], 0, 0, 1, self._next
        while self._chunks and rows < _BATCH_ROWS and size < _BATCH_BYTES:
            data = self._chunks.popleft()
            chunk = read_chunk(data)
            size, largest = size + len(data), max(largest, len(data))
            start = chunk.offset if start is None else start
            if self._advance(chunk.offset, chunk.end) and chunk.kind == "user":
                parts = [piece for piece in pieces(chunk) if piece.end > start]
                found += parts
                rows += sum(piece.records for piece in parts)
        limit = min(max(1, _READ_AHEAD_BYTES // largest), _MAX_CREDIT, 2 * self._limit)
        if size and self._credit + len(self._chunks) <= limit // 2:
            self.connection.give_credit(0, limit - self._credit - len(self._chunks))
            self._credit, self._limit = limit - len(self._chunks), limit
        if not rows:
            return None
        batch = columns_in(found, start or 0, _END, self._reading.include)
        return batch if batch.num_rows else None

    def _advance(self, begin: int, end: int) -> bool:
        """Advance past a chunk; return whether it has new rows."""
        following, is_first = begin if self._next is None else self._next, not self._has_chunk
        self._has_chunk = True
        if end <= following:
            if is_first and end < following:
                raise MissingRowsError(
                    f"stream {self._stream!r} ends before offset {following}, where the reading starts: it was deleted and created again, "
                    "or its log was cut; start at an offset that it has",
                    queue=self._stream,
                )
            return False
        if begin > following:
            message = f"stream {self._stream!r} does not have the offsets {following} to {begin - 1} any more"
            if self._reading.on_missing == "raise":
                raise MissingRowsError(
                    f"{message}: retention has removed them, or its log was cut; give on_missing='count', or start after them",
                    queue=self._stream,
                    offsets=range(following, begin),
                )
            _log.warning("%s; %d rows are missing", message, begin - following)
            self._reading.missing[self._stream] += begin - following
        self._next = end
        return True


class _Confirm(NamedTuple):
    done: asyncio.Future[None]


class _Begin(NamedTuple):
    start: OffsetSpec | None


class _Done(NamedTuple):
    """The batch was handled; or, as None, the thread ends."""


class StreamChannel:
    """A subscription of a stream as a single active consumer, and the thread that reads it."""

    def __init__(
        self, reading: StreamReading, stream: str, take: Callable[[DeliveredMessage], None], pause_s: float
    ) -> None:
        self.stream = stream
        self.is_active = False  # elected
        self.has_handled = False
        self._reading = reading
        self._take = take
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self.subscribed: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._commands: queues.SimpleQueue[_Confirm | _Begin | _Done | None] = queues.SimpleQueue()
        self._closed: Callable[[RabbitChxError | None], None] | None = None
        self._error: RabbitChxError | None = None
        self._stored: int | None = None  # what the broker has
        self._handled: int | None = None
        self._stored_at = 0.0
        threading.Thread(target=self._run, name=f"rabbit_chx stream {stream}", daemon=True).start()

    # -- called by the event loop

    @property
    def is_abandoned(self) -> bool:
        """True if it was not lost but abandoned."""
        return self._stop.is_set()

    async def ack(self, tag: int) -> None:
        """Let the thread store the offset of the batch; tag 0 is the election."""
        if tag:
            self.has_handled = True
            self._commands.put(_Done())

    async def confirm(self) -> None:
        """Wait for a reply of the broker over this connection: it had not closed it when the claim was read."""
        done = self._loop.create_future()
        self._commands.put(_Confirm(done))
        await done

    def begin(self, start: OffsetSpec | None) -> None:
        """Read from `start`; None for the offset after the stored one, or the start of the group."""
        self._commands.put(_Begin(start))

    async def abandon(self) -> None:
        """Store the offset of the handled rows and close the connection. After some seconds the thread does that alone."""
        self._stop.set()
        self._commands.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._ended.wait()

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Register a callback for the loss of the subscription."""
        self._closed = call
        if self._ended.is_set():
            call(self._error)

    def _on_ended(self, error: RabbitChxError | None) -> None:
        self._error = error
        self._ended.set()
        if not self.subscribed.done():
            self.subscribed.set_exception(error or ConnectionLostError(f"{self.stream!r} was abandoned"))
            self.subscribed.exception()  # nobody may wait for it
        elif self._closed is not None and not self._stop.is_set():
            self._closed(error)

    # -- the thread

    def _run(self) -> None:
        error: RabbitChxError | None = None
        try:
            self._stop.wait(self._pause_s)
            if not self._stop.is_set():
                self._read()
        except RabbitChxError as cause:
            error = cause
        except Exception as cause:  # noqa: BLE001  # a bug, which must not leave the stream without a reader
            _log.exception("stream %s: reading failed", self.stream)
            error = ConnectionLostError(
                f"stream {self.stream!r}: reading failed: {cause!r}", queue=self.stream
            )
        _call_in(self._loop, self._on_ended, error)

    def _read(self) -> None:
        properties = {"single-active-consumer": "true", "name": self._reading.group}
        with closing(_Feed(self._reading, self.stream, "next", properties)) as feed:
            _call_in(self._loop, self._on_subscribed)
            update = self._await_election(feed)
            if update is None:
                return
            start = self._await_begin(feed)
            if start is None:
                return
            feed.answer(update, start)
            try:
                self._deliver_batches(feed)
            finally:
                self._store_at_end(feed.connection)

    def _on_subscribed(self) -> None:
        if not self.subscribed.done():
            self.subscribed.set_result(None)

    def _await_election(self, feed: _Feed) -> ConsumerUpdate | None:
        """Return the update that makes this consumer active; None if the thread must end."""
        while not self._stop.is_set():
            feed.poll(_LOOK_S)
            while feed.updates:
                update = feed.updates.popleft()
                if update.is_active:
                    self.is_active = True
                    return update
                feed.connection.answer_consumer_update(update.correlation_id, None)
        return None

    def _await_begin(self, feed: _Feed) -> OffsetSpec | None:
        """Let the election be handled; return where to start, None if the thread must end."""
        _call_in(self._loop, self._take, DeliveredMessage(0, "", StreamBatch(self.stream, won=self)))
        while (command := self._next_command(feed)) is not None:
            if isinstance(command, _Confirm):
                self._stored = feed.connection.query_offset(self._reading.group, self.stream)
                _call_in(self._loop, _set_done, command.done)
            elif isinstance(command, _Begin):
                return self._start(feed, command.start)
        return None

    def _start(self, feed: _Feed, start: OffsetSpec | None) -> OffsetSpec:
        if start is None and self._stored is not None:
            return self._stored + 1
        start = self._reading.start if start is None else start
        if start in ("next", "last") or isinstance(start, int):
            with closing(self._reading.open(self.stream, leader=True)) as leader:
                finder = ChunkFinder(leader, _REQUEST_S)
                end = finder.end(self.stream)
                if isinstance(start, int):
                    if start > end.offset:
                        raise MissingRowsError(
                            f"stream {self.stream!r} ends at offset {end.offset}, before the start, {start}: it was deleted and created "
                            "again, or its log was cut; start at an offset that it has",
                            queue=self.stream,
                        )
                    return start
                start, _ = finder.locate(self.stream, start, end)
            # Stored, so that the next member does not start after rows that this one has not handled.
            if start > 0 and self._stored is None:
                self._handled = start - 1
                self._store(feed.connection)
        return start

    def _deliver_batches(self, feed: _Feed) -> None:
        tag = 0
        while not self._stop.is_set():
            feed.poll(_LOOK_S)
            if feed.updates:
                feed.connection.answer_consumer_update(feed.updates.popleft().correlation_id, None)
                raise ConnectionLostError(
                    f"stream {self.stream!r}: the broker has made another member active", queue=self.stream
                )
            rows = feed.batch()
            if rows is not None:
                tag += 1
                _call_in(self._loop, self._take, DeliveredMessage(tag, "", StreamBatch(self.stream, rows)))
                if self._next_command(feed) is None:
                    return
                self._handled = rows["offset"][-1].as_py()
            self._store_if_due(feed.connection)

    def _next_command(self, feed: _Feed) -> _Confirm | _Begin | _Done | None:
        """Return the next command of the event loop, and look after the connection meanwhile."""
        while True:
            try:
                return self._commands.get(timeout=_LOOK_S)
            except queues.Empty:
                feed.poll(0.0)

    def _store_if_due(self, connection: StreamConnection) -> None:
        if self._handled is None or self._handled == self._stored:
            return
        rows = STORE_ROWS if self._stored is None else self._handled - self._stored
        if rows >= STORE_ROWS or time.monotonic() - self._stored_at >= STORE_S:
            self._store(connection)

    def _store(self, connection: StreamConnection) -> None:
        if self._handled is not None:
            connection.store_offset(self._reading.group, self.stream, self._handled)
            self._stored, self._stored_at = self._handled, time.monotonic()

    def _store_at_end(self, connection: StreamConnection) -> None:
        """Store the last offset, and wait until the leader has it: the next member reads it there."""
        with suppress(
            RabbitChxError
        ):  # a lost connection: the next member repeats the rows after the stored offset
            for _ in range(_STORED_CHECKS):
                if self._handled is None:
                    return
                self._store(connection)
                stored = connection.query_offset(self._reading.group, self.stream)
                if stored is not None and stored >= self._handled:
                    return
                time.sleep(_LOOK_S)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _JournalChannel:
    """The thread that reads the journal. It connects again after a loss, for at most `patience_s` seconds."""

    def __init__(
        self,
        reading: StreamReading,
        journal: str,
        since_s: float,
        take: Callable[[int, JournalEntry], None],
        patience_s: float,
    ) -> None:
        self._reading = reading
        self._journal = journal
        self._position: OffsetSpec = datetime.fromtimestamp(since_s, UTC)
        self._take = take
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._closed: Callable[[RabbitChxError | None], None] | None = None
        threading.Thread(target=self._run, name="rabbit_chx journal", daemon=True).start()

    async def abandon(self) -> None:
        """Let the thread end."""
        self._stop.set()

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Register a callback for an error that ends the thread."""
        self._closed = call

    def _run(self) -> None:
        lost_at: float | None = None
        while not self._stop.is_set():
            try:
                with closing(_Feed(self._reading, self._journal, self._position, {})) as feed:
                    lost_at = None
                    self._read(feed)
            except RabbitChxError as error:
                lost_at = lost_at or time.monotonic()
                if not is_transient(error) or time.monotonic() - lost_at > self._patience_s:
                    _call_in(self._loop, self._on_error, error)
                    return
                _log.info("%s; reading the journal again", error)
                self._stop.wait(_LOOK_S)

    def _read(self, feed: _Feed) -> None:
        while not self._stop.is_set():
            feed.poll(_LOOK_S)
            rows = feed.batch()
            if rows is None:
                continue
            bodies: Any = rows["value"].to_pylist()
            offsets: Any = rows["offset"].to_pylist()
            entries = [
                (offset, entry)
                for offset, body in zip(offsets, bodies, strict=True)
                if (entry := JournalEntry.from_json(body, self._reading.group)) is not None
            ]
            self._position = offsets[-1] + 1
            _call_in(self._loop, self._on_entries, entries)

    def _on_entries(self, entries: list[tuple[int, JournalEntry]]) -> None:
        for offset, entry in entries:
            if not self._stop.is_set():
                self._take(offset, entry)

    def _on_error(self, error: RabbitChxError) -> None:
        if self._closed is not None and not self._stop.is_set():
            self._closed(error)


class StreamGroupConnection:
    """The connections of a member of a `StreamGroup`: one for each stream, and two for the journal."""

    channels_fail_alone = True

    def __init__(self, reading: StreamReading, patience_s: float) -> None:
        self.where = reading.settings[0].masked_url
        self._reading = reading
        self._patience_s = patience_s
        self._losses: dict[str, int] = {}  # of each stream, since it last handled a batch
        self._channels: dict[str, StreamChannel] = {}
        self._journal: _JournalChannel | None = None
        self._writing = asyncio.Lock()
        self._publisher_lock = threading.Lock()  # a thread may still publish after its task was cancelled
        self._publisher: StreamPublisher | None = None
        self._publishing_since: float | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, reading: StreamReading, patience_s: float) -> Self:
        """Connect; an InputError if the broker has no single active consumer of streams."""

        def check() -> None:
            with closing(reading.open_any()) as connection:
                if not connection.commands:  # exchanged from 3.11 on
                    raise InputError(
                        f"{connection.where}: RabbitMQ {connection.server_version} has no single active consumer of streams, by which a "
                        f"StreamGroup shares them: upgrade to {_SINCE} or newer, or read each stream with one StreamReader"
                    )

        await in_thread(check)
        return cls(reading, patience_s)

    async def close(self) -> None:
        """Close the connections. The threads end within seconds."""
        self._is_closed = True
        if self._journal is not None:
            await self._journal.abandon()
        await asyncio.gather(*(channel.abandon() for channel in self._channels.values()))
        _in_background(self._close_publisher)

    # -- streams

    async def find_streams(self, streams: Sequence[str], super_stream: str | None) -> tuple[str, ...]:
        """Return these streams, or the partitions of the super stream; a NotFoundError if one does not exist."""

        def find() -> tuple[str, ...]:
            with closing(self._reading.open_any()) as connection:
                found = tuple(streams) if super_stream is None else connection.partitions(super_stream)
                connection.metadata(found)
                return found

        return await in_thread(find)

    async def consume_behind(
        self,
        queue: str,
        priority: int,  # noqa: ARG002  # streams have no priorities
        prefetch: int,  # noqa: ARG002
        tag: str,  # noqa: ARG002
        take: Callable[[DeliveredMessage], None],
    ) -> StreamChannel:
        """Subscribe to a stream after all present subscriptions of the group, and call `take` with the election and each batch."""
        before = self._channels.get(queue)
        losses = (
            0 if before is None or before.has_handled or before.is_abandoned else self._losses.get(queue, 0)
        )
        while True:
            channel = self._channels[queue] = StreamChannel(
                self._reading, queue, take, _AGAIN.delay_s(losses - 1) if losses else 0.0
            )
            losses += 1
            self._losses[queue] = losses
            try:
                await asyncio.shield(channel.subscribed)
            except asyncio.CancelledError:
                await channel.abandon()
                raise
            except RabbitChxError as error:
                if not is_transient(error) or self._is_closed:
                    raise
                _log.warning("%s; subscribing again", error)
            else:
                return channel

    async def abandon(self, channel: StreamChannel) -> None:
        """Store the offset of the handled rows, and end the subscription."""
        await channel.abandon()

    async def ready_count(self, queue: str) -> int:
        """Return the number of offsets after the stored one, for a stream of which the broker has not elected this member; else 0."""
        channel = self._channels.get(queue)
        if channel is None or channel.is_active:
            return 0

        def count() -> int:
            with closing(self._reading.open(queue, leader=True)) as connection:
                stored = connection.query_offset(self._reading.group, queue)
                return (
                    ChunkFinder(connection, _REQUEST_S).end(queue).offset
                    - (-1 if stored is None else stored)
                    - 1
                )

        with suppress(RabbitChxError):
            return max(0, await in_thread(count))
        return 0

    # -- the journal

    async def read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry], None]
    ) -> _JournalChannel:
        """Read the journal from `since_s` on, in seconds since 1970. It is created if it does not exist."""
        try:
            await in_thread(lambda: self._create_journal(journal))
        except AccessRefusedError as refusal:
            raise AccessRefusedError(
                f"{refusal}. The group's journal is the stream {journal!r}: the user needs the permissions read and write on it, and "
                "configure where it does not exist yet",
                queue=journal,
                reply_code=refusal.reply_code,
            ) from None
        self._journal = _JournalChannel(self._reading, journal, since_s, take, self._patience_s)
        return self._journal

    def _create_journal(self, journal: str) -> None:
        with closing(self._reading.open_any()) as connection:
            try:
                connection.metadata([journal])
            except NotFoundError:
                with suppress(MismatchError):  # another member was faster
                    connection.create_stream(journal, _JOURNAL_ARGUMENTS)

    async def publish(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,  # noqa: ARG002  # only slot hand-overs have any
    ) -> None:
        """Publish an entry, and repeat it until the broker has confirmed it. It may be stored twice."""
        async with self._writing:
            self._publishing_since = time.monotonic()
            try:
                while True:
                    try:
                        await in_thread(lambda: self._publish(queue, body))
                    except RabbitChxError as error:
                        cause = error.__cause__ if isinstance(error, PublishError) else error
                        assert isinstance(cause, RabbitChxError)  # noqa: S101  # for mypy
                        if not (isinstance(cause, BrokerTimeoutError) or is_transient(cause)):
                            raise
                        _log.info("%s; publishing to %s again in %g s", cause, queue, _REPUBLISH_S)
                        await asyncio.sleep(_REPUBLISH_S)
                    else:
                        return
            finally:
                self._publishing_since = None

    def _publish(self, journal: str, body: bytes) -> None:
        with self._publisher_lock:
            if self._is_closed:
                raise ConnectionLostError(f"{self.where}: the connection is closed")
            if self._publisher is None:
                self._publisher = StreamPublisher(
                    list(self._reading.settings),
                    stream=journal,
                    addresses=self._reading.addresses,
                    confirm_timeout_s=_REQUEST_S,
                    reconnect_timeout_s=_REQUEST_S,
                )
            self._publisher.publish_many([journal], [body])

    def _close_publisher(self) -> None:
        with self._publisher_lock:
            if self._publisher is not None:
                self._publisher.close()

    async def is_blocked(self) -> bool:
        """Return whether an entry is not confirmed: during an alarm, or without a majority of the journal's nodes."""
        since = self._publishing_since
        return since is not None and time.monotonic() - since > _BLOCKED_S


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    with suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(function, *args)


def _in_background(function: Callable[[], object]) -> None:
    threading.Thread(target=function, daemon=True).start()


async def in_thread(function: Callable[[], _T]) -> _T:
    """Return the result of a blocking function. Its thread does not keep the process alive, unlike those of `asyncio.to_thread`."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(value: Callable[[], None]) -> None:
        if not result.done():
            value()

    def call() -> None:
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001  # raised in the event loop
            failure = error
            _call_in(loop, settle, lambda: result.set_exception(failure))
        else:
            _call_in(loop, settle, lambda: result.set_result(value))

    _in_background(call)
    return await result

"""The connections of a member of a `StreamGroup`, all over the stream protocol: one for each stream, and two for the journal."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from rabbit_chx.amqp.replies import is_transient, may_be_limit
from rabbit_chx.connection.failures import call_in_thread, start_thread
from rabbit_chx.consuming.journal import JournalEntry, entries_in
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.consuming.stream_channels import (
    LOOK_S,
    REQUEST_S,
    Feed,
    StreamChannel,
    StreamReading,
    call_in,
)
from rabbit_chx.consuming.waits import wait_to_publish, waiting
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
    UnreachableError,
)
from rabbit_chx.retry import Backoff
from rabbit_chx.streams import StreamPublisher, WriteLimits
from rabbit_chx.streams.chunks import Fingerprint
from rabbit_chx.streams.ends import ChunkFinder
from rabbit_chx.streams.frames import Code, OffsetSpec
from rabbit_chx.streams.progress import Progress
from rabbit_chx.words import typed_error_text

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

#: Pauses before a lost stream is subscribed again.
_AGAIN = Backoff(0.1, 5.0)
#: Seconds in which a stream that was deleted may be created again.
_RECREATED_S = 10.0
#: Seconds after which an unconfirmed entry extends time limits.
_BLOCKED_S = 1.0
#: The least time for the first connection to the journal.
_FIRST_OPEN_S = 5.0
#: Seconds that `close` waits for the threads. They end alone.
_CLOSE_S = 2.0
#: As the AMQP client declares it.
_JOURNAL_ARGUMENTS = {"max-length-bytes": "10000000", "stream-max-segment-size-bytes": "1000000"}
_SINCE = "3.11"
_WHAT = "a StreamGroup"


def _explain(error: RabbitChxError, journal: str) -> RabbitChxError:
    """Return an error of the journal: one after which a new session creates it again, or with the permissions that it needs."""
    if isinstance(error, MissingRowsError | NotFoundError):
        return ConnectionLostError(f"{error}; the journal {journal!r} was deleted", queue=journal)
    if not isinstance(error, AccessRefusedError):
        return error
    return error.reworded(
        f"{error}. The group's journal is the stream {journal!r}: the user needs the permissions read and write on it, and configure "
        "where it does not exist yet",
        queue=journal,
    )


class JournalChannel:
    """The thread that reads the journal. It tries for at most `reconnect_s` seconds to connect again after a loss.

    `lost_at` is the time of the present loss, by ``time.monotonic()``; None while it is connected.
    """

    def __init__(
        self,
        reading: StreamReading,
        journal: str,
        since_s: float,
        take: Callable[[int, JournalEntry | None], None],
        reconnect_s: float,
    ) -> None:
        self._reading = reading
        self._journal = journal
        self._position: OffsetSpec = datetime.fromtimestamp(since_s, UTC)
        self._last: Fingerprint | None = None  # of the last chunk that was read
        self._take = take
        self._reconnect_s = reconnect_s
        self.lost_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._closed: Callable[[RabbitChxError | None], None] | None = None
        thread = threading.Thread(target=self._run, name="rabbit_chx journal", daemon=True)
        start_thread(thread, f"the journal {journal!r}")

    async def abandon(self) -> None:
        """Let the thread end."""
        self._stop.set()

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Register a callback for an error that ends the thread."""
        self._closed = call

    def _run(self) -> None:
        while not self._stop.is_set():
            left_s = self._left_s()
            try:
                with waiting(f"the journal {self._journal}", "a connection: look whether its nodes are up"):
                    self._check_log(left_s)
                    feed = Feed(
                        self._reading, self._journal, self._position, {}, open_s=left_s, is_lenient=True
                    )
                with closing(feed):
                    self.lost_at = None
                    self._read(feed)
            except RabbitChxError as error:
                self.lost_at = self.lost_at or time.monotonic()
                if not is_transient(error) or not self._left_s():
                    call_in(self._loop, self._on_error, error)
                    return
                _log.info("%s; reading the journal again", error)
                self._stop.wait(LOOK_S)
            except Exception as cause:  # noqa: BLE001  # a bug, after which a new session begins
                _log.exception("reading the journal failed")
                failed = ConnectionLostError(
                    f"the journal {self._journal!r}: reading failed: {typed_error_text(cause)}"
                )
                call_in(self._loop, self._on_error, failed)
                return

    def _left_s(self) -> float:
        """Return the seconds in which it may still connect again."""
        if self.lost_at is None:  # also without reconnects a first connection takes a moment
            return max(self._reconnect_s, _FIRST_OPEN_S)
        return max(0.0, self.lost_at + self._reconnect_s - time.monotonic())

    def _check_log(self, open_s: float) -> None:
        """Check that the journal has what was read: the broker would move a start after its end to the end, and no entry would be new."""
        if self._last is None or not isinstance(self._position, int):
            return
        with closing(self._reading.open(self._journal, leader=True, timeout_s=open_s)) as leader:
            finder = ChunkFinder(leader, REQUEST_S)
            end = finder.end(self._journal).offset
            if end < self._position:  # for a moment also that of a new leader
                raise ConnectionLostError(
                    f"{leader.where}: the journal {self._journal!r} ends at offset {end}, and was read up to {self._position}",
                    queue=self._journal,
                )
            found = finder.chunk_at(self._journal, self._last.offset)
            Progress(self._journal, count_missing=False).check_chunk(self._last, found, end)

    def _read(self, feed: Feed) -> None:
        while not self._stop.is_set():
            feed.poll(LOOK_S)
            rows = feed.batch()
            if feed.unreadable:
                call_in(self._loop, self._on_entries, [(offset, None) for offset in feed.unreadable])
                feed.unreadable.clear()
            if rows is None:
                continue
            bodies: Any = rows["value"].to_pylist()
            offsets: Any = rows["offset"].to_pylist()
            entries = [
                (offset, entry)
                for offset, body in zip(offsets, bodies, strict=True)
                for entry in entries_in(body, self._reading.group)
            ]
            self._position, self._last = offsets[-1] + 1, feed.progress.last
            call_in(self._loop, self._on_entries, entries)

    def _on_entries(self, entries: list[tuple[int, JournalEntry | None]]) -> None:
        for offset, entry in entries:
            if not self._stop.is_set():
                self._take(offset, entry)

    def _on_error(self, error: RabbitChxError) -> None:
        if self._closed is not None and not self._stop.is_set():
            self._closed(_explain(error, self._journal))


class StreamGroupConnection:
    """The connections of a member of a `StreamGroup`: one for each stream, and two for the journal."""

    channels_fail_alone = True
    ends_alarms = False  # handled rows stay in their stream

    def __init__(self, reading: StreamReading, reconnect_s: float) -> None:
        self.where = reading.settings[0].masked_url
        self._reading = reading
        self._reconnect_s = reconnect_s
        self._losses: dict[str, int] = {}  # of each stream, since it last handled a batch
        self._channels: dict[str, StreamChannel] = {}
        self._journal: JournalChannel | None = None
        self._writing = asyncio.Lock()
        self._publisher_lock = threading.Lock()  # a thread may still publish after its task was cancelled
        self._publisher: StreamPublisher | None = None
        self._publishing_since: float | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, reading: StreamReading, reconnect_s: float) -> Self:
        """Connect; an InputError if the broker has no single active consumer of streams."""

        def check() -> None:
            with closing(reading.open_any()) as connection:
                if not connection.commands:  # exchanged from 3.11 on
                    raise InputError(
                        f"{connection.where}: RabbitMQ {connection.server_version} has no single active consumer of streams, by which a "
                        f"StreamGroup shares them: upgrade to {_SINCE} or newer, or read each stream with one StreamReader"
                    )

        await in_thread(check)
        return cls(reading, reconnect_s)

    async def close(self) -> None:
        """Close the connections. The threads end within seconds."""
        self._is_closed = True
        if self._journal is not None:
            await self._journal.abandon()
        with suppress(UnreachableError):  # no thread is left, and the process closes it
            call_in_thread(self._close_publisher, _WHAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(channel.abandon() for channel in self._channels.values()))

    @property
    def lost_at(self) -> float | None:
        """When the journal was lost, by ``time.monotonic()``; None while it is read."""
        return None if self._journal is None else self._journal.lost_at

    # -- streams

    async def find_streams(self, streams: Sequence[str], super_stream: str | None) -> tuple[str, ...]:
        """Return these streams, or the partitions of the super stream; a NotFoundError if one does not exist."""

        def find() -> tuple[str, ...]:
            with closing(self._reading.open_any()) as connection:
                found = tuple(streams) if super_stream is None else connection.partitions(super_stream)
                connection.metadata(found)
                return found

        try:
            return await in_thread(find)
        except AccessRefusedError as refusal:
            needed = "A StreamGroup needs the permission read on its streams, and on the super stream"
            raise refusal.reworded(f"{refusal}. {needed}") from None

    async def consume_behind(
        self, queue: str, _priority: int, _prefetch: int, _tag: str, take: Callable[[DeliveredMessage], None]
    ) -> StreamChannel:
        """Subscribe to a stream after all present subscriptions of the group, and call `take` with the election and each batch.

        Only queues have priorities, a prefetch and tags. A stream that was deleted may be created again within some seconds.
        """
        before = self._channels.get(queue)
        losses = 0
        if before is not None and not (before.has_handled or before.is_abandoned):
            losses = self._losses.get(queue, 0)
        missing_since: float | None = None
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
                now = time.monotonic()
                missing_since = (missing_since or now) if isinstance(error, NotFoundError) else None
                is_awaited = missing_since is not None and now - missing_since < _RECREATED_S
                if not (is_transient(error) or is_awaited) or self._is_closed:
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
                end = ChunkFinder(connection, REQUEST_S).end(queue).offset
                return end if stored is None else end - stored - 1

        with suppress(RabbitChxError):
            return max(0, await in_thread(count))
        return 0

    # -- the journal

    async def read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry | None], None]
    ) -> JournalChannel:
        """Read the journal as `GroupConnection.read_journal` does."""
        try:
            await in_thread(lambda: self._create_journal(journal))
        except AccessRefusedError as refusal:
            raise _explain(refusal, journal) from None
        self._journal = JournalChannel(self._reading, journal, since_s, take, self._reconnect_s)
        return self._journal

    def _create_journal(self, journal: str) -> None:
        with closing(self._reading.open_any()) as connection:
            try:
                connection.metadata([journal])
            except UnreachableError as error:
                # The stream exists: another member has just created it, or its nodes are down. Its reader waits for them.
                if error.reply_code != Code.STREAM_NOT_AVAILABLE:
                    raise
            except NotFoundError:
                with suppress(MismatchError):  # another member was faster
                    connection.create_stream(journal, _JOURNAL_ARGUMENTS)

    async def publish(self, queue: str, body: bytes, _headers: Mapping[str, Any] | None = None) -> None:
        """Publish an entry, and repeat it until the broker has confirmed it. It may be stored twice. Only slot hand-overs have headers."""
        failures = 0
        async with self._writing:
            self._publishing_since = time.monotonic()
            try:
                while True:
                    try:
                        await in_thread(lambda: self._publish(queue, body))
                    except RabbitChxError as error:
                        cause = error.__cause__ if isinstance(error, PublishError) else error
                        assert isinstance(cause, RabbitChxError)  # for mypy
                        if isinstance(cause.__cause__, RabbitChxError) and may_be_limit(cause.__cause__):
                            # No alarm, which ends by itself: the next session is the one that may find a connection free, or gives up.
                            raise cause.__cause__ from None
                        # During a disk alarm the broker refuses new publishers with PRECONDITION_FAILED (tested with 4.3.6).
                        is_alarm = cause.reply_code == Code.PRECONDITION_FAILED
                        if not (is_alarm or isinstance(cause, BrokerTimeoutError) or is_transient(cause)):
                            raise _explain(cause, queue) from None
                        failures += 1
                        await wait_to_publish(failures, cause, queue)
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
                    limits=WriteLimits(confirm_timeout_s=REQUEST_S, reconnect_timeout_s=REQUEST_S),
                )
            self._publisher.publish_many([journal], [body])

    def _close_publisher(self) -> None:
        with self._publisher_lock:
            if self._publisher is not None:
                self._publisher.close()

    async def is_blocked(self) -> bool:
        """Return whether an entry is not confirmed for a second. Why, the broker does not say."""
        since = self._publishing_since
        return since is not None and time.monotonic() - since > _BLOCKED_S


async def in_thread(function: Callable[[], _T]) -> _T:
    """Return the result of a blocking function. Its thread does not keep the process alive, unlike those of `asyncio.to_thread`."""
    return await asyncio.wrap_future(call_in_thread(function, _WHAT))

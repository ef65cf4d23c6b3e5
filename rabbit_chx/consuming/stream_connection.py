"""The connections of a member of a `StreamGroup`, over the stream protocol: one for each stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Self, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import is_transient, may_be_limit
from rabbit_chx.connection.failures import call_in_thread
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.consuming.stream_channels import GroupStreams, StreamChannel
from rabbit_chx.errors import AccessRefusedError, InputError, NotFoundError, RabbitChxError
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.retry import Backoff
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code
from rabbit_chx.streams.log_lookup import ChunkFinder
from rabbit_chx.streams.nodes import open_at, settings_of

_HEARTBEAT_S = 10  # the default if the URL has none
#: Also without reconnects a connection takes a moment.
_LEAST_OPEN_S = 5.0
#: The broker closes the connection of an elected consumer that does not say within 60 s where to start (tested with 4.3.6).
_MAX_HOOK_S = 50.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

#: Pauses before a lost stream is subscribed again.
_AGAIN = Backoff(0.1, 5.0)
#: Seconds in which a stream that was deleted may be created again.
_RECREATED_S = 10.0
#: Seconds that `close` waits for the threads. They end alone.
_CLOSE_S = 2.0
_SINCE = "3.11"
_WHAT = "a StreamGroup"


class StreamGroupConnection:
    """The connections of a member of a `StreamGroup`, one for each stream.

    Args:
        reading: how the streams are read.
        reconnect_s: seconds after which the error of a stream ends all, if none is subscribed.

    Attributes:
        on_passive: is called with a stream of which the broker is about to elect another member.
    """

    channels_fail_alone = True
    has_priorities = False

    def __init__(self, reading: GroupStreams, reconnect_s: float) -> None:
        self.where = reading.settings[0].masked_url
        self.on_passive: Callable[[str], None] = lambda _stream: None
        self._reading = reading
        self._reconnect_s = reconnect_s
        self._losses: dict[str, int] = {}  # of each stream, since it last handled a batch
        self._channels: dict[str, StreamChannel] = {}
        self._lost_at: float | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, reading: GroupStreams, reconnect_s: float) -> Self:
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
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(channel.abandon() for channel in self._channels.values()))

    @property
    def lost_at(self) -> float | None:
        """Since when no stream is subscribed, by ``time.monotonic()``; None if one is, or none was yet."""
        return self._lost_at

    async def is_blocked(self) -> bool:
        """Return whether publishers are blocked: this member publishes nothing."""
        return False

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
        """Subscribe to a stream, and call `take` with the election and each batch. A subscription that the broker has made passive stays.

        Only queues have priorities, a prefetch and tags. A stream that was deleted may be created again within some seconds.
        """
        before = self._channels.get(queue)
        losses = 0
        if before is not None and before.is_passive and before.is_connected:
            before.step_down(take)
            return before

        if before is not None and not (before.has_handled or before.is_abandoned):
            losses = self._losses.get(queue, 0)
        missing_since: float | None = None
        self._note_loss()
        while True:
            channel = self._channels[queue] = StreamChannel(
                self._reading,
                queue,
                take,
                lambda: self.on_passive(queue),
                _AGAIN.delay_s(losses - 1) if losses else 0.0,
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
                may_pass = is_transient(error) or may_be_limit(error) or is_awaited
                if not may_pass or self._is_closed or self._is_given_up(now):
                    raise
                _log.warning("%s; subscribing again", error)
            else:
                self._lost_at = None
                return channel

    def _note_loss(self) -> None:
        if any(channel.is_connected for channel in self._channels.values()):
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = time.monotonic()

    def _is_given_up(self, now: float) -> bool:
        """Return whether no stream has been subscribed for too long."""
        self._note_loss()
        return self._lost_at is not None and now - self._lost_at >= self._reconnect_s

    async def abandon(self, channel: StreamChannel) -> None:
        """Store the offset of the handled rows, and end the subscription. One that the broker has made passive is answered by `consume_behind`."""
        if not channel.is_passive:
            await channel.abandon()


async def in_thread(function: Callable[[], _T]) -> _T:
    """Return the result of a blocking function. Its thread does not keep the process alive, unlike those of `asyncio.to_thread`."""
    return await asyncio.wrap_future(call_in_thread(function, _WHAT))


# -- The status of a `StreamGroup`: the lag of each stream according to its leader


_TIMEOUT_S = 60.0
_LAG_ROWS = Metric(
    "rabbit_chx_stream_group_lag_rows", "The number of offsets of a stream after the stored one."
)
_LAG_S = Metric(
    "rabbit_chx_stream_group_lag_seconds",
    "The age of the oldest chunk of a stream after the stored offset, in seconds.",
)
_OLDEST_S = Metric(
    "rabbit_chx_stream_oldest_row_age_seconds", "The age of the first chunk of a stream, in seconds."
)


@dataclass(frozen=True, slots=True)
class StreamShare:
    """A stream of a group.

    Attributes:
        stored: the stored offset of the group; None without one.
        lag_rows: the number of offsets after the stored one, which is at least the number of rows.
        lag_s: the age of the oldest chunk after the stored offset, in seconds; 0 without one.
        oldest_s: the age of the first chunk of the stream, in seconds, which retention removes next; None without one.
    """

    stream: str = field(metadata=shown("stream"))
    stored: int | None = field(metadata=shown("stored", number=True))
    lag_rows: int = field(metadata=shown("lag rows", number=True, summed=True, metric=_LAG_ROWS))
    lag_s: float = field(metadata=shown("lag s", round, number=True, metric=_LAG_S))
    oldest_s: float | None = field(metadata=shown(metric=_OLDEST_S))


@dataclass(frozen=True, slots=True)
class StreamGroupResult:
    """The streams of a group, in JSON."""

    group: str
    vhost: str
    streams: Sequence[StreamShare]


def read_stream_group(
    settings: ConnectionSettings,
    group: str,
    streams: Iterable[str],
    addresses: Mapping[str, str] | None = None,
) -> list[StreamShare]:
    """Return the streams of a group; `addresses` is as for `StreamReader`."""
    shares = []
    for stream in streams:
        at_leader = open_at(
            settings_of(settings), stream, leader=True, addresses=addresses, timeout_s=_TIMEOUT_S
        )
        with closing(at_leader) as connection:
            shares.append(_read_share(connection, group, stream))
    return shares


def _read_share(connection: StreamConnection, group: str, stream: str) -> StreamShare:
    """Return the lag of a group in a stream, by the leader of the stream."""
    stored = connection.query_offset(group, stream)
    finder = ChunkFinder(connection, _TIMEOUT_S)
    end = finder.end(stream).offset
    first = finder.first(stream)
    following = end if first is None else first.offset
    if stored is not None:
        following = max(following, stored + 1)
    chunk = finder.chunk_at(stream, following) if following < end else None
    if chunk is not None:  # not the broker's own chunks before it, such as those of stored offsets
        following = max(following, chunk.offset)
    return StreamShare(stream, stored, max(0, end - following), _age_s(chunk) or 0.0, _age_s(first))


def _age_s(chunk: Chunk | None) -> float | None:
    return None if chunk is None else round(max(0.0, time.time() - chunk.timestamp_ms / 1000), 3)


def find_streams(connection: StreamConnection, names: Sequence[str]) -> list[str]:
    """Return the streams of these names, each of a stream, a super stream, or an exchange to which only streams are bound."""
    found: list[str] = []
    of_name = connection.metadata(names, missing_ok=True)
    for name in names:
        if of_name[name].code != Code.STREAM_DOES_NOT_EXIST:
            connection.metadata([name])  # raises an error if the user may not read it
            found.append(name)
            continue
        try:
            partitions = connection.partitions(name)
        except NotFoundError:
            raise NotFoundError(
                f"{connection.where}: stream, super stream or exchange {name!r} does not exist: check the name and the vhost",
                queue=name,
            ) from None
        connection.metadata(partitions)
        found += partitions
    return [*dict.fromkeys(found)]

"""A member of a group that shares streams, on the stream protocol. The broker elects the reader of each stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from rabbit_chx.checks import check_name
from rabbit_chx.connection.failures import raise_if_cancelled
from rabbit_chx.consuming.group import Group, check_async
from rabbit_chx.consuming.settings import StreamGroupOptions, call_hook, member_of
from rabbit_chx.errors import InputError
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.version import missing_extra

if TYPE_CHECKING:
    import pyarrow as pa

    from rabbit_chx.consuming.session import GroupSession
    from rabbit_chx.consuming.stream_channels import StreamBatch
    from rabbit_chx.consuming.stream_connection import StreamGroupConnection
    from rabbit_chx.streams.frames import OffsetSpec

_HEARTBEAT_S = 10  # the default if the URL has none
#: Also without reconnects a connection takes a moment.
_LEAST_OPEN_S = 5.0
#: The broker closes the connection of an elected consumer that does not say within 60 s where to start (tested with 4.3.6).
_MAX_HOOK_S = 50.0


@documented(StreamGroupOptions)
class StreamGroup(Group):
    """One member of a group that shares streams and keeps the order of each stream.

    Every member subscribes to all streams as a single active consumer. The broker lets one member read each stream: it shares the partitions
    of a super stream evenly, and any other stream is read by the member that subscribed first, until that one leaves. Use it in an
    ``async with`` block. It needs RabbitMQ 3.11 or newer and only the stream port.

    Attributes:
        streams: the streams; those of a super stream are known in the ``async with`` block.

    Raises:
        InputError: an argument is invalid.
        UriError: the URL is malformed, or has a parameter that is not supported.
        MissingExtraError: pyarrow is not installed.

    Example::

        async def handle(stream, batch):
            print(stream, batch.num_rows)

        async with StreamGroup("rabbitmq-stream://localhost", super_stream="orders", name="billing") as group:
            await group.run(handle)
    """

    @takes(StreamGroupOptions)
    def __init__(self, options: StreamGroupOptions) -> None:
        try:
            from rabbit_chx.consuming import stream_channels
            from rabbit_chx.streams.nodes import node_addresses, settings_of
        except ModuleNotFoundError as missing:
            raise missing_extra("StreamGroup", missing.name, "streams") from None

        settings = settings_of(options.url, options.credentials)
        check_options(options)
        streams = options.streams
        super_stream = options.super_stream
        name = options.name
        if (streams is None) == (super_stream is None):
            raise InputError("pass one of streams and super_stream: it determines what the group reads")
        if isinstance(streams, str):
            raise InputError(f"streams is the text {streams!r}: pass a list of names")

        self.streams = tuple(dict.fromkeys(streams or ()))
        for stream in self.streams:
            check_name(stream, "stream")
        if super_stream is None and not self.streams:
            raise InputError("streams is empty: pass one stream or more")

        if super_stream is not None:
            check_name(super_stream, "super stream")
        check_name(name, "group")
        if options.failures.on_failure != "stop":
            raise InputError(
                f"on_failure is {options.failures.on_failure!r}, and a stream has no dead-letter exchange: pass 'stop'"
            )

        member = member_of(options, journal=None, on_gained=None)  # `_take_over` calls the hook
        if member.timing.hook_s > _MAX_HOOK_S:
            raise InputError(
                f"the timing has hook_s {member.timing.hook_s:g}: pass {_MAX_HOOK_S:g} at most, since the broker waits 60 s for where to start"
            )

        if options.on_gained is not None:
            check_async("on_gained", options.on_gained)
        self.name = name
        self._super_stream = super_stream
        connection_name = f"{stream_channels.CONNECTION_NAME}{name}.{member.name}"
        named = (
            replace(
                one,
                heartbeat_s=_HEARTBEAT_S if one.heartbeat_s is None else one.heartbeat_s,
                connection_name=one.connection_name or connection_name,
            )
            for one in settings
        )
        addresses = options.addresses and node_addresses(options.addresses)
        self._reading = stream_channels.GroupStreams(
            deque(named), name, super_stream, options.reading, addresses
        )
        super().__init__(settings[0], member)
        self._reading.loop_watch = self._loop_watch
        self._reading.open_s = min(
            max(options.failures.reconnect_timeout_s, _LEAST_OPEN_S), self._reading.open_s
        )
        self._on_gained = options.on_gained

    # -- state

    @property
    def missing(self) -> int:
        """The number of rows that retention had removed before this member could read them, with ``on_missing="count"``."""
        return sum(self._reading.missing[stream] for stream in self.streams)

    def __repr__(self) -> str:
        return (
            f"<StreamGroup {self.name!r} member={self.member!r} at {self._where}: {len(self.held)} of "
            f"{len(self.streams)} streams>"
        )

    # -- lifecycle

    async def __aenter__(self) -> Self:
        """Connect, and check that the streams exist.

        Raises:
            InputError: the broker has no single active consumer of streams, or `super_stream` is another exchange.
            NotFoundError: a stream or the super stream does not exist.
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: the broker cannot be reached.
        """
        await self._enter()
        return self

    async def run(self, handle: Callable[[str, pa.RecordBatch], Awaitable[None]]) -> None:
        """Handle batches until `stop` is called or the task is cancelled.

        The offset of the last row of a batch is stored when the handler has returned, before the next batch. If the handler raises, it is
        called with the batch again.

        Args:
            handle: an async function of the stream's name and a batch with the columns of a `StreamReader`.

        Raises:
            HandlerError: all attempts to handle a batch failed.
            MissingRowsError: a stream lacks rows that were not handled, and `on_missing` is ``"raise"``.
            ConnectionLostError: the connection was lost, and reconnecting failed in time.
            BrokerRefusedError: the broker refuses an operation, and a retry cannot succeed.
            InputError: the handler is not async; or the group is not open or is already running.
        """
        check_async("handle", handle)

        async def handle_batch(batch: StreamBatch) -> None:
            if batch.rows is None:
                await self._take_over(batch)
            else:
                await handle(batch.stream, batch.rows)

        await self._run_once(handle_batch)

    async def _take_over(self, batch: StreamBatch) -> None:
        """Handle an election: call the hook `on_gained`, and begin where it returns."""
        start = None
        if self._on_gained is not None:
            failures = self._reading.failed_starts
            try:
                start = await call_hook(self._on_gained, batch.stream, self._member.timing.hook_s)
                if start is not None:
                    _check_start(start)
            except (KeyboardInterrupt, SystemExit):  # its task has ended the event loop with it
                raise asyncio.CancelledError from None
            except BaseException as error:
                raise_if_cancelled(error)
                failures[batch.stream] += 1  # the next attempt may be that of another subscription
                raise
            del failures[batch.stream]
        batch.channel.begin(start)

    async def _open(self) -> StreamGroupConnection:
        from rabbit_chx.consuming.stream_connection import StreamGroupConnection

        return await StreamGroupConnection.open(self._reading, self._retries.reconnect_timeout_s)

    def _new_session(self, connection: Any, handle: Callable[[Any], Awaitable[None]]) -> GroupSession:
        connection.on_passive = self._step_back
        return super()._new_session(connection, handle)

    def _step_back(self, stream: str) -> None:
        """Finish the batch in progress and release a stream, of which the broker is about to elect another member."""
        for runner in self._runners:
            if runner.ownership.queue == stream:
                runner.execute(runner.ownership.step_back())

    async def _prepare(self, connection: StreamGroupConnection) -> dict[str, int]:
        self.streams = await connection.find_streams(self.streams, self._super_stream)
        return dict.fromkeys(self.streams, 1)


def _check_start(start: OffsetSpec) -> None:
    from rabbit_chx.streams.frames import check_range

    try:
        check_range(start, None, None)
    except InputError as error:
        raise InputError(f"on_gained returned {start!r:.60}: {error}, or None") from None

"""Whatever a client library raises at the end of a connection, in whichever call: a member reconnects, and leaves without an error.

The library and the broker are a script: no broker ends a connection within a chosen call with a chosen class of aiormq. The errors are
those of `client_ends`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aio_pika
import pytest
from aiormq import exceptions, spec
from client_ends import CALL_ENDS, CONNECT_ENDS
from group_stage import eventually

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import FailurePolicy, GroupMessage, GroupTiming, channels

JOURNAL = "journal"
BRISK = GroupTiming(settle_s=0.05, alive_s=0.02, gone_s=0.5, stop_s=1.0, journal_s=2.0)
#: The calls of a member that runs: of one that connects (after the loss of all connections), then of one that consumes.
CONNECTING = ("connect", "channel", "get_underlay_channel", "queue_declare", "basic_qos", "basic_consume", "ready", "close")  # fmt: skip
CONSUMING = ("basic_ack", "basic_publish")
#: The calls of a member that leaves.
LEAVING = ("basic_qos", "channel", "basic_get", "abandon", "close")


class ScriptedClient:
    """The library and its broker, which has one queue and a journal."""

    def __init__(self) -> None:
        self._connections: list[_Connection] = []
        self._entries: list[bytes] = []
        self._armed: tuple[str, BaseException | type[BaseException]] | None = None

    def arm(self, call: str, error: BaseException | type[BaseException]) -> None:
        """Let the next call of this name raise an error, and end its connection."""
        self._armed = call, error

    @property
    def has_raised(self) -> bool:
        """Whether the error was raised."""
        return self._armed is None

    @property
    def is_consuming(self) -> bool:
        """Whether the queue has a consumer over an open channel."""
        return bool(self._consuming("q"))

    def end(self) -> None:
        """End all connections, as a stopped broker."""
        for connection in self._connections:
            connection.end(exceptions.AMQPConnectionError("stopped"))

    def deliver(self) -> None:
        """Deliver a message to each consumer of the queue."""
        for channel in self._consuming("q"):
            channel.deliver("q")

    async def connect(self, **_: object) -> _Connection:
        """Connect, in place of `aio_pika.connect`."""
        self.meet("connect", None)
        self._connections.append(_Connection(self))
        return self._connections[-1]

    def meet(self, call: str, connection: _Connection | None) -> None:
        """Raise the error if it is the turn of this call or of a closed connection."""
        if self._armed is not None and self._armed[0] == call:
            error, self._armed = self._armed[1], None
            if connection is not None:
                connection.end(error)
            raise error
        if connection is not None and connection.is_closed and call != "close":
            raise exceptions.ChannelInvalidStateError("closed")

    def publish(self, body: bytes) -> None:
        """Append to the journal."""
        self._entries.append(body)
        for channel in self._consuming(JOURNAL):
            channel.deliver(JOURNAL, body, len(self._entries))

    def read(self, channel: _Channel) -> None:
        """Deliver the journal from its beginning."""
        for offset, body in enumerate(self._entries):
            channel.deliver(JOURNAL, body, offset)

    def _consuming(self, queue: str) -> list[_Channel]:
        return [
            channel
            for connection in self._connections
            for channel in connection.channels.values()
            if queue in channel.consumers and not channel.is_closed
        ]


class _Closable:
    """What a connection and a channel have."""

    def __init__(self) -> None:
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closing.add_done_callback(lambda ended: ended.exception())  # so that asyncio does not log it

    @property
    def is_closed(self) -> bool:
        return self.closing.done()

    def end(self, error: BaseException | type[BaseException]) -> None:
        if not self.is_closed:
            self.closing.set_exception(error)


class _Connection(_Closable):
    """A connection of aio-pika, and the one of aiormq below it."""

    server_properties = {"version": "4.3.6"}  # noqa: RUF012
    connection_tune = SimpleNamespace(channel_max=0)

    def __init__(self, client: ScriptedClient) -> None:
        super().__init__()
        self.client = client
        self.transport = SimpleNamespace(connection=self)
        self.channels: dict[int, _Channel] = {}

    def end(self, error: BaseException | type[BaseException]) -> None:
        for channel in self.channels.values():
            channel.end(error)
        super().end(error)

    async def channel(self, number: int | None = None, **_: object) -> _Channel:
        await self.answer("channel")
        made = _Channel(self, number or len(self.channels) + 1)
        self.channels[made.number] = made
        return made

    async def ready(self) -> None:
        await self.answer("ready")

    async def close(self) -> None:
        await self.answer("close")
        self.end(exceptions.ConnectionClosed())

    async def answer(self, call: str) -> None:
        """Answer a call, later than at once."""
        await asyncio.sleep(0)
        self.client.meet(call, self)


class _Channel(_Closable):
    write_queue: Any = None

    def __init__(self, connection: _Connection, number: int) -> None:
        super().__init__()
        self.connection = connection
        self.number = number
        self.consumers: dict[str, Callable[[Any], Any]] = {}
        self.on_consumer_cancel_callbacks: set[Any] = set()
        self._tag = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def get_underlay_channel(self) -> _Channel:
        await self.connection.answer("get_underlay_channel")
        return self

    async def queue_declare(self, queue: str, **_: object) -> Any:
        await self.connection.answer("abandon" if queue == channels._MISSING_QUEUE else "queue_declare")
        if queue == channels._MISSING_QUEUE:
            refusal = exceptions.ChannelNotFoundEntity("NOT_FOUND")
            self.end(refusal)
            raise refusal
        return SimpleNamespace(queue=queue, message_count=0, consumer_count=0)

    async def basic_qos(self, **_: object) -> None:
        await self.connection.answer("basic_qos")

    async def basic_consume(self, queue: str, take: Callable[[Any], Any], **_: object) -> None:
        await self.connection.answer("basic_consume")
        self.consumers[queue] = take
        if queue == JOURNAL:
            self.connection.client.read(self)
        else:
            self.deliver(queue)

    async def basic_get(self, _queue: str) -> Any:
        await self.connection.answer("basic_get")
        return SimpleNamespace(delivery=spec.Basic.GetEmpty())

    async def basic_ack(self, _tag: int, **_: object) -> None:
        await self.connection.answer("basic_ack")

    async def basic_publish(self, body: bytes, **_: object) -> None:
        await self.connection.answer("basic_publish")
        self.connection.client.publish(body)

    async def close(self) -> None:
        await self.connection.answer("close")
        self.end(exceptions.ChannelClosed(None, None))

    def deliver(self, queue: str, body: bytes = b"", offset: int = 0) -> None:
        self._tag += 1
        properties = spec.Basic.Properties(headers={"x-stream-offset": offset} if queue == JOURNAL else {})
        delivery = spec.Basic.Deliver("tag", self._tag, False, "", queue)
        message = SimpleNamespace(
            delivery=delivery, header=SimpleNamespace(properties=properties), body=body, channel=self
        )
        task = asyncio.ensure_future(self.consumers[queue](message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Member:
    """A member of the queue `q`, with a journal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = ScriptedClient()
        self.handled = 0
        monkeypatch.setattr(aio_pika, "connect", self.client.connect)
        monkeypatch.setattr(channels, "_REPUBLISH_S", 0.001)
        self.group = ConsumerGroup(
            "amqp://scripted",
            ["q"],
            member="a",
            journal=JOURNAL,
            timing=BRISK,
            failures=FailurePolicy(reconnect_backoff_s=0.001),
        )

    async def handle(self, _message: GroupMessage) -> None:
        """Handle a message."""
        self.handled += 1


async def end_and_reconnect(
    member: Member, running: asyncio.Task[None], call: str, error: BaseException | type[BaseException]
) -> None:
    """Let a call raise an error, and wait until the member consumes over another connection."""
    client, what = member.client, f"{error!r} of {call}"
    client.arm(call, error)
    if call in CONNECTING:
        client.end()
    else:
        client.deliver()
    await eventually(lambda: client.has_raised or running.done(), f"there is {what}")
    await eventually(lambda: running.done() or client.is_consuming, f"it reconnects after {what}")
    assert not running.done(), f"{what} ended the group: {running!r}"
    handled = member.handled
    client.deliver()
    await eventually(lambda: member.handled > handled, f"it consumes after {what}")


@pytest.mark.parametrize("call", [*CONNECTING, *CONSUMING])
async def test_a_member_reconnects_after_each_end_of_each_call(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(monkeypatch)
    async with member.group as group:
        running = asyncio.create_task(group.run(member.handle))
        await eventually(lambda: member.handled == 1, "it consumes")
        for error in CONNECT_ENDS if call == "connect" else CALL_ENDS:
            await end_and_reconnect(member, running, call, error)
        group.stop()
        await running


async def end_while_leaving(member: Member, call: str, error: BaseException | type[BaseException]) -> None:
    """Let a member leave while a call raises an error."""
    async with member.group as group:
        running = asyncio.create_task(group.run(member.handle))
        await eventually(lambda: member.handled == 1, "it consumes")
        member.client.arm(call, error)
        group.stop()
        await running
    assert member.client.has_raised, f"no {call}"


@pytest.mark.parametrize("call", LEAVING)
async def test_a_member_leaves_without_an_error_whatever_ends_its_connection(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in CALL_ENDS:
        await end_while_leaving(Member(monkeypatch), call, error)

"""A script in place of aio-pika and its broker: one call raises an error, and its connection has ended.

No broker ends a connection within a chosen call with a chosen class of aiormq.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aiormq import exceptions, spec

from rabbit_chx.consuming.channels import _MISSING_QUEUE

JOURNAL = "journal"


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
        """Raise the error if it is the turn of this call, or that of a closed connection."""
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
    """A connection of aio-pika, and that of aiormq below it."""

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
        await self.connection.answer("abandon" if queue == _MISSING_QUEUE else "queue_declare")
        if queue == _MISSING_QUEUE:
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

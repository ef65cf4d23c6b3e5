"""The adapter for aio-pika: a connection that consumes shards, and each consumer on a channel of its own. Waits are bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from aiormq import exceptions as aiormq_errors

from rabbit_chx.connection.aio_pika_opening import aio_pika_opened
from rabbit_chx.consuming.broker_answers import answered
from rabbit_chx.consuming.shard_message import ShardMessage

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["HandleShardMessage", "ShardLine", "ShardLink"]

HandleShardMessage: TypeAlias = "Callable[[ShardMessage], Awaitable[object]]"

_HEARTBEAT_S = 10
_CLOSE_S = 5.0


class ShardLine:
    """A consumer of one queue; `ShardLink.consume` makes it.

    Args:
        channel: aiormq's channel.
        queue: the queue that it consumes.
    """

    def __init__(self, channel: Any, queue: str) -> None:  # noqa: ANN401
        self.queue = queue
        self._channel = channel
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()  # as long as the prefetch count; None is the end
        self._is_ending = False

    async def take(self, delivered: Any) -> None:  # noqa: ANN401
        """Take a message of aiormq."""
        self._inbox.put_nowait(delivered)

    def end(self, _reason: object = None) -> None:
        """Let `handled` return once it has handled what was delivered before."""
        self._inbox.put_nowait(None)

    def end_now(self) -> None:
        """Let `handled` return once it has handled the message in hand. Those after it go back to the queue."""
        self._is_ending = True
        self.end()

    async def handled(self, handle: HandleShardMessage) -> None:
        """Handle one message after another, and acknowledge each that was handled, until the consumer ends.

        Args:
            handle: what handles a message. What it raises is raised here, and the message is not acknowledged.
        """
        try:
            while (delivered := await self._inbox.get()) is not None:
                if self._is_ending or self._channel.is_closed:
                    return
                await handle(_message(delivered, self.queue))
                with contextlib.suppress(
                    aiormq_errors.AMQPError, RuntimeError, OSError
                ):  # it comes again then
                    await self._channel.basic_ack(delivered.delivery.delivery_tag, wait=False)
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_S):
                    await self._channel.close()


class ShardLink:
    """A connection; `open` makes it.

    Args:
        settings: the settings of the connection.
        connection: aio-pika's connection.
    """

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:  # noqa: ANN401
        self.where = settings.masked_url
        self._connection = connection

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> ShardLink:
        """Connect.

        Args:
            settings: the settings of the connection.

        Raises:
            RabbitChxError: as `aio_pika_opened`.
        """
        return cls(settings, await aio_pika_opened(settings, default_heartbeat_s=_HEARTBEAT_S))

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._connection.is_closed or self._connection.transport.connection.is_closed)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call something when the connection ends.

        Args:
            call: what to call.
        """
        self._connection.transport.connection.closing.add_done_callback(lambda _: call())

    async def consume(self, queue: str, prefetch: int) -> ShardLine:
        """Consume a queue over a new channel.

        Args:
            queue: the queue, or the name of a sharded exchange.
            prefetch: how many messages may be delivered ahead.

        Raises:
            NotFoundError: there is no such queue, or its node is away.
            RabbitChxError: the broker refuses it, or the connection is lost.
        """
        async with answered(self.where, queue):
            channel = await self._channel()
            line = ShardLine(channel, queue)
            channel.on_consumer_cancel_callbacks.add(line.end)
            channel.closing.add_done_callback(line.end)
            await channel.basic_qos(prefetch_count=prefetch)
            await channel.basic_consume(queue, line.take)
        return line

    async def declared(self, queue: str) -> tuple[str, int]:
        """Declare a queue passively, and return its name and the number of its consumers, as the broker tells them.

        Args:
            queue: the queue, or the name of a sharded exchange.

        Raises:
            NotFoundError: there is no such queue, or its node is away.
            RabbitChxError: the broker refuses it, or the connection is lost.
        """
        async with answered(self.where, queue):
            channel = await self._channel()
            answer = await channel.queue_declare(queue, passive=True)
            await channel.close()
        return str(answer.queue), int(answer.consumer_count or 0)

    async def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.close()

    async def _channel(self) -> Any:  # noqa: ANN401
        return await (await self._connection.channel(publisher_confirms=False)).get_underlay_channel()


def _message(delivered: Any, queue: str) -> ShardMessage:  # noqa: ANN401
    properties = delivered.header.properties
    return ShardMessage(
        queue,
        delivered.delivery.routing_key or "",
        delivered.body,
        dict(properties.headers or {}),
        properties.message_id,
        bool(delivered.delivery.redelivered),
    )

"""The adapter for aio-pika: channels that consume one queue each, and the stream that is the journal. Every wait is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiormq import exceptions as aiormq_errors
from aiormq import spec

from rabbit_chx.amqp.replies import error_for
from rabbit_chx.connection.aio_pika_opening import aio_pika_opened, refusal_told_by, said_by, text_of
from rabbit_chx.consuming.broker_answers import HEARTBEAT_S, REPLY_S, answered, closed
from rabbit_chx.consuming.group_message import GroupMessage
from rabbit_chx.consuming.group_writer import GroupWriter
from rabbit_chx.consuming.journal_entry import JournalEntry
from rabbit_chx.consuming.late_frames import LateFrames
from rabbit_chx.consuming.queue_check import learned_arguments
from rabbit_chx.consuming.seat_commands import DeliveredMessage
from rabbit_chx.consuming.write_queue import WriteQueue
from rabbit_chx.errors import (
    AccessRefusedError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.topology.steps import HandOverMarker

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["GroupChannels", "LineChannel"]

_MOST_CHANNELS = 65535
_JOURNAL_PREFETCH = 200
#: The journal keeps the last 10 MB, which are some ten thousand entries.
_JOURNAL_ARGUMENTS = {
    "x-queue-type": "stream",
    "x-max-length-bytes": 10_000_000,
    "x-stream-max-segment-size-bytes": 1_000_000,
}
#: A queue that is asked for and does not exist; the name is for the reader of the broker's log.
_NO_QUEUE = "rabbit-chx: a consumer of a group leaves its queue"
_PROPERTIES = ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
               "timestamp", "message_type", "user_id", "app_id", "cluster_id")  # fmt: skip


class LineChannel:
    """One consumer of one queue, on a channel of its own.

    Args:
        channel: aiormq's channel.
        queue: the queue.
        where: the broker's address without its password.
        late: what the broker still sends when the channel was ended.
        prefetch: how many messages the broker may deliver ahead.
    """

    def __init__(self, channel: Any, queue: str, where: str, late: LateFrames, prefetch: int) -> None:  # noqa: ANN401
        self._channel = channel
        self._prefetch = prefetch
        self._late = late
        self._queue = queue
        self._where = where

    @property
    def number(self) -> int:
        """The number of the channel."""
        return int(self._channel.number)

    async def ack(self, tag: int) -> None:
        """Acknowledge a message; nothing happens where the channel is closed."""
        with contextlib.suppress(aiormq_errors.AMQPError, RuntimeError, OSError):
            await self._channel.basic_ack(tag, wait=False)

    async def reject(self, tag: int) -> None:
        """Reject a message without requeue; nothing happens where the channel is closed."""
        with contextlib.suppress(aiormq_errors.AMQPError, RuntimeError, OSError):
            await self._channel.basic_reject(tag, requeue=False, wait=False)

    async def answer(self) -> None:
        """Wait for an answer over this channel. The broker knows the channel then, and has taken all acks that went before.

        Raises:
            RabbitChxError: the channel or the connection is lost.
        """
        async with answered(self._where, self._queue):
            await self._channel.basic_qos(
                prefetch_count=self._prefetch
            )  # it counts for consumers to come, and there are none

    async def fetch(self, queue: str) -> DeliveredMessage | None:
        """Get one message of another queue; None where it is empty.

        Args:
            queue: the other queue.

        Raises:
            RabbitChxError: the broker refuses it, or the connection is lost.
        """
        async with answered(self._where, queue):
            message = await self._channel.basic_get(queue)
        return delivery_of(message, self._queue) if isinstance(message.delivery, spec.Basic.GetOk) else None

    async def abandon(self) -> None:
        """End the channel by an error, and not politely.

        What it holds is then returned before the next consumer is elected. After ``basic.cancel`` it is returned after that, behind what
        the next consumer gets.

        Raises:
            ConnectionLostError: there is no answer in time. The broker may still deliver to this consumer.
        """
        self._late.expect(self.number)
        # The answer comes after all acks of the channel were processed.
        try:
            async with asyncio.timeout(REPLY_S):
                await self._channel.queue_declare(_NO_QUEUE, passive=True)
        except TimeoutError:
            raise ConnectionLostError(
                f"{self._where}: no answer within {REPLY_S:g} s at the end of the channel that consumes {self._queue!r}",
                queue=self._queue,
            ) from None
        except (aiormq_errors.AMQPError, RuntimeError, OSError):
            pass  # it has ended, by the error that was asked for or with the connection

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Call something when the channel is closed, by whomever.

        Args:
            call: what to call, with the broker's refusal where the user lacks a permission.
        """

        def closed(closing: asyncio.Future[Any]) -> None:
            cause = None if closing.cancelled() else closing.exception()
            if isinstance(cause, aiormq_errors.ChannelAccessRefused):
                call(error_for(*refusal_told_by(cause), where=self._where, queue=self._queue))
            else:
                call(None)

        self._channel.closing.add_done_callback(closed)


class GroupChannels:
    """The connections of a member: one consumes, and one publishes. `open` makes the first, and the second is made when it is needed.

    Args:
        settings: the settings of the connection.
        connection: aio-pika's connection.
    """

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:  # noqa: ANN401
        self.where = settings.masked_url
        self._connection = connection
        self._writer = GroupWriter(settings)
        self._late = LateFrames()
        self._utility: Any = None
        self._number = 0
        self._utility_lock = asyncio.Lock()
        properties = connection.transport.connection.server_properties
        #: The version that the broker named itself by, such as ``4.3.6``.
        self.server_version = text_of(properties.get("version", "unknown"))

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> GroupChannels:
        """Connect.

        Args:
            settings: the settings of the connection.

        Raises:
            RabbitChxError: as `aio_pika_opened`.
        """
        return cls(settings, await aio_pika_opened(settings, default_heartbeat_s=HEARTBEAT_S))

    async def close(self) -> None:
        """Close the connections. The lines that hold messages must be abandoned before."""
        await asyncio.gather(closed(self._connection), self._writer.close())
        self._late.end()

    async def publish(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to a queue, as `GroupWriter.publish` does.

        Args:
            queue: the queue.
            body: the body.
            headers: the headers.

        Raises:
            RabbitChxError: the broker refuses it, and another attempt would not help.
        """
        await self._writer.publish(queue, body, headers)

    async def is_blocked(self) -> bool:
        """Return whether the broker has said that it blocks publishers."""
        return await self._writer.is_blocked()

    async def queue_arguments(self, queue: str) -> dict[str, Any] | None:
        """Return the arguments of a queue that is fit for a group; None where the broker does not tell them.

        Args:
            queue: the queue.

        Raises:
            NotFoundError: there is no such queue.
            MismatchError: the queue is no quorum queue with a single active consumer.
            AccessRefusedError: the user has no permission on it.
        """
        try:
            await self.ready_count(queue)
        except AccessRefusedError as refused:  # the broker names another permission
            needed = f"{refused}. A group needs the permission read on its queues"
            raise AccessRefusedError(needed, queue=queue, reply_code=refused.reply_code) from None
        asking = learned_arguments(queue)
        arguments = next(asking)
        while True:
            code, refusal = await self._refusal(queue, arguments)
            if code not in (0, 406):
                return None
            try:
                arguments = asking.send(refusal)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def _refusal(self, queue: str, arguments: dict[str, Any]) -> tuple[int, str | None]:
        channel = await self._channel(confirms=False)
        try:
            async with asyncio.timeout(REPLY_S):
                await channel.queue_declare(queue, durable=True, arguments=arguments)
        except (aiormq_errors.ChannelClosed, aiormq_errors.ConnectionClosed) as refusal:
            return refusal_told_by(refusal)
        except (aiormq_errors.AMQPError, OSError, RuntimeError, TimeoutError) as cause:
            raise ConnectionLostError(f"{self.where}: the connection was lost ({said_by(cause)})") from None
        await closed(channel)
        return 0, None

    async def ready_count(self, queue: str) -> int:
        """Return how many messages of a queue wait to be delivered.

        Args:
            queue: the queue.

        Raises:
            NotFoundError: there is no such queue.
        """
        async with self._utility_lock:
            if self._utility is None or self._utility.is_closed:
                self._utility = await self._channel(confirms=False)
            async with answered(self.where, queue):
                answer = await self._utility.queue_declare(queue, passive=True)
        return int(answer.message_count or 0)

    async def consume(
        self, queue: str, priority: int, prefetch: int, tag: str, take: Callable[[DeliveredMessage], Any]
    ) -> LineChannel:
        """Consume a queue over a new channel.

        Args:
            queue: the queue.
            priority: the ``x-priority``.
            prefetch: how many messages may be delivered ahead.
            tag: the consumer tag.
            take: called with each message.

        Raises:
            RabbitChxError: the broker refuses it, or the connection is lost.
        """
        channel = await self._channel(confirms=True)

        async def taken(message: Any) -> None:  # noqa: ANN401
            await take(delivery_of(message, queue))

        async with answered(self.where, queue):
            await channel.basic_qos(prefetch_count=prefetch)
            channel.on_consumer_cancel_callbacks.add(lambda _: channel.close())
            await channel.basic_consume(queue, taken, arguments={"x-priority": priority}, consumer_tag=tag)
        return LineChannel(channel, queue, self.where, self._late, prefetch)

    async def read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry], None]
    ) -> LineChannel:
        """Read the journal from some seconds ago on. Declare it where there is none.

        Args:
            journal: the name of the stream.
            since_s: how far back to begin, in seconds since 1970.
            take: called with the place of each entry, and the entry.

        Raises:
            RabbitChxError: the broker refuses it, or the connection is lost.
        """
        try:
            try:
                await self.ready_count(journal)  # a user who may not declare it can use one that is there
            except NotFoundError:
                await self._declare_journal(journal)
            return await self._read_journal(journal, since_s, take)
        except AccessRefusedError as refusal:
            raise AccessRefusedError(
                f"{refusal}. The group's journal is the stream {journal!r}: the user needs the permissions read and write on it and "
                "write on the default exchange, and configure where it is not declared yet; or give journal=None",
                queue=journal,
                reply_code=refusal.reply_code,
            ) from None

    async def _declare_journal(self, journal: str) -> None:
        channel = await self._channel(confirms=False)
        async with answered(self.where, journal):
            await channel.queue_declare(journal, durable=True, arguments=_JOURNAL_ARGUMENTS)
        await closed(channel)

    async def _read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry], None]
    ) -> LineChannel:
        channel = await self._channel(confirms=True)

        async def taken(message: Any) -> None:  # noqa: ANN401
            offset = int((message.header.properties.headers or {}).get("x-stream-offset", -1))
            entry = JournalEntry.from_json(message.body)
            if entry is not None:
                take(offset, entry)
            with contextlib.suppress(aiormq_errors.AMQPError, RuntimeError, OSError):
                await channel.basic_ack(message.delivery.delivery_tag, wait=False)

        async with answered(self.where, journal):
            await channel.basic_qos(prefetch_count=_JOURNAL_PREFETCH)
            channel.on_consumer_cancel_callbacks.add(lambda _: channel.close())  # the stream was deleted
            await channel.basic_consume(
                journal, taken, arguments={"x-stream-offset": datetime.fromtimestamp(since_s, UTC)}
            )
        return LineChannel(channel, journal, self.where, self._late, _JOURNAL_PREFETCH)

    async def _channel(self, *, confirms: bool) -> Any:  # noqa: ANN401
        async with answered(self.where):
            channel = await self._connection.channel(self._free_number(), publisher_confirms=confirms)
            underlay = await channel.get_underlay_channel()
        underlay.write_queue = WriteQueue(underlay.write_queue)
        return underlay

    def _free_number(self) -> int:
        """Return the number of a channel that was free for long.

        aiormq gives the number of a channel that the broker has closed to the next one at once. It may then open this one before
        it has confirmed the close, and the broker ends the connection (541, "second 'channel.open' seen").
        """
        link = self._connection.transport.connection
        most = link.connection_tune.channel_max or _MOST_CHANNELS
        numbers = ((self._number + step) % most + 1 for step in range(most))
        self._number = next((number for number in numbers if number not in link.channels), 0)
        if not self._number:
            raise InputError(
                f"{self.where}: all {most:,} channels of the connection are in use, and each queue takes one: give each member fewer "
                "queues, or raise channel_max on the broker"
            )
        return self._number


def delivery_of(message: Any, queue: str) -> DeliveredMessage:  # noqa: ANN401
    """Return a message of aiormq as a seat takes it.

    Args:
        message: the message.
        queue: the queue that it counts to.
    """
    properties = message.header.properties
    headers = dict(properties.headers or {})
    marker = HandOverMarker.from_headers(headers)
    others = {name: value for name in _PROPERTIES if (value := getattr(properties, name, None)) is not None}
    content = GroupMessage(
        queue=queue,
        routing_key=message.delivery.routing_key or "",
        body=message.body,
        headers=headers,
        message_id=properties.message_id,
        redelivered=bool(message.delivery.redelivered),
        exchange=message.delivery.exchange or "",
        properties=others,
    )
    return DeliveredMessage(
        message.delivery.delivery_tag, content.routing_key, content, marker, properties.reply_to
    )

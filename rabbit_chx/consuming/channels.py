"""The adapter for aio-pika: a connection that consumes each queue over a channel of its own, and one that publishes.

Every wait is bounded, and what aiormq raises becomes one of our errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from aiormq import exceptions as aiormq_errors
from aiormq import spec

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import error_for, is_transient
from rabbit_chx.connection.aio_pika_opening import aio_pika_opened, refusal_told_by, text_of, words_of
from rabbit_chx.consuming.journal import JournalEntry
from rabbit_chx.consuming.message import GroupMessage, message_of
from rabbit_chx.consuming.queue_check import WANTED, learned_arguments
from rabbit_chx.consuming.seat import DeliveredMessage
from rabbit_chx.consuming.waits import came
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.topology.hand_over_marker import HandOverMarker

_log = logging.getLogger(__name__)

#: How long the broker may take to answer, in seconds.
_REPLY_S = 30.0
#: Seconds between heartbeats, unless the URL says otherwise.
_CLOSE_S = 5.0
#: How long a quorum queue may take to have all acks of a channel that ends.
_APPLIED_S = 10.0
_REPUBLISH_S = 1.0
_LOOK_S = 0.01
_MOST_CHANNELS = 65535
_MOST_ARGUMENTS = 30
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
#: What aiormq raises where a channel or its connection is lost.
_LOST = (aiormq_errors.AMQPError, OSError, RuntimeError)
_AIORMQ_LOG = logging.getLogger("aiormq.connection")
_LATE = "Got frame for closed channel"


@contextlib.asynccontextmanager
async def _answered(where: str, queue: str | None = None) -> AsyncIterator[None]:
    """Bound the wait in a block, and raise our errors in place of those that aiormq raises in it."""
    error: RabbitChxError
    try:
        async with asyncio.timeout(_REPLY_S):
            yield
    except TimeoutError:
        error = BrokerTimeoutError(
            f"{where}: no answer within {_REPLY_S:g} s: look at the broker's log and alarms", queue=queue
        )
    except (aiormq_errors.ChannelClosed, aiormq_errors.ConnectionClosed) as refusal:
        error = error_for(*refusal_told_by(refusal), where=where, queue=queue)
    except _LOST as cause:
        error = ConnectionLostError(f"{where}: the connection was lost ({words_of(cause)})", queue=queue)
    else:
        return
    raise error


async def _closed(connection: Any) -> None:  # noqa: ANN401  # of aio-pika
    """Close a connection or a channel of aio-pika, if the broker answers within some seconds."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()


class LateFrames(logging.Filter):
    """Keeps the frames of channels that this member has ended out of the log of aiormq, which takes each for an error.

    The broker was sending these messages when the channel ended, and returns them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._channels: set[int] = set()

    def expect(self, channel: int) -> None:
        """Drop what is logged about frames of a channel that is being ended."""
        self._channels.add(channel)
        _AIORMQ_LOG.addFilter(self)

    def end(self) -> None:
        """Drop nothing any more."""
        _AIORMQ_LOG.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        number = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return not (number in self._channels and str(record.msg).startswith(_LATE))


class _WriteQueue:
    """The queue of a connection's frames, as a channel of aiormq sees it, with nothing dropped.

    aiormq drops its confirmation of a channel's end where ten frames wait to be written (7.2.4, ``Channel._on_close_frame``). The
    broker then keeps the channel with its consumers. It delivers to them, and the messages wait until the connection ends.
    """

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue
        self._waiting: set[asyncio.Task[None]] = set()

    def put(self, frame: Any) -> Coroutine[Any, Any, None]:  # noqa: ANN401
        """Write a frame when there is room."""
        return self._queue.put(frame)

    def put_nowait(self, frame: Any) -> None:  # noqa: ANN401
        """Write a frame when there is room, and do not wait for it."""
        task = asyncio.get_running_loop().create_task(self._queue.put(frame))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)


class LineChannel:
    """A consumer of a queue, on a channel of its own. `ConsumingConnection.consume` makes it."""

    def __init__(self, channel: Any, queue: str, where: str, late: LateFrames, prefetch: int) -> None:  # noqa: ANN401
        self._channel = channel
        self.queue = queue
        self._where = where
        self._late = late
        self._prefetch = prefetch
        #: Whether a message was acknowledged.
        self.has_acked = False

    @property
    def number(self) -> int:
        """The number of the channel."""
        return int(self._channel.number)

    @property
    def is_closed(self) -> bool:
        """Whether the channel has ended."""
        return bool(self._channel.is_closed)

    async def ack(self, tag: int) -> None:
        """Acknowledge a message; nothing happens where the channel is closed."""
        self.has_acked = True
        with contextlib.suppress(*_LOST):
            await self._channel.basic_ack(tag, wait=False)

    async def reject(self, tag: int) -> None:
        """Reject a message without requeue; nothing happens where the channel is closed."""
        with contextlib.suppress(*_LOST):
            await self._channel.basic_reject(tag, requeue=False, wait=False)

    async def answer(self) -> None:
        """Wait for an answer over this channel. The broker knows the channel then, and has taken all acks that went before."""
        # A new prefetch counts for later consumers of the channel, and there are none.
        async with _answered(self._where, self.queue):
            await self._channel.basic_qos(prefetch_count=self._prefetch)

    async def fetch(self, queue: str) -> DeliveredMessage | None:
        """Get a message of another queue; None where it is empty."""
        async with _answered(self._where, queue):
            message = await self._channel.basic_get(queue)
        return _delivery(message, self.queue) if isinstance(message.delivery, spec.Basic.GetOk) else None

    async def abandon(self) -> None:
        """End the channel by an error, and not politely.

        What it holds is then returned before the next consumer is elected. After ``basic.cancel`` it is returned after that, behind what
        the next consumer gets. If there is no answer in time, the broker may still deliver to this consumer: ConnectionLostError.
        """
        self._late.expect(self.number)
        # The answer comes after all acks of the channel were processed.
        try:
            async with asyncio.timeout(_REPLY_S):
                await self._channel.queue_declare(_NO_QUEUE, passive=True)
        except TimeoutError:
            raise ConnectionLostError(
                f"{self._where}: no answer within {_REPLY_S:g} s at the end of the channel that consumes {self.queue!r}",
                queue=self.queue,
            ) from None
        except _LOST:
            pass  # it has ended, by the error that was asked for or with the connection

    async def close(self) -> None:
        """End the channel politely."""
        await _closed(self._channel)

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Call something when the channel is closed, by whomever; with the refusal where the user lacks a permission."""

        def closed(closing: asyncio.Future[Any]) -> None:
            cause = None if closing.cancelled() else closing.exception()
            if isinstance(cause, aiormq_errors.ChannelAccessRefused):
                call(error_for(*refusal_told_by(cause), where=self._where, queue=self.queue))
            else:
                call(None)

        self._channel.closing.add_done_callback(closed)


class ConsumingConnection:
    """A connection of aio-pika that consumes; `open` makes it."""

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:  # noqa: ANN401
        self.where = settings.masked_url
        self._connection = connection
        self._late = LateFrames()
        self._utility: Any = None
        self._utility_lock = asyncio.Lock()
        self._number = 0

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> Self:
        """Connect. The errors are those of `aio_pika_opened`."""
        return cls(settings, await aio_pika_opened(settings))

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._connection.is_closed or self._connection.transport.connection.is_closed)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call something when the connection ends."""
        self._connection.transport.connection.closing.add_done_callback(lambda _: call())

    async def close(self) -> None:
        """Close the connection. The lines that hold messages must be abandoned before, where order counts."""
        await _closed(self._connection)
        self._late.end()

    async def consume(
        self,
        queue: str,
        prefetch: int,
        take: Callable[[Any], Coroutine[Any, Any, None]],
        cancelled: Callable[[Any], object] | None = None,
        **how: Any,  # noqa: ANN401
    ) -> LineChannel:
        """Consume a queue over a new channel.

        Args:
            queue: the queue.
            prefetch: how many messages may be delivered ahead.
            take: called with each message of aiormq.
            cancelled: called when the broker ends the consumer, for example with its queue; None closes the channel.
            how: further arguments of aiormq's `basic_consume`.
        """
        channel = await self._channel()
        async with _answered(self.where, queue):
            await channel.basic_qos(prefetch_count=prefetch)
            channel.on_consumer_cancel_callbacks.add(cancelled or (lambda _: channel.close()))
            await channel.basic_consume(queue, take, **how)
        return LineChannel(channel, queue, self.where, self._late, prefetch)

    async def declared(self, queue: str) -> Any:  # noqa: ANN401
        """Declare a queue passively, and return the answer of the broker: its name, its messages that wait, and its consumers.

        The error is NotFoundError where there is no such queue, or its node is away.
        """
        async with self._utility_lock:
            if self._utility is None or self._utility.is_closed:
                self._utility = await self._channel()
            async with _answered(self.where, queue):
                return await self._utility.queue_declare(queue, passive=True)

    async def _channel(self) -> Any:  # noqa: ANN401
        async with _answered(self.where):
            channel = await self._connection.channel(self._free_number(), publisher_confirms=False)
            underlay = await channel.get_underlay_channel()
        underlay.write_queue = _WriteQueue(underlay.write_queue)
        return underlay

    def _free_number(self) -> int:
        """Return the number of a channel that has been free for long.

        aiormq gives the number of a channel that the broker has closed to the next channel at once. It may then open that channel before
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


class GroupChannels(ConsumingConnection):
    """The connections of a member: one consumes, and one publishes. `open` makes the first, and the second is made when it is needed."""

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:  # noqa: ANN401
        super().__init__(settings, connection)
        self._writer = _Writer(settings)
        self.publish = self._writer.publish
        self.is_blocked = self._writer.is_blocked
        properties = connection.transport.connection.server_properties
        #: The version that the broker named itself by, such as ``4.3.6``.
        self.server_version = text_of(properties.get("version", "unknown"))

    async def close(self) -> None:
        """Close the connections. The lines that hold messages must be abandoned before."""
        await asyncio.gather(super().close(), self._writer.close())

    async def abandon(self, line: LineChannel) -> None:
        """End the channel of a queue with `LineChannel.abandon`, once the queue has all acks.

        A channel passes acks on to a quorum queue one by one, and keeps them back while 32 are not answered. At its end it forgets
        those (rabbit_fifo_client.erl ``settle/3``, ``close/1``, 3.8 to 4.3), and the messages come again. It passes them on with the
        next answer of the queue. `basic.get` is refused to a single active consumer's queue by the queue itself, behind the acks.
        """
        if line.has_acked:
            try:
                await line.answer()  # the channel has read all acks then
            except BrokerTimeoutError:
                raise
            except RabbitChxError:
                return  # it has ended
            with contextlib.suppress(RabbitChxError, *_LOST, TimeoutError):
                channel = await self._channel()
                async with asyncio.timeout(_APPLIED_S):
                    await channel.basic_get(line.queue)
        await line.abandon()

    async def ready_count(self, queue: str) -> int:
        """Return how many messages of a queue wait to be delivered."""
        return int((await self.declared(queue)).message_count or 0)

    async def queue_arguments(self, queue: str) -> dict[str, Any] | None:
        """Return the arguments of a queue that is fit for a group; None where the broker does not tell them.

        The error is MismatchError where the queue is no quorum queue with a single active consumer.
        """
        try:
            await self.declared(queue)
        except AccessRefusedError as refused:  # the broker names another permission
            needed = f"{refused}. A group needs the permission read on its queues"
            raise AccessRefusedError(needed, queue=queue, reply_code=refused.reply_code) from None
        arguments = dict(WANTED)
        for _ in range(_MOST_ARGUMENTS):
            try:
                async with _answered(self.where, queue):
                    channel = await self._channel()
                    await channel.queue_declare(queue, durable=True, arguments=arguments)
            except MismatchError as refusal:
                learned = learned_arguments(queue, arguments, str(refusal))
                if learned is None:
                    return None
                arguments = learned
            except BrokerRefusedError:
                return None
            else:
                await _closed(channel)
                return arguments
        return None

    async def consume_behind(
        self, queue: str, priority: int, prefetch: int, tag: str, take: Callable[[DeliveredMessage], None]
    ) -> LineChannel:
        """Consume a queue behind all that consume it already with this ``x-priority``, and call `take` with each message."""

        async def on_message(message: Any) -> None:  # noqa: ANN401
            take(_delivery(message, queue))

        return await self.consume(
            queue, prefetch, on_message, arguments={"x-priority": priority}, consumer_tag=tag
        )

    async def read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry], None]
    ) -> LineChannel:
        """Read the journal from `since_s` on, in seconds since 1970, and call `take` with the place of each entry, and the entry.

        It is declared where there is none. A user who may not declare it can use a stream that exists.
        """

        async def on_message(message: Any) -> None:  # noqa: ANN401
            offset = int((message.header.properties.headers or {}).get("x-stream-offset", -1))
            entry = JournalEntry.from_json(message.body)
            if entry is not None:
                take(offset, entry)
            with contextlib.suppress(*_LOST):
                await message.channel.basic_ack(message.delivery.delivery_tag, wait=False)

        begin = {"x-stream-offset": datetime.fromtimestamp(since_s, UTC)}
        try:
            try:
                await self.declared(journal)
            except NotFoundError:
                async with _answered(self.where, journal):
                    channel = await self._channel()
                    await channel.queue_declare(journal, durable=True, arguments=_JOURNAL_ARGUMENTS)
                await _closed(channel)
            return await self.consume(journal, _JOURNAL_PREFETCH, on_message, arguments=begin)
        except AccessRefusedError as refusal:
            raise AccessRefusedError(
                f"{refusal}. The group's journal is the stream {journal!r}: the user needs the permissions read and write on it and "
                "write on the default exchange, and configure where it is not declared yet; or give journal=None",
                queue=journal,
                reply_code=refusal.reply_code,
            ) from None


class _Writer:
    """A connection that only publishes: into the journal, and replies to whoever moves a slot.

    While an alarm of memory or disk lasts, the broker reads nothing more from a connection that publishes (rabbit_reader.erl,
    ``control_throttle``, 3.8 to 4.3): neither messages nor acks. So a member consumes over one connection and publishes over
    another one. What it publishes waits for the end of the alarm, and its handlers and acks go on.

    It is opened when it is needed, and opened anew when it is lost.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._where = settings.masked_url
        self._connection: Any = None
        self._channel: Any = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def publish(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to a queue, over one connection after another until the broker has confirmed it. It may be there twice then.

        Whoever waits decides for how long: an alarm may last for hours. An error is one that another attempt would not mend.
        """
        properties = spec.Basic.Properties(headers=dict(headers or {}), delivery_mode=2)
        while True:
            channel = None
            try:
                channel = await self._opened()
                await self._confirmed(channel, queue, body, properties)
            except RabbitChxError as error:
                self._drop(channel)
                if not is_transient(error):
                    raise
                _log.info("%s; publishing to %s again in %g s", error, queue, _REPUBLISH_S)
                await asyncio.sleep(_REPUBLISH_S)
            else:
                return

    async def is_blocked(self) -> bool:
        """Return whether the broker has said that it blocks publishers."""
        if self._channel is None or self._channel.is_closed:
            return False
        try:
            async with asyncio.timeout(_LOOK_S):  # it ends at once where nothing is blocked
                await self._channel.connection.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """Close the connection."""
        self._drop(self._channel)
        await asyncio.gather(*self._closing)

    async def _opened(self) -> Any:  # noqa: ANN401
        async with self._opening:
            if self._channel is None:
                self._connection = await aio_pika_opened(self._settings)
                link = self._connection.transport.connection
                async with _answered(self._where):
                    self._channel = await link.channel(publisher_confirms=True)
            return self._channel

    async def _confirmed(self, channel: Any, queue: str, body: bytes, properties: Any) -> None:  # noqa: ANN401
        """Publish, and wait for the confirm: as long as the broker blocks publishers, and `_REPLY_S` more."""
        publishing = asyncio.ensure_future(
            channel.basic_publish(body, routing_key=queue, properties=properties)
        )
        if not await came(publishing, _REPLY_S, self.is_blocked):
            raise ConnectionLostError(
                f"{self._where}: no confirm from {queue!r} within {_REPLY_S:g} s", queue=queue
            )
        async with _answered(self._where, queue):
            await publishing

    def _drop(self, channel: Any) -> None:  # noqa: ANN401
        """Give up the connection of a channel, unless there is another one already."""
        if channel is not self._channel:
            return
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            task = asyncio.get_running_loop().create_task(_closed(connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _delivery(message: Any, queue: str) -> DeliveredMessage:  # noqa: ANN401
    """Return a message of aiormq as a seat takes it; `queue` is the queue that it counts for."""
    properties = message.header.properties
    set_properties = {
        name: value for name in _PROPERTIES if (value := getattr(properties, name, None)) is not None
    }
    content = message_of(
        GroupMessage, message, queue, exchange=message.delivery.exchange or "", properties=set_properties
    )
    return DeliveredMessage(
        message.delivery.delivery_tag,
        content.routing_key,
        content,
        HandOverMarker.from_headers(content.headers),
        properties.reply_to,
    )

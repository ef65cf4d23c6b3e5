"""The adapter for aio-pika: one connection that consumes each queue over its own channel, and one that publishes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from aiormq import exceptions as aiormq_errors
from aiormq import spec

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.fields import PROPERTY_FLAGS
from rabbit_chx.amqp.frames import error_for, is_transient
from rabbit_chx.checks import is_whole
from rabbit_chx.connection.aio_pika_opening import (
    LOST,
    decode_text,
    error_text,
    ignore_loss,
    open_aio_pika,
    parse_refusal,
)
from rabbit_chx.connection.failures import raise_if_cancelled
from rabbit_chx.consuming.journal import WITHOUT_JOURNAL, JournalEntry, entry_in
from rabbit_chx.consuming.message import GroupMessage, convert_message
from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.consuming.queue_checks import NEVER_CREATED, REQUIRED_ARGUMENTS, is_deleted, learn_argument
from rabbit_chx.consuming.settings import start_task, wait_to_publish, wait_unless_blocked
from rabbit_chx.topology.slots import HandOverMarker

#: Time limits in seconds: of a response of the broker, of closing a connection, and until a quorum queue has applied all acks.
_REPLY_S = 30.0
_CLOSE_S = 3.0
_APPLIED_S = 10.0
#: Seconds for the test whether publishers are blocked.
_BLOCKED_TEST_S = 0.01
#: Seconds for which a queue that was left out is consumed alone.
_ALONE_S = 3.0
_MAX_CHANNELS = 65535
_MAX_ARGUMENTS = 30  # of a queue, learned one by one
_JOURNAL_PREFETCH = 200
#: The journal keeps the last 10 MB, about ten thousand entries.
_JOURNAL_ARGUMENTS = {
    "x-queue-type": "stream",
    "x-max-length-bytes": 10_000_000,
    "x-stream-max-segment-size-bytes": 1_000_000,
}
#: A queue that does not exist; declaring it passively closes the channel. The name appears in the broker's log.
_MISSING_QUEUE = "rabbit-chx: a consumer of a group leaves its queue"
#: The properties of a message that are no attributes of `GroupMessage`, each with its name in aiormq.
_PROPERTIES = {name: name for name in PROPERTY_FLAGS if name not in ("headers", "message_id")} | {
    "type": "message_type"
}
_AIORMQ_LOG = logging.getLogger("aiormq.connection")
_LATE_FRAME = "Got frame for closed channel"


@contextlib.asynccontextmanager
async def _expect_reply(where: str, queue: str | None = None, connection: Any = None) -> AsyncIterator[None]:
    """Limit the time of a request in the block, and raise the errors of aiormq as those of `rabbit_chx.errors`.

    A request that finds its connection of aiormq closed fails with the reason for which the broker closed it.
    """
    error: errors.RabbitChxError
    try:
        async with asyncio.timeout(_REPLY_S):
            yield
    except TimeoutError:
        error = errors.BrokerTimeoutError(
            f"{where}: no answer within {_REPLY_S:g} s: look at the broker's log and alarms", queue=queue
        )
    except errors.RabbitChxError:
        raise
    except LOST as cause:
        raise_if_cancelled(cause)
        reason = None if connection is None else _reason_of_close(connection)
        error = _close_error(cause if reason is None else reason, where, queue)
    else:
        return
    raise error


def _reason_of_close(connection: Any) -> BaseException | None:
    """Return the error with which the broker closed a connection of aiormq; None if it has not."""
    closing: asyncio.Future[Any] = connection.closing
    if not closing.done() or closing.cancelled():
        return None
    error = closing.exception()
    return error if error is not None and parse_refusal(error) is not None else None


def _close_error(cause: BaseException, where: str, queue: str | None) -> errors.RabbitChxError:
    reply = parse_refusal(cause)
    if reply is not None:
        return error_for(*reply, where=where, queue=queue)
    return errors.ConnectionLostError(f"{where}: the connection was lost ({error_text(cause)})", queue=queue)


async def _close(connection: Any) -> None:  # of aio-pika
    """Close a connection or a channel of aio-pika; ignore errors."""
    with ignore_loss():
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()


class LateFrameFilter(logging.Filter):
    """Removes log records of aiormq about messages for a closed channel: the broker had sent them before, and requeues them."""

    def __init__(self) -> None:
        super().__init__()
        self._channels: set[int] = set()

    def expect(self, channel: int) -> None:
        """Remove the records about a channel that is being closed."""
        self._channels.add(channel)
        _AIORMQ_LOG.addFilter(self)

    def uninstall(self) -> None:
        """Remove the filter from the logger."""
        _AIORMQ_LOG.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        number = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return not (number in self._channels and str(record.msg).startswith(_LATE_FRAME))


class _WriteQueue:
    """The write queue of a connection, as a channel of aiormq accesses it. It never drops a frame.

    aiormq drops ``channel.close-ok`` if ten frames wait to be written (7.2.4, ``Channel._on_close_frame``). The broker then keeps the
    channel and delivers to its consumers, and these messages are unavailable until the connection ends.
    """

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue
        self._waiting: set[asyncio.Task[None]] = set()

    def put(self, frame: Any) -> Coroutine[Any, Any, None]:
        return self._queue.put(frame)

    def put_nowait(self, frame: Any) -> None:
        start_task(self._queue.put(frame), self._waiting)


class ConsumerChannel:
    """A consumer of a queue, on its own channel. `ConsumingConnection.consume` creates it."""

    def __init__(
        self,
        channel: Any,
        queue: str,
        where: str,
        late_frames: LateFrameFilter,
        prefetch: int,
    ) -> None:
        self._channel = channel
        self.queue = queue
        self._where = where
        self._late_frames = late_frames
        self._prefetch = prefetch
        #: True if a message was acknowledged.
        self.has_acked = False
        #: True if the broker has cancelled the consumer.
        self.is_cancelled = False

    @property
    def is_closed(self) -> bool:
        """True if the channel is closed."""
        return bool(self._channel.is_closed)

    async def ack(self, tag: int) -> None:
        """Acknowledge a message, unless the channel is closed."""
        self.has_acked = True
        with ignore_loss():
            await self._channel.basic_ack(tag, wait=False)

    async def reject(self, tag: int) -> None:
        """Reject a message without requeue, unless the channel is closed."""
        with ignore_loss():
            await self._channel.basic_reject(tag, requeue=False, wait=False)

    async def sync(self) -> None:
        """Wait for a response over this channel. By then the broker has processed all earlier acks of the channel."""
        # A repeated basic.qos only affects later consumers of the channel, and there are none.
        async with _expect_reply(self._where, self.queue):
            await self._channel.basic_qos(prefetch_count=self._prefetch)

    async def fetch(self, queue: str) -> DeliveredMessage | None:
        """Get one message of another queue; None if the queue is empty."""
        async with _expect_reply(self._where, queue):
            message = await self._channel.basic_get(queue)
        return (
            _convert_delivery(message, self.queue) if isinstance(message.delivery, spec.Basic.GetOk) else None
        )

    async def abandon(self) -> None:
        """Close the channel by an error; a ConnectionLostError if the broker may still deliver to this consumer.

        The broker then requeues its messages before it elects the next consumer. After ``basic.cancel`` it requeues them later, after the
        messages that it delivers to the next consumer.
        """
        self._late_frames.expect(self._channel.number)
        # The broker responds after it has processed all acks of the channel.
        try:
            async with asyncio.timeout(_REPLY_S):
                await self._channel.queue_declare(_MISSING_QUEUE, passive=True)
        except TimeoutError:
            raise errors.ConnectionLostError(
                f"{self._where}: no answer within {_REPLY_S:g} s at the end of the channel that consumes {self.queue!r}",
                queue=self.queue,
            ) from None
        except LOST as error:  # closed, by the provoked error or with the connection
            raise_if_cancelled(error)

    async def close(self) -> None:
        """Close the channel."""
        await _close(self._channel)

    def when_closed(self, call: Callable[[errors.RabbitChxError | None], None]) -> None:
        """Register a callback for the end of the channel.

        Its argument is an error if the user lacks a permission, or if the broker has cancelled the consumer; else None.
        """

        def closed(closing: asyncio.Future[Any]) -> None:
            cause = None if closing.cancelled() else closing.exception()
            if isinstance(cause, aiormq_errors.ChannelAccessRefused):
                call(_close_error(cause, self._where, self.queue))
            elif isinstance(cause, aiormq_errors.ConnectionClosed) and parse_refusal(cause):
                # Whether a new connection helps is what the attempt to open it finds.
                reason = _close_error(cause, self._where, self.queue)
                call(errors.ConnectionLostError(f"{reason}", queue=self.queue, reply_code=reason.reply_code))
            else:
                call(self._cancellation() if self.is_cancelled else None)

        self._channel.closing.add_done_callback(closed)

    def _cancellation(self) -> errors.ConnectionLostError:
        message = (
            f"{self._where}: the broker cancelled the consumer of {self.queue!r}: the queue was deleted, or from 4.3 on a handler exceeded "
            "the consumer timeout"
        )
        if self._prefetch > 1:
            message += (
                ". A timeout breaks the order of the prefetched messages: raise it (argument or policy of the queue, or consumer_timeout of "
                "the broker), or lower prefetch"
            )
        return errors.ConnectionLostError(message, queue=self.queue)


class ConsumingConnection:
    """A connection of aio-pika that consumes; create it with `open`."""

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:
        self.where = settings.masked_url
        self._connection = connection
        self._aiormq = connection.transport.connection  # the connection below that of aio-pika
        self._late_frames = LateFrameFilter()
        self._declaring: Any = None  # the channel of passive declarations
        self._declaring_lock = asyncio.Lock()
        self._last_number = 0  # of a channel
        self._closing: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> Self:
        """Connect. The errors are those of `open_aio_pika`."""
        return cls(settings, await open_aio_pika(settings))

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return bool(self._connection.is_closed or self._aiormq.is_closed)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""
        self._aiormq.closing.add_done_callback(lambda _: call())

    async def close(self) -> None:
        """Close the connection. To keep the order, abandon channels that hold messages first."""
        await _close(self._connection)
        self._late_frames.uninstall()

    async def consume(
        self,
        queue: str,
        prefetch: int,
        take: Callable[[Any], Coroutine[Any, Any, None]],
        cancelled: Callable[[Any], object] | None = None,
        **options: Any,
    ) -> ConsumerChannel:
        """Consume a queue over a new channel.

        Args:
            queue: the queue.
            prefetch: the number of messages that may be delivered ahead.
            take: called with each message of aiormq.
            cancelled: called when the broker cancels the consumer, for example because the queue was deleted; None closes the channel.
            options: further arguments of aiormq's `basic_consume`.
        """
        channel = await self._open_channel()
        async with _expect_reply(self.where, queue):
            await channel.basic_qos(prefetch_count=prefetch)
            consumer = ConsumerChannel(channel, queue, self.where, self._late_frames, prefetch)
            channel.on_consumer_cancel_callbacks.add(cancelled or (lambda _: self._close_soon(consumer)))
            await channel.basic_consume(queue, take, **options)
        return consumer

    def _close_soon(self, consumer: ConsumerChannel) -> None:
        consumer.is_cancelled = True
        # aiormq calls the callback in the task that reads the channel, which would wait for its own answer.
        start_task(consumer.close(), self._closing)

    async def declare_passively(self, queue: str) -> Any:
        """Return the queue's name, number of ready messages and number of consumers."""
        async with self._declaring_lock:
            if self._declaring is None or self._declaring.is_closed:
                self._declaring = await self._open_channel()
            async with _expect_reply(self.where, queue):
                return await self._declaring.queue_declare(queue, passive=True)

    async def _open_channel(self) -> Any:
        async with _expect_reply(self.where, connection=self._aiormq):
            channel = await self._connection.channel(self._next_number(), publisher_confirms=False)
            underlay = await channel.get_underlay_channel()
        underlay.write_queue = _WriteQueue(underlay.write_queue)
        return underlay

    def _next_number(self) -> int:
        """Return the channel number that has been free for the longest time.

        aiormq reuses the number of a channel that the broker has closed at once. It may then open the new channel before it has confirmed
        the close, and the broker closes the connection (541, "second 'channel.open' seen").
        """
        used = self._aiormq.channels
        most = self._aiormq.connection_tune.channel_max or _MAX_CHANNELS
        numbers = ((self._last_number + step) % most + 1 for step in range(most))
        self._last_number = next((number for number in numbers if number not in used), 0)
        if not self._last_number:
            raise errors.InputError(
                f"{self.where}: all {most:,} channels of the connection are in use, and each queue takes one: assign fewer "
                "queues to each member, or raise channel_max on the broker"
            )
        return self._last_number


async def consume_alone(settings: ConnectionSettings, queue: str, prefetch: int) -> None:
    """Consume a queue for some seconds over a connection of its own, and return what it delivers, in order.

    Raises:
        RabbitChxError: the broker has closed the connection, or refuses the consumer.
    """

    async def take(_message: Any) -> None:
        """Leave the message to the next consumer."""

    connection = await ConsumingConnection.open(settings)
    try:
        channel = await connection.consume(queue, prefetch, take)
        await asyncio.sleep(_ALONE_S)
        await channel.sync()
        await channel.abandon()
    finally:
        await connection.close()


class GroupConnection(ConsumingConnection):
    """The connection of a group member, with another one that publishes (`_Writer`)."""

    channels_fail_alone = False
    has_priorities = True
    lost_at: float | None = None  # only a `StreamGroupConnection` lives on after a loss

    def __init__(self, settings: ConnectionSettings, connection: Any) -> None:
        super().__init__(settings, connection)
        self._writer = _Writer(settings)
        self.publish = self._writer.publish
        self.is_blocked = self._writer.is_blocked
        #: The version of the broker, such as ``4.3.6``.
        self.server_version = decode_text(self._aiormq.server_properties.get("version", "unknown"))

    async def close(self) -> None:
        """Close the connections. Abandon channels that hold messages first."""
        await asyncio.gather(super().close(), self._writer.close())

    async def abandon(self, channel: ConsumerChannel) -> None:
        """Close the channel of a queue with `ConsumerChannel.abandon`, once the queue has applied all acks.

        A channel passes acks to a quorum queue one by one, and buffers them while 32 are unconfirmed. When it closes, it drops the buffer
        (rabbit_fifo_client.erl ``settle/3``, ``close/1``, 3.10 to 4.3), and the messages are redelivered. It passes buffered acks on with
        the next response of the queue. The queue itself refuses `basic.get` because of its single active consumer, after the acks.
        """
        if channel.has_acked:
            try:
                await channel.sync()  # the broker's channel has read all acks then
            except errors.BrokerTimeoutError:
                raise
            except errors.RabbitChxError:
                return  # it is closed
            with ignore_loss():
                other = await self._open_channel()
                async with asyncio.timeout(_APPLIED_S):
                    await other.basic_get(channel.queue)
        await channel.abandon()

    async def ready_count(self, queue: str) -> int:
        """Return the number of ready messages of a queue."""
        return int((await self.declare_passively(queue)).message_count or 0)

    async def queue_arguments(
        self, queue: str, expected: Mapping[str, Any] = REQUIRED_ARGUMENTS
    ) -> dict[str, Any] | None:
        """Return the arguments of a queue, None if the broker does not reveal them; a MismatchError if it is not suitable for a group.

        If they are the expected ones, the broker refuses no declaration. No declaration creates a queue that another program deletes meanwhile
        (`NEVER_CREATED`).
        """
        try:
            await self.declare_passively(queue)
        except errors.AccessRefusedError as refused:  # the broker names only one of the permissions
            raise refused.reworded(f"{refused}. A group needs the permission read on its queues") from None

        arguments = dict(expected)
        for _ in range(_MAX_ARGUMENTS):
            try:
                async with _expect_reply(self.where, queue):
                    channel = await self._open_channel()
                    await channel.queue_declare(queue, durable=True, arguments={**arguments, **NEVER_CREATED})
            except errors.MismatchError as refusal:
                if is_deleted(str(refusal)):
                    await self.declare_passively(queue)  # raises a NotFoundError, unless it exists again
                    continue
                learned = learn_argument(queue, arguments, str(refusal))
                if learned is None:
                    return None
                arguments = learned
            except errors.BrokerRefusedError:
                return None
            else:
                await _close(channel)
                return arguments

        return None

    async def consume_behind(
        self, queue: str, priority: int, prefetch: int, tag: str, take: Callable[[DeliveredMessage], None]
    ) -> ConsumerChannel:
        """Consume a queue after all present consumers of the same ``x-priority``, and call `take` with each message."""

        async def on_message(message: Any) -> None:
            take(_convert_delivery(message, queue))

        return await self.consume(
            queue, prefetch, on_message, arguments={"x-priority": priority}, consumer_tag=tag
        )

    async def read_journal(
        self, journal: str, since_s: float, take: Callable[[int, JournalEntry | None], None]
    ) -> ConsumerChannel:
        """Read the journal from `since_s` on, in seconds since 1970, and call `take` with the offset of each entry, and the entry.

        The entry is None if it cannot be read. The journal is declared if it was deleted.
        """

        async def on_message(message: Any) -> None:
            offset = int((message.header.properties.headers or {}).get("x-stream-offset", -1))
            take(offset, entry_in(message.body))
            with ignore_loss():
                await message.channel.basic_ack(message.delivery.delivery_tag, wait=False)

        begin = {"x-stream-offset": datetime.fromtimestamp(since_s, UTC)}
        await self.declare_journal(journal)
        try:
            return await self.consume(journal, _JOURNAL_PREFETCH, on_message, arguments=begin)
        # Also of a queue that is not a stream: "invalid arg 'x-stream-offset'".
        except errors.BrokerRefusedError as refusal:
            raise _journal_refusal(refusal, journal) from None

    async def declare_journal(self, journal: str) -> None:
        """Declare the journal, unless it exists: then the user needs no permission configure.

        Raises:
            BrokerRefusedError: the broker refuses a stream, for example by ``queue_types.stream.enabled = false`` (4.2 and newer), a disabled
                feature flag, a limit of queues or a permission. Nothing was declared.
        """
        try:
            try:
                await self.declare_passively(journal)
            except errors.NotFoundError:
                async with _expect_reply(self.where, journal):
                    channel = await self._open_channel()
                    await channel.queue_declare(journal, durable=True, arguments=_JOURNAL_ARGUMENTS)
                await _close(channel)
        except errors.BrokerRefusedError as refusal:
            raise _journal_refusal(refusal, journal) from None


class _Writer:
    """A connection that only publishes: journal entries, and replies to the process that moves a slot.

    During a memory or disk alarm, the broker reads nothing from a connection that publishes (rabbit_reader.erl, ``control_throttle``, 3.10
    to 4.3): neither messages nor acks. So a member consumes over one connection and publishes over another. Publishing waits for the end of
    the alarm, while handlers and acks continue.

    The connection is opened on first use, and again after a loss.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._where = settings.masked_url
        self._connection: Any = None
        self._channel: Any = None
        self._open_lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def publish(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to a queue, and repeat it over new connections until the broker has confirmed it. The message may be stored twice.

        The wait is not limited, since an alarm may last for hours: callers set their own limit. Permanent errors are raised, and so is a limit of
        connections or channels, which ends the group after `FailurePolicy.reconnect_timeout_s`.
        """
        failures = 0
        properties = spec.Basic.Properties(headers=dict(headers or {}), delivery_mode=2)
        while True:
            channel = None
            try:
                channel = await self._open()
                await self._publish_once(channel, queue, body, properties)
            except errors.RabbitChxError as error:
                self._drop(channel)
                if not is_transient(error) or isinstance(error, errors.ConnectionLimitError):
                    raise
                failures += 1
                await wait_to_publish(failures, error, queue)
            else:
                return

    async def is_blocked(self) -> bool:
        if self._channel is None or self._channel.is_closed:
            return False
        with ignore_loss():
            try:
                # It returns at once unless publishers are blocked.
                async with asyncio.timeout(_BLOCKED_TEST_S):
                    await self._channel.connection.ready()
            except TimeoutError:
                return True
        return False

    async def close(self) -> None:
        self._drop(self._channel)
        await asyncio.gather(*self._closing)

    async def _open(self) -> Any:
        async with self._open_lock:
            if self._channel is None:
                self._connection = await open_aio_pika(self._settings)
                async with _expect_reply(self._where):
                    aiormq = self._connection.transport.connection
                    self._channel = await aiormq.channel(publisher_confirms=True)
            return self._channel

    async def _publish_once(self, channel: Any, queue: str, body: bytes, properties: Any) -> None:
        """Publish and await the confirm, for `_REPLY_S` plus the time for which the broker blocks publishers."""
        publishing = asyncio.ensure_future(
            channel.basic_publish(body, routing_key=queue, properties=properties)
        )
        if not await wait_unless_blocked(publishing, _REPLY_S, self.is_blocked):
            raise errors.ConnectionLostError(
                f"{self._where}: {queue!r} confirmed nothing for {_REPLY_S:g} s", queue=queue
            )
        async with _expect_reply(self._where, queue):
            await publishing

    def _drop(self, channel: Any) -> None:
        """Close the connection of a channel, unless it was replaced already."""
        if channel is not self._channel:
            return
        connection = self._connection
        self._connection = None
        self._channel = None
        if connection is not None:
            start_task(_close(connection), self._closing)


def _journal_refusal(refusal: errors.BrokerRefusedError, journal: str) -> errors.BrokerRefusedError:
    """Return a refusal of the journal with its remedies."""
    needs = ""
    if isinstance(refusal, errors.AccessRefusedError):
        needs = ": the user needs the permissions read on it and write on the default exchange, and configure where it is not declared yet"
    words = f"{refusal}. The group's journal is the stream {journal!r}{needs}. {WITHOUT_JOURNAL}"
    return refusal.reworded(words, queue=journal)


def _convert_delivery(message: Any, queue: str) -> DeliveredMessage:
    """Convert a message of aiormq. `queue` is the consumed queue, also for a message that was parked for it."""
    properties = message.header.properties
    set_properties = {}
    for name, theirs in _PROPERTIES.items():
        value = getattr(properties, theirs, None)
        is_absent = value is None or (name == "cluster_id" and not value)  # pamqp has an empty text
        if not is_absent:
            set_properties[name] = value

    content = convert_message(
        GroupMessage, message, queue, exchange=message.delivery.exchange or "", properties=set_properties
    )
    returns = content.headers.get("x-delivery-count")  # of the broker, or anything of a publisher

    return DeliveredMessage(
        message.delivery.delivery_tag,
        content.routing_key,
        content,
        HandOverMarker.from_headers(content.headers),
        properties.reply_to,
        returns=returns if is_whole(returns, 0) else 0,
    )

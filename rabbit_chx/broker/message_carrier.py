"""A connection that carries messages: it takes them out of a queue, byte for byte, and publishes them again.

It is one of pika for the asyncio broker too, in a thread. aiormq gives each message that has none a message id, and both clients
read headers into types of Python, which lose those of the wire. So properties go as the bytes that came.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pika
from pika import exceptions as pika_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.operations import QueueCounts, QueueDeclare
from rabbit_chx.topology.steps import (
    CarrierEnd,
    CarrierStep,
    HandOverMarker,
    MarkerReply,
    MarkerSending,
    MessageTransfer,
    Pause,
)

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

_log = logging.getLogger(__name__)

_PERSISTENT = 2
_LOOK_S = 0.5
#: How many copies may wait for their confirmation. After a crash this many messages may be there twice.
_WINDOW = 100
_RETURNED = "no queue takes it"


class MessageCarrier:
    """What carries messages for a sequence. It connects when it is first needed, and again after an error.

    Args:
        settings: the settings of the connection.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._where = settings.masked_url
        self._lock = threading.Lock()  # a task that is cancelled leaves its step to a thread
        self._connection: PikaConnection | None = None
        self._replies: tuple[AbstractContextManager[BlockingChannel], str] | None = None
        self._replied: list[HandOverMarker] = []

    def answer(self, step: CarrierStep) -> int | bool | None:
        """Do a step and return the answer to it. This blocks.

        Args:
            step: the step.

        Raises:
            RabbitChxError: the broker refuses a message, or the connection ended.
        """
        with self._lock:
            return self._answer(step)

    def _answer(self, step: CarrierStep) -> int | bool | None:
        try:
            match step:
                case MessageTransfer():
                    return self._transferred(step)
                case MarkerSending():
                    self._send(step)
                case MarkerReply():
                    return self._came(step)
                case Pause(seconds):
                    time.sleep(seconds)
                case CarrierEnd():
                    self._close()
        except BaseException:
            self._close()  # what it holds goes back to the head of its queue
            raise
        return None

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection, self._replies = self._connection, None, None
        self._replied.clear()
        if connection is not None:
            connection.close()

    @property
    def _connected(self) -> PikaConnection:
        if self._connection is None:
            self._connection = PikaConnection(self._settings)
        return self._connection

    def _transferred(self, step: MessageTransfer) -> int:
        connection = self._connected
        with connection.channel(raw_headers=True) as taking, connection.channel() as giving:
            copies = _Copies(connection, giving)
            count = 0
            while count < step.limit and not copies.refused:
                message: Any = taking.basic_get(step.queue)
                method, properties, body = message
                if method is None:
                    break
                copies.publish(step.exchange, method, _AsTheyCame(properties.raw), body)
                count += 1
                for tag in copies.confirmed(_WINDOW):
                    taking.basic_ack(tag)
            for tag in copies.confirmed(0):
                taking.basic_ack(tag)
            if copies.refused:
                raise BrokerRefusedError(
                    f"{self._where}: a message of the parking queue {step.queue} was published once more to {step.exchange}, and "
                    f"{copies.refused}: it is in the parking queue still; make room, then apply again",
                    exchange=step.exchange,
                    queue=step.queue,
                )
        _log.info(
            "%s: %d messages of %s published once more to %s", self._where, count, step.queue, step.exchange
        )
        return count

    def _send(self, step: MarkerSending) -> None:
        if self._replies is None:
            self._replies = self._reply_queue()
        properties = pika.BasicProperties(
            headers=dict(step.marker.headers()), delivery_mode=_PERSISTENT, reply_to=self._replies[1]
        )
        try:
            with self._connected.channel() as channel:
                channel.confirm_delivery()
                channel.basic_publish("", step.queue, b"", properties, mandatory=True)
        except (pika_errors.UnroutableError, pika_errors.NackError):
            raise BrokerRefusedError(
                f"{self._where}: queue {step.queue} does not take the marker of a hand-over: see whether it exists, and is full",
                queue=step.queue,
            ) from None

    def _reply_queue(self) -> tuple[AbstractContextManager[BlockingChannel], str]:
        opened = self._connected.channel()
        channel = opened.__enter__()
        queue = str(channel.queue_declare("", exclusive=True).method.queue)

        def replied(
            _channel: object, _method: object, properties: pika.BasicProperties, _body: bytes
        ) -> None:
            marker = HandOverMarker.from_headers(properties.headers)
            if marker is not None:
                self._replied.append(marker)

        channel.basic_consume(queue, replied, auto_ack=True)
        return opened, queue

    def _came(self, step: MarkerReply) -> bool:
        wanted = step.marker.reply(step.kind)
        began_at = read_at = time.monotonic()
        lengths = self._lengths(step.queues)
        while wanted not in self._replied:
            now = time.monotonic()
            left_s = min(read_at + step.timeout_s, began_at + step.longest_s) - now
            if left_s <= 0:
                return False
            self._connected.process(min(left_s, _LOOK_S))
            before, lengths = lengths, self._lengths(step.queues)
            if any(length < before.get(queue, 0) for queue, length in lengths.items()):
                read_at = now
        return True

    def _lengths(self, queues: tuple[str, ...]) -> dict[str, int]:
        """Return how many messages wait in each queue that exists."""
        answers = {queue: self._connected.perform(QueueDeclare(queue, passive=True)) for queue in queues}
        return {
            queue: counts.messages for queue, counts in answers.items() if isinstance(counts, QueueCounts)
        }


class _Copies:
    """Messages that are published once more, and not all confirmed yet. pika's blocking channel waits for each of them."""

    def __init__(self, connection: PikaConnection, channel: BlockingChannel) -> None:
        self._connection = connection
        self._inner: Any = channel._impl  # type: ignore[attr-defined]  # noqa: SLF001
        self._open: dict[int, int] = {}
        self._count = 0
        self._done: list[int] = []
        self.refused = ""
        ready: list[object] = []
        self._inner.add_on_return_callback(self._on_return)
        self._inner.confirm_delivery(self._on_answer, ready.append)
        connection.wait_until(lambda: bool(ready))

    def publish(self, exchange: str, method: Any, properties: pika.BasicProperties, body: bytes) -> None:  # noqa: ANN401
        """Publish the copy of a message."""
        self._count += 1
        self._open[self._count] = method.delivery_tag
        self._inner.basic_publish(exchange, method.routing_key, body, properties, mandatory=True)

    def confirmed(self, most: int) -> list[int]:
        """Wait until at most this many copies are open; return the delivery tags of those that were confirmed since."""
        self._connection.wait_until(lambda: len(self._open) <= most)
        done, self._done = self._done, []
        return done

    def _on_answer(self, frame: Any) -> None:  # noqa: ANN401
        answer = frame.method
        tags = (
            [tag for tag in self._open if tag <= answer.delivery_tag]
            if answer.multiple
            else [answer.delivery_tag]
        )
        for tag in tags:
            original = self._open.pop(tag)
            if isinstance(answer, pika.spec.Basic.Nack):
                self.refused = self.refused or "a queue refuses it, which is full for example"
            # A return comes before the answer, and does not say to which copy it belongs.
            elif self.refused != _RETURNED:
                self._done.append(original)

    def _on_return(self, *_message: object) -> None:
        self.refused = _RETURNED


class _AsTheyCame(pika.BasicProperties):
    """Properties as the bytes that the broker sent."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self._raw = raw

    def encode(self) -> list[bytes]:
        return [self._raw]

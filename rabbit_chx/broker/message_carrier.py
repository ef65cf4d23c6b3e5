"""A connection that moves messages: it takes them from a queue and publishes them again, byte for byte.

pika decodes headers to Python types, which lose the wire types. So properties are copied as the received bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pika
from pika import exceptions as pika_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.broker.live_broker import try_count
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.slots.hand_over_marker import HandOverMarker

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

_log = logging.getLogger(__name__)

_PERSISTENT = 2
_LOOK_S = 0.5
#: The largest number of unconfirmed copies. A crash may duplicate this many messages.
_WINDOW = 100
_RETURNED = "no queue takes it"


class PikaCarrier:
    """Moves messages. It connects on first use, and again after an error."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._where = settings.masked_url
        self._connection: PikaConnection | None = None
        self._replies: tuple[ExitStack, str] | None = None
        self._replied: list[HandOverMarker] = []

    def close(self) -> None:
        """Close the connection, if it is open."""
        connection = self._connection
        self._connection = None
        self._replies = None
        self._replied.clear()
        if connection is not None:
            connection.close()

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:
        """Publish the first messages of a queue to an exchange, with all their properties, and return their number.

        Each message is removed only after the broker has confirmed its copy. So a crash may duplicate a message, but does not lose one. The
        number is less than `limit` if the queue has no more messages.

        Raises:
            RabbitChxError: the broker refuses a message, or the connection is closed.
        """
        with (
            self._connect() as connection,
            connection.channel(raw_headers=True) as taking,
            connection.channel() as giving,
        ):
            copies = _Copies(connection, giving)
            count = 0
            while count < limit and not copies.refused:
                message: Any = taking.basic_get(queue)
                method, properties, body = message
                if method is None:
                    break
                copies.publish(exchange, method, _RawProperties(properties.raw), body)
                count += 1
                for tag in copies.take_confirmed(_WINDOW):
                    taking.basic_ack(tag)
            for tag in copies.take_confirmed(0):
                taking.basic_ack(tag)
            if copies.refused:
                raise BrokerRefusedError(
                    f"{self._where}: a message of the parking queue {queue} was published once more to {exchange}, and "
                    f"{copies.refused}: it is in the parking queue still; make room, then apply again",
                    exchange=exchange,
                    queue=queue,
                )
        _log.info(
            "%s: %d messages of %s published once more to %s",
            self._where,
            count,
            queue,
            exchange,
            extra={"queue": queue, "exchange": exchange},
        )
        return count

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        """Send a marker to a queue, with a confirm. Replies are sent to a queue of the carrier.

        Raises:
            RabbitChxError: the broker refuses the marker, or the connection is closed.
        """
        with self._connect() as connection:
            if self._replies is None:
                self._replies = self._open_replies(connection)
            properties = pika.BasicProperties(
                headers=dict(marker.headers()), delivery_mode=_PERSISTENT, reply_to=self._replies[1]
            )
            with connection.channel() as channel:
                channel.confirm_delivery()
                try:
                    channel.basic_publish("", queue, b"", properties, mandatory=True)
                except (pika_errors.UnroutableError, pika_errors.NackError):
                    raise BrokerRefusedError(
                        f"{self._where}: queue {queue} does not take the marker of a hand-over: check whether it exists or is full",
                        queue=queue,
                    ) from None

    def wait_for_reply(
        self,
        marker: HandOverMarker,
        kind: Literal["flushed", "taken"],
        *,
        timeout_s: float,
        longest_s: float,
        queues: Sequence[str],
    ) -> bool:
        """Wait for the reply to a marker, as `rabbit_chx.broker.live_broker` defines it."""
        wanted = marker.reply(kind)
        began_at = read_at = time.monotonic()
        with self._connect() as connection:
            lengths = self._lengths(connection, queues)
            while wanted not in self._replied:
                now = time.monotonic()
                left_s = min(read_at + timeout_s, began_at + longest_s) - now
                if left_s <= 0:
                    return False
                connection.process(min(left_s, _LOOK_S))
                before = lengths
                lengths = self._lengths(connection, queues)
                if any(length < before.get(queue, 0) for queue, length in lengths.items()):
                    read_at = now
        return True

    @contextmanager
    def _connect(self) -> Iterator[PikaConnection]:
        """Yield the connection, and close it if the block raises: unacknowledged messages return to the head of their queue."""
        try:
            if self._connection is None:
                self._connection = PikaConnection(self._settings)
            yield self._connection
        except BaseException:
            self.close()
            raise

    def _open_replies(self, connection: PikaConnection) -> tuple[ExitStack, str]:
        def keep_reply(_channel: object, _method: object, properties: Any, _body: bytes) -> None:
            marker = _marker_in(properties.raw)
            if marker is not None:
                self._replied.append(marker)

        with ExitStack() as opened:
            channel = opened.enter_context(connection.channel(raw_headers=True))
            queue = str(channel.queue_declare("", exclusive=True).method.queue)
            channel.basic_consume(queue, keep_reply, auto_ack=True)
            return opened.pop_all(), queue

    @staticmethod
    def _lengths(connection: PikaConnection, queues: Sequence[str]) -> dict[str, int]:
        counted = {queue: try_count(connection, queue) for queue in queues}
        return {queue: counts.messages for queue, counts in counted.items() if counts is not None}


def _marker_in(properties: bytes) -> HandOverMarker | None:
    """Return the marker in the properties of a message; None if it is not a marker."""
    table = dict(properties_in(properties).get("headers", ())).get(HandOverMarker.HEADER.encode())
    if table is None or table.type != "table":
        return None
    fields = {
        name.decode(errors="replace"): field.value for name, field in table.value if field.type == "longstr"
    }
    texts = {name: value.decode(errors="replace") for name, value in fields.items()}
    return HandOverMarker.from_headers({HandOverMarker.HEADER: texts})


class _Copies:
    """Published copies that are not yet confirmed. pika's blocking channel waits for each confirm."""

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

    def publish(self, exchange: str, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self._count += 1
        self._open[self._count] = method.delivery_tag
        self._inner.basic_publish(exchange, method.routing_key, body, properties, mandatory=True)

    def take_confirmed(self, most: int) -> list[int]:
        """Wait until at most this many copies are unconfirmed; return the delivery tags of those that were confirmed since."""
        self._connection.wait_until(lambda: len(self._open) <= most)
        done = self._done
        self._done = []
        return done

    def _on_answer(self, frame: Any) -> None:
        answer = frame.method
        tags = (
            [tag for tag in self._open if tag <= answer.delivery_tag]
            if answer.multiple
            else [answer.delivery_tag]
        )
        for tag in tags:
            original = self._open.pop(tag)
            if isinstance(answer, pika.spec.Basic.Nack):
                self.refused = self.refused or "a queue rejects it, for example because it is full"
            # A return arrives before the answer, and does not identify its copy.
            elif self.refused != _RETURNED:
                self._done.append(original)

    def _on_return(self, *_message: object) -> None:
        self.refused = _RETURNED


class _RawProperties(pika.BasicProperties):
    """Properties as the bytes that the broker sent."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self._raw = raw

    def encode(self) -> list[bytes]:
        return [self._raw]

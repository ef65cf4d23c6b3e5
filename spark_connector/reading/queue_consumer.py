"""Takes messages from queues on pika, acknowledges or requeues them, and returns them as Arrow batches. Only the driver uses it.

How it works. The broker delivers as many messages to a consumer as its prefetch allows, and no more before they are settled. So
`QueueConsumer.take` starts a consumer with the wanted number as its prefetch, waits for all messages, and cancels the consumer. The
messages stay unsettled. AMQP bounds their number and not their bytes, so the first consumer asks for few, and each further one for
a number estimated by the size of the messages so far. basic.get would be simpler, but a quorum queue answers a few hundred a second
(4.3.6).

Messages are requeued consumer by consumer: a quorum queue requeues the messages of a nack for several consumers in another order
(4.3.6). They are requeued by basic.nack, which is not a failed delivery from 4.3 on, whereas basic.reject and a lost connection are.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.errors import BrokerTimeoutError, MismatchError
from rabbit_chx.streams.messages import as_text, time_text

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

_FIRST_STEP = 256
_GROWTH = 16
_MOST_PREFETCH = 65_535
_PATIENCE_S = 10.0
_LOOK_S = 0.05
#: RabbitMQ's default; without a value `PikaConnection` has no heartbeats.
_HEARTBEAT_S = 60
_KEEP_ALIVE_S = 1.0
_TEXTS = pa.map_(pa.string(), pa.string())
#: The columns with their types; those behind the first four are optional.
_COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "queue": pa.string(),
    "redelivered": pa.bool_(),
    "exchange": pa.string(),
    "message_id": pa.string(),
    "properties": _TEXTS,
    "headers": _TEXTS,
}
_ALWAYS = 4


class Delivery(NamedTuple):
    """A delivered message that is not settled yet.

    Attributes:
        tag: its delivery tag.
        redelivered: whether it was delivered before, to any consumer.
        exchange: its exchange; bytes if it is not UTF-8, as pika returns it.
        key: its routing key, likewise.
        properties: property flags and values, as `rabbit_chx.amqp.header_table.properties_in` reads them.
        body: its body.
    """

    tag: int
    redelivered: bool
    exchange: str | bytes
    key: str | bytes
    properties: bytes
    body: bytes

    @property
    def size(self) -> int:
        """The bytes of its body and properties."""
        return len(self.body) + len(self.properties)


class QueueConsumer:
    """Takes messages out of queues, one queue after the other. What is not acknowledged is given back when it is closed.

    Messages that a process holds when it dies are given back by the broker.

    Args:
        settings: the address to connect to, and how.

    Raises:
        UnreachableError: nobody answers, or not within ``settings.connection_timeout_s``.
        BrokerRefusedError: the broker answers, and refuses user, vhost or mechanism.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        # Here, so that an executor can import this module without pika.
        from rabbit_chx.broker.pika_connection import PikaConnection

        heartbeat_s = _HEARTBEAT_S if settings.heartbeat_s is None else settings.heartbeat_s
        self._where = settings.masked_url
        self._connection = PikaConnection(replace(settings, heartbeat_s=heartbeat_s))
        with self._connection.own_errors():
            self._channel = self._connection.open_channel(raw_headers=True)
        self._held: dict[str, int] = {}  # the last tag of each consumer with unsettled messages
        self._sizes: dict[str, float] = {}  # bytes of a message of each queue, by what was taken last

    def ready(self, queue: str) -> int:
        """Return how many messages of a queue nobody holds.

        Args:
            queue: the queue's name.

        Raises:
            NotFoundError: there is no such queue.
            AccessRefusedError: the user may not read it, or it is exclusive to another connection.
            UnreachableError: the connection was lost.
        """
        with self._connection.own_errors():
            return self._channel.queue_declare(queue, passive=True).method.message_count or 0

    def is_stream(self, queue: str) -> bool:
        """Return whether a queue is a stream. The permission to read is enough, and nothing is delivered.

        The answer is in the refusal of a consumer with an argument that only streams take (rabbitmq-server v3.9.0 to v4.3.6,
        rabbit_amqqueue.erl, ``check_consume_arguments``). A stream refuses it too, since it has no prefetch.

        Args:
            queue: the queue's name.

        Raises:
            AccessRefusedError: the user may not read the queue.
            UnreachableError: the connection was lost.
        """
        version = tuple(map(int, re.findall(r"\d+", self._connection.server_version)[:2]))
        if version < (3, 9):  # which has no streams, and does not know the argument
            return False
        try:
            with self._connection.refusal_unlogged(406), self._connection.channel() as channel:
                channel.basic_consume(queue, lambda *_: None, arguments={"x-stream-offset": "next"})
        except MismatchError as cause:
            return "prefetch count is not set" in str(cause)
        return False

    def take(self, queue: str, most: int, most_bytes: int) -> list[Delivery]:
        """Return messages from the head of a queue, in its order; fewer than `most` if it has no more that are ready.

        Args:
            queue: the queue's name.
            most: the most messages.
            most_bytes: the most bytes of bodies and properties; the last message may go beyond.

        Raises:
            AccessRefusedError: another consumer has the queue for itself, or the user may not read it.
            BrokerTimeoutError: messages are ready, and none comes: another consumer goes first.
            UnreachableError: the connection was lost. What was taken is given back.
        """
        taken: list[Delivery] = []
        # What comes beyond the bytes is given back, and some queues count that against a delivery limit.
        size, step = 0, 1
        if queue in self._sizes:
            step = max(1, min(_FIRST_STEP, int(most_bytes / self._sizes[queue])))
        while len(taken) < most and size < most_bytes:
            if taken:
                step = min(_GROWTH * step, (most_bytes - size) * len(taken) // max(size, 1) + 1)
            step = min(step, most - len(taken), _MOST_PREFETCH)
            messages, came = self._consume(queue, step, most_bytes - size)
            taken += messages
            size += sum(message.size for message in messages)
            if came < step:
                break
        if taken:
            self._sizes[queue] = max(1.0, size / len(taken))
        return taken

    def acknowledge(self, last: Delivery) -> None:
        """Settle a message and all that were taken before it: they leave their queues. Returns when the broker has read it.

        What has come behind it is given back.

        Args:
            last: the last of the messages.

        Raises:
            BrokerRefusedError: the broker has given them back meanwhile, since this took too long (``consumer_timeout``).
            UnreachableError: the connection was lost; the messages may come again.
        """
        with self._connection.own_errors():
            reason = self._channel._closing_reason  # type: ignore[attr-defined]  # noqa: SLF001  # pika would only say that it is closed
            if reason is not None:
                raise reason
            self._channel.basic_ack(last.tag, multiple=True)
        self._held = {consumer: tag for consumer, tag in self._held.items() if tag > last.tag}
        self.give_back()

    def give_back(self) -> None:
        """Give all messages back that are not acknowledged. Each has its place again, as far as the queue keeps it.

        Raises:
            UnreachableError: the connection was lost; then the broker gives them back.
        """
        with self._connection.own_errors():
            for tag in self._held.values():
                self._channel.basic_nack(tag, multiple=True, requeue=True)
            self._held.clear()
            # It is answered behind all before it.
            self._channel.basic_qos(prefetch_count=1)

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """Answer heartbeats while the block runs, which must not use the consumer: pika answers them within its own calls only."""
        done = threading.Event()

        def keep_alive() -> None:
            with suppress(Exception):  # who uses the connection next meets the error
                while not done.wait(_KEEP_ALIVE_S):
                    self._connection.process(0)

        keeper = threading.Thread(target=keep_alive, name="rabbit_chx heartbeat", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def close(self) -> None:
        """Give back what is not acknowledged, and close the connection; may be called again."""
        if self._held:
            with suppress(Exception):
                self.give_back()
        self._connection.close()

    def _consume(self, queue: str, most: int, room: int) -> tuple[list[Delivery], int]:
        """Let a consumer take messages. Return those that there are so many bytes of room for, and how many have come.

        All that the prefetch allows are waited for: pika would reject those that come after a cancel.
        """
        kept: list[Delivery] = []
        came = 0

        def receive(_channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401  # pika's
            nonlocal came, room
            came += 1
            self._held[method.consumer_tag] = method.delivery_tag
            if room > 0:
                names = (method.exchange, method.routing_key)
                kept.append(Delivery(method.delivery_tag, method.redelivered, *names, properties.raw, body))
                room -= kept[-1].size

        late = None
        with self._connection.own_errors():
            self._channel.basic_qos(prefetch_count=most)
            consumer = self._channel.basic_consume(queue, receive)
            deadline, was_empty = time.monotonic() + _PATIENCE_S, False
            while came < most and late is None:
                before = came
                self._connection.process(_LOOK_S)
                if came > before:
                    deadline, was_empty = time.monotonic() + _PATIENCE_S, False
                elif ready := self.ready(queue):
                    if time.monotonic() > deadline:
                        late = self._late(queue, ready)
                elif was_empty:  # twice: what was under way at the first look has come
                    break
                else:
                    was_empty = True
            self._channel.basic_cancel(consumer)
        if late is not None:
            raise late
        return kept, came

    def _late(self, queue: str, ready: int) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._where}: queue {queue!r} has {ready:,} messages, and gives none within {_PATIENCE_S:g} s: another consumer goes "
            "first, as a single active consumer or by its priority; stop it, or wait until it has stopped",
            queue=queue,
        )


def batch_of(queue: str, messages: Sequence[Delivery], include: Sequence[str]) -> pa.RecordBatch:
    """Return messages of a queue as columns, in their order.

    Args:
        queue: the queue's name.
        messages: the messages.
        include: the optional columns, in their order.
    """
    properties = [properties_in(message.properties) for message in messages] if include else []
    values: dict[str, Callable[[], list[Any]]] = {
        "key": lambda: [message.key for message in messages],  # Arrow encodes texts as UTF-8
        "value": lambda: [message.body for message in messages],
        "queue": lambda: [queue] * len(messages),
        "redelivered": lambda: [message.redelivered for message in messages],
        "exchange": lambda: [
            name if isinstance(name := message.exchange, str) else name.decode(errors="replace")
            for message in messages
        ],
        "message_id": lambda: [each.get("message_id") for each in properties],
        "properties": lambda: [_texts(each) for each in properties],
        "headers": lambda: [_headers(each.get("headers", ())) for each in properties],
    }
    names = (*list(_COLUMNS)[:_ALWAYS], *include)
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name](), _COLUMNS[name]) for name in names],
        schema=pa.schema([(name, _COLUMNS[name]) for name in names]),
    )


def _texts(properties: dict[str, Any]) -> list[tuple[str, str | None]] | None:
    texts = [
        (name, as_text(time_text(1000 * value) if name == "timestamp" else value))
        for name, value in properties.items()
        if name != "headers"
    ]
    return texts or None


def _headers(table: Sequence[tuple[bytes, AmqpField]]) -> list[tuple[str, str | None]] | None:
    # Of two headers with one name the last counts: Spark's maps have no name twice.
    return list({as_text(name) or "": as_text(_plain(field)) for name, field in table}.items()) or None


def _plain(field: AmqpField) -> Any:  # noqa: ANN401  # whatever a header holds
    """Return the value of a field as a JSON value; times and decimals are texts."""
    value = field.value
    match field.type:
        case "array":
            return [_plain(element) for element in value]
        case "table":
            return {as_text(name) or "": _plain(element) for name, element in value}
        case "timestamp":
            return time_text(1000 * value)
        case "decimal":
            return str(Decimal(value[1]).scaleb(-value[0]))
    return value

"""Take messages out of queues and settle them: acknowledge them, or give them back. One connection, and all waits are bounded.

How it works. A consumer of RabbitMQ gets as many messages as its prefetch says, and no more before these are settled. So
`QueueConsumer.take` starts a consumer with a prefetch of what is wanted, reads what comes, and cancels the consumer. The messages
stay ours. AMQP bounds their number and not their bytes, so the first consumer asks for few, and each further one for what the size
of those before lets expect. basic.get would be simpler, but a quorum queue answers a few hundred a second (4.3.6, measured).

What is given back is given back consumer by consumer: a quorum queue takes the messages of a nack for several consumers in no order
of ours (4.3.6, tried). It is given back by basic.nack, which is no failed delivery from 4.3 on. basic.reject is one, and so is a
connection that ends.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections import deque
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from pamqp import commands, frame

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import HEADER_FRAME, METHOD_DELIVER, ControlBytes, Frame, parse_deliver
from rabbit_chx.amqp.names import short_string
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import BrokerTimeoutError, MismatchError

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

    from rabbit_chx.connection.link import Link

_CHANNEL = 1
_FIRST_STEP = 256
_GROWTH = 16
_MOST_PREFETCH = 65_535
_PATIENCE_S = 10.0
_LOOK_S = 0.05
_CONTENT_HEAD = struct.Struct(">HHQ")
_TYPE = re.compile(r"of queue type rabbit_(\w+)_queue|prefetch count is not set")
#: The first release whose brokers tell the type of a queue in this way.
_TELLS_TYPE = (3, 9)


class QueueFacts(NamedTuple):
    """What AMQP alone tells of a queue.

    Attributes:
        kind: ``"classic"``, ``"quorum"``, ``"stream"``; None before RabbitMQ 3.9, which does not tell.
        messages: how many are ready. Those that consumers hold do not count.
        consumers: how many there are.
        version: the broker's version, such as ``"4.3.6"``.
    """

    kind: str | None
    messages: int
    consumers: int
    version: str


class Delivery(NamedTuple):
    """A message that the broker has delivered, and that is not settled yet.

    Attributes:
        tag: its number on the channel.
        redelivered: whether it was delivered before, to anybody.
        exchange: where it was published to.
        key: its routing key.
        properties: property flags and values, as `rabbit_chx.amqp.header_table.properties_in` reads them.
        body: its body.
    """

    tag: int
    redelivered: bool
    exchange: bytes
    key: bytes
    properties: bytes
    body: bytes


def look_at_queue(settings: ConnectionSettings, queue: str) -> QueueFacts:
    """Return what AMQP tells of a queue, over a short connection. Nothing is delivered, and the permission to read is enough.

    The type is in the refusal of a consumer whose argument only streams take (rabbitmq-server v3.9.0 to v4.3.6, rabbit_amqqueue.erl,
    ``check_consume_arguments``); a stream refuses it too, since it has no prefetch.

    Args:
        settings: the address to connect to, and how.
        queue: the queue's name.

    Raises:
        NotFoundError: there is no such queue, or no such vhost.
        AccessRefusedError: the user may not read the queue, or it is exclusive to another connection.
        UnreachableError: nobody answers at the address.
    """
    with closing(Connection(settings)) as connection:
        messages, consumers = _counts(connection, queue)
        version = str(connection.session.server.get("version", "unknown"))
        kind = None
        if tuple(map(int, re.findall(r"\d+", version)[:2])) >= _TELLS_TYPE:
            try:
                connection.request(_ConsumeAnyName(queue=queue, arguments={"x-stream-offset": "next"}))
            except MismatchError as cause:
                if match := _TYPE.search(str(cause)):
                    kind = match[1] or "stream"
        return QueueFacts(kind, messages, consumers, version)


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
        self._lock = threading.RLock()  # the thread of the connection, which sends heartbeats, waits for it
        self._connection = Connection(settings, self._lock, ConsumingSession)
        self._session: ConsumingSession = self._connection.session  # type: ignore[assignment]  # as it is made above
        self._held: list[int] = []  # the last tag of each consumer with unsettled messages
        self._sizes: dict[str, float] = {}  # bytes of a message of each queue, by what was taken last

    def ready(self, queue: str) -> int:
        """Return how many messages of a queue nobody holds.

        Args:
            queue: the queue's name.

        Raises:
            NotFoundError: there is no such queue.
            UnreachableError: the connection was lost.
        """
        return _counts(self._connection, queue)[0]

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
            came = self._consume(queue, step, most_bytes - size)
            taken += came
            size += sum(map(_size, came))
            if len(came) < step:
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
        with self._lock:
            self._send(commands.Basic.Ack(last.tag, multiple=True))
            self._held = [tag for tag in self._held if tag > last.tag]
            self.give_back()

    def give_back(self) -> None:
        """Give all messages back that are not acknowledged. Each has its place again, as far as the queue keeps it.

        Raises:
            UnreachableError: the connection was lost; then the broker gives them back.
        """
        with self._lock:
            for tag in self._held:
                self._send(commands.Basic.Nack(tag, multiple=True, requeue=True))
            self._held.clear()
            # It is answered behind all before it.
            self._connection.request(commands.Basic.Qos(prefetch_count=1))

    def close(self) -> None:
        """Give back what is not acknowledged, and close the connection; may be called again."""
        try:
            if self._held and self._connection.failure is None:
                with suppress(Exception):
                    self.give_back()
        finally:
            self._connection.close()

    def _consume(self, queue: str, most: int, most_bytes: int) -> list[Delivery]:
        connection, session = self._connection, self._session
        with self._lock:
            session.expect(most_bytes)
            connection.request(commands.Basic.Qos(prefetch_count=most))
            tag = connection.request(_ConsumeAnyName(queue=queue)).consumer_tag  # type: ignore[attr-defined]
            try:
                late = self._wait(queue, most)
                connection.request(commands.Basic.Cancel(tag))
            finally:
                if session.last_tag:
                    self._held.append(session.last_tag)
        if late is not None:
            raise late
        return list(session.kept)

    def _wait(self, queue: str, most: int) -> BrokerTimeoutError | None:
        """Wait until so many messages have come, or the queue has no more, or more bytes than expected."""
        session = self._session
        deadline = time.monotonic() + _PATIENCE_S
        empty = False
        while session.came < most and not session.is_full:
            before = session.came
            self._connection.turn(_LOOK_S)
            if session.came > before:
                deadline, empty = time.monotonic() + _PATIENCE_S, False
                continue
            ready = self.ready(queue)
            if not ready:
                if empty and session.came == before:  # twice: what was under way at the first look has come
                    return None
                empty = True
            elif time.monotonic() > deadline:
                return BrokerTimeoutError(
                    f"{self._connection.where}: queue {queue!r} has {ready:,} messages, and gives none within {_PATIENCE_S:g} s: another "
                    "consumer goes first, as a single active consumer or by its priority; stop it, or wait until it has stopped",
                    queue=queue,
                )
        return None

    def _send(self, method: Method) -> None:
        self._connection.output.append(ControlBytes(frame.marshal(method, _CHANNEL)))


class ConsumingSession(Session):
    """The protocol's side of a connection that consumes.

    Attributes:
        kept: the messages that have come since `expect`, as far as there was room.
        came: how many have come since then.
        last_tag: the last tag of them; 0 if none has come.
    """

    def __init__(self, settings: ConnectionSettings, link: Link) -> None:
        super().__init__(settings, link)
        self.expect(0)
        self._message: Delivery | None = None  # whose content has not wholly come
        self._pieces: list[bytes] = []
        self._left = 0

    def expect(self, most_bytes: int) -> None:
        """Forget what has come, and keep what comes now until there are so many bytes."""
        self.kept: deque[Delivery] = deque()
        self.came = 0
        self.last_tag = 0
        self._room = most_bytes

    @property
    def is_full(self) -> bool:
        """Whether there are as many bytes as were expected: what else comes is not kept."""
        return self._room <= 0

    def _on_method(self, payload: bytes, frame_bytes: bytes) -> None:
        if int.from_bytes(payload[:4]) == METHOD_DELIVER:
            self._message = Delivery(*parse_deliver(payload), b"", b"")
        else:
            super()._on_method(payload, frame_bytes)

    def _on_content(self, frame: Frame) -> None:
        message = self._message
        if message is None:
            raise ValueError("a header or a body without a message")
        if frame.type == HEADER_FRAME:
            self._left = _CONTENT_HEAD.unpack_from(frame.payload)[2]
            self._message = message = message._replace(properties=frame.payload[_CONTENT_HEAD.size :])
        else:
            self._left -= len(frame.payload)
            self._pieces.append(frame.payload)
        if self._left:
            if self._left < 0:
                raise ValueError("a body that is longer than its header says")
            return
        self.came += 1
        self.last_tag = message.tag
        if not self.is_full:
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            message = message._replace(body=body)
            self.kept.append(message)
            self._room -= _size(message)
        self._message = None
        self._pieces = []


def _size(message: Delivery) -> int:
    return len(message.body) + len(message.properties)


def _counts(connection: Connection, queue: str) -> tuple[int, int]:
    short_string("a queue's name", queue)
    answer: commands.Queue.DeclareOk = connection.request(_DeclareAnyName(queue=queue, passive=True))  # type: ignore[assignment]
    return answer.message_count or 0, answer.consumer_count or 0


class _DeclareAnyName(commands.Queue.Declare):
    """queue.declare without pamqp's own rule for the names of queues, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""


class _ConsumeAnyName(commands.Basic.Consume):
    """basic.consume without pamqp's own rule for the names of queues."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""

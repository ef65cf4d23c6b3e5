"""The hand-over of a slot from one queue to another, while the ring does not change.

*parked*: the slot is unbound from the old queue, and bound to the new queue as soon as the broker has answered. Messages in between are
parked. Then they are published again to their exchange, which hashes them as before. So each reaches the queue that owns its slot, with its
original exchange, routing key and properties. If the slot still has no queue, the message is parked again, at the end. No message is lost
or duplicated. A parked message may be overtaken by later ones with its key.

*in-order*: the consumers of both queues, members of a group, cooperate. Markers in the queues of the slot mark the position up to which a
queue is read: the old queue is read up to a marker before the new queue gets messages, and the messages that were parked meanwhile are
read before those of the new queue. So no message is overtaken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

import pika
from pika import exceptions as pika_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.broker.live_broker import LiveBroker, Operation, try_count
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import HandOverMarker

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

HandOverLevel: TypeAlias = Literal["parked", "in-order"]
HAND_OVER_LEVELS: tuple[HandOverLevel, ...] = get_args(HandOverLevel)
#: How long a group may take to read its queue up to a marker: seconds without any reading, and in all.
_REPLY_S = 60.0
_LONGEST_REPLY_S = 900.0
#: After this many seconds, messages that were being routed when a binding changed are in their queues.
SETTLE_S = 0.25
_PASSES = 50


class HandOver(NamedTuple):
    """The hand-over of a slot by two changes of a plan: `unbind` from the old queue, and `bind` to the new queue."""

    exchange: str
    park: str
    unbind: PlannedChange
    bind: PlannedChange

    @property
    def slot(self) -> str:
        """The slot exchange."""
        return self.bind.binding.source

    @property
    def old(self) -> str:
        """The queue that owns the slot before."""
        return str(self.unbind.binding.destination)

    @property
    def new(self) -> str:
        """The queue that owns the slot afterwards."""
        return str(self.bind.binding.destination)


@dataclass(slots=True)
class HandOverTally:
    """The results of hand-overs.

    Attributes:
        slots: the slots that changed hands, each with the old and the new queue.
        moved: the number of parked messages that were published again.
        overtaken: a sentence for each slot whose messages may be overtaken although an in-order hand-over was requested.
        begun: True if a slot was unbound from its old queue; the bind to its new queue may still be refused.
    """

    slots: list[tuple[str, str, str]] = field(default_factory=list)
    moved: int = 0
    overtaken: list[str] = field(default_factory=list)
    begun: bool = False


def parts_of(
    changes: Sequence[PlannedChange], slots: Mapping[str, str], parks: Mapping[str, str]
) -> Iterator[HandOver | tuple[PlannedChange, ...]]:
    """Yield the changes of a plan in order: each hand-over of a slot by itself, the changes between hand-overs together.

    Args:
        changes: the changes.
        slots: the hash exchange of each slot that changes hands.
        parks: the parking queue of each hash exchange.
    """
    between: list[PlannedChange] = []
    rest = list(changes)
    while rest:
        change = rest.pop(0)
        subject = change.subject
        slot = subject.source if isinstance(subject, BindingDefinition) else ""
        exchange = slots.get(slot) if change.action == "unbind" else None
        park = None if exchange is None else parks.get(exchange)
        if exchange is None or park is None or not rest or not _gives(rest[0], slot):
            between.append(change)
            continue
        if between:
            yield tuple(between)
            between = []
        yield HandOver(exchange, park, change, rest.pop(0))
    if between:
        yield tuple(between)


def _gives(change: PlannedChange, slot: str) -> bool:
    return (
        change.action == "bind"
        and isinstance(change.subject, BindingDefinition)
        and change.subject.source == slot
    )


def hand_over_slot(over: HandOver, broker: LiveBroker, level: HandOverLevel, tally: HandOverTally) -> None:
    """Move a slot from one queue to another.

    Raises:
        RabbitChxError: the broker refuses an operation. Parked messages stay parked.
    """
    if level == "in-order":
        _hand_over_in_order(over, broker, tally)
    else:
        _hand_over_at_once(over, broker, tally)
    tally.slots.append((over.slot, over.old, over.new))
    tally.moved += republish_parked(broker, over.exchange, over.park)


def _hand_over_at_once(over: HandOver, broker: LiveBroker, tally: HandOverTally) -> None:
    unbind = Operation("unbind", over.unbind.binding)
    bind = Operation("bind", over.bind.binding)
    if broker.amqp.perform_together((unbind, bind)):
        return
    broker.amqp.perform(unbind)  # singly, to find the one that the broker refuses
    tally.begun = True
    broker.amqp.perform(bind)


def _hand_over_in_order(over: HandOver, broker: LiveBroker, tally: HandOverTally) -> None:
    carrier = broker.carrier
    unbind = Operation("unbind", over.unbind.binding)
    bind = Operation("bind", over.bind.binding)
    tally.moved += drain_park(broker, over.exchange, over.park)
    marker = HandOverMarker("flush", over.slot, uuid4().hex, over.park)
    begin = marker.as_kind("begin")
    end = marker.as_kind("end")
    broker.amqp.perform(unbind)
    tally.begun = True
    broker.sleep(SETTLE_S)
    carrier.send_marker(over.old, marker)
    if not carrier.wait_for_reply(
        marker, "flushed", timeout_s=_REPLY_S, longest_s=_LONGEST_REPLY_S, queues=(over.old,)
    ):
        tally.overtaken.append(_late(over, over.old))
        broker.amqp.perform(bind)
        return
    carrier.send_marker(over.new, begin)
    broker.amqp.perform(bind)
    broker.sleep(SETTLE_S)
    carrier.send_marker(over.park, end)
    if not carrier.wait_for_reply(
        begin, "taken", timeout_s=_REPLY_S, longest_s=_LONGEST_REPLY_S, queues=(over.new, over.park)
    ):
        tally.overtaken.append(_late(over, over.new))


def _late(over: HandOver, queue: str) -> str:
    return (
        f"slot {over.slot}: the group did not read {queue} up to the marker: it read nothing for {_REPLY_S:g} s, or was not done after "
        f"{_LONGEST_REPLY_S:g} s. So parked messages of the slot may be overtaken by later ones"
    )


def republish_parked(broker: LiveBroker, exchange: str, queue: str) -> int:
    """Publish the current messages of a parking queue again to the hash exchange, and return their number.

    Raises:
        RabbitChxError: the broker refuses a message. It stays in the parking queue.
    """
    messages = broker.amqp.count(queue).messages
    return broker.carrier.move_messages(queue, exchange, messages) if messages else 0


def drain_park(broker: LiveBroker, exchange: str, queue: str) -> int:
    """Publish the messages of a parking queue again to the hash exchange until the queue is empty; return their number.

    Raises:
        BrokerRefusedError: messages arrive as fast as they are moved.
        RabbitChxError: the broker refuses a message. It stays in the parking queue.
    """
    total = 0
    for _ in range(_PASSES):
        moved = republish_parked(broker, exchange, queue)
        if not moved:
            broker.sleep(SETTLE_S)
            # A classic queue answers a count before it stores the messages that it has received (`prioritise_call` in
            # rabbit_amqqueue_process.erl, 3.10 to 4.3), and a get after that. So the last look is a get.
            moved = broker.carrier.move_messages(queue, exchange, max(1, broker.amqp.count(queue).messages))
            if not moved:
                return total
        total += moved
    raise BrokerRefusedError(
        f"{broker.where}: the parking queue {queue} was emptied {_PASSES} times, and there are messages in it again: a slot of {exchange} "
        "has no queue, or somebody else publishes to it; look at its bindings, then apply again",
        exchange=exchange,
        queue=queue,
    )


# -- A connection that moves messages: it takes them from a queue and publishes them again, byte for byte
# pika decodes headers to Python types, which lose the wire types. So properties are copied as the received bytes.


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

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

from rabbit_chx.broker.live_broker import LiveBroker, Operation
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import BindingDefinition
from rabbit_chx.topology.slots.hand_over_marker import HandOverMarker

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

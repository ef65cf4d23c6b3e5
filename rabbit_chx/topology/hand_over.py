"""A slot changes hands: from one queue to another, behind a ring that stays as it is.

*parked*: the slot is unbound from one queue, and bound to the other as soon as the broker has answered. What comes in between is
parked. It is then published once more to its exchange, which hashes it as it did before. So it comes to the queue that has its
slot, with its own exchange, routing key and properties. If the slot still has no queue, the message is parked again, at the end.
Nothing is lost or doubled. A parked message may be overtaken by later ones with its key.

*in-order*: the consumers of both queues, members of a group, help. Markers go through the queues of the slot, and say up to where
one queue is read: the old queue is read up to a marker before the new one gets anything, and what came meanwhile is read out of
the parking queue first. So no message is overtaken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.hand_over_marker import HandOverMarker
from rabbit_chx.topology.live_broker import LiveBroker
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.operations import Operation

HandOverLevel: TypeAlias = Literal["parked", "in-order"]
HAND_OVER_LEVELS: tuple[HandOverLevel, ...] = get_args(HandOverLevel)
#: How long a group may take to read its queue up to a marker: seconds without any reading, and in all.
_REPLY_S, _LONGEST_REPLY_S = 60.0, 900.0
#: After this many seconds, what the broker was routing when a binding changed is in its queue.
SETTLE_S = 0.25
_PASSES = 50


class HandOver(NamedTuple):
    """A slot that changes hands by two changes of a plan.

    Attributes:
        exchange: the hash exchange.
        park: its parking queue.
        unbind: takes the slot from the old queue.
        bind: gives it to the new queue.
    """

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
        """The queue that has the slot before."""
        return str(self.unbind.binding.destination)

    @property
    def new(self) -> str:
        """The queue that has it afterwards."""
        return str(self.bind.binding.destination)


@dataclass(slots=True)
class HandOverTally:
    """What was done while slots changed hands.

    Attributes:
        slots: the slots that changed hands, each with the old and the new queue.
        moved: how many parked messages were published once more.
        overtaken: a sentence for each slot that should have changed hands in order, and whose messages may be overtaken.
        begun: whether a slot was taken from its old queue, though its new one may be refused then.
    """

    slots: list[tuple[str, str, str]] = field(default_factory=list)
    moved: int = 0
    overtaken: list[str] = field(default_factory=list)
    begun: bool = False


def parts_of(
    changes: Sequence[PlannedChange], slots: Mapping[str, str], parks: Mapping[str, str]
) -> Iterator[HandOver | tuple[PlannedChange, ...]]:
    """Yield the changes of a plan in order: each slot that changes hands by itself, what is between together.

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
    """Give a slot from one queue to another.

    Raises:
        RabbitChxError: the broker refuses something. What is parked stays parked.
    """
    if level == "in-order":
        _hand_over_in_order(over, broker, tally)
    else:
        _hand_over_at_once(over, broker, tally)
    tally.slots.append((over.slot, over.old, over.new))
    tally.moved += republish_parked(broker, over.exchange, over.park)


def _hand_over_at_once(over: HandOver, broker: LiveBroker, tally: HandOverTally) -> None:
    unbind, bind = Operation("unbind", over.unbind.binding), Operation("bind", over.bind.binding)
    if broker.amqp.perform_together((unbind, bind)):
        return
    broker.amqp.perform(unbind)  # one by one, to find the one that the broker refuses
    tally.begun = True
    broker.amqp.perform(bind)


def _hand_over_in_order(over: HandOver, broker: LiveBroker, tally: HandOverTally) -> None:
    carrier = broker.carrier
    unbind, bind = Operation("unbind", over.unbind.binding), Operation("bind", over.bind.binding)
    tally.moved += drain_park(broker, over.exchange, over.park)
    marker = HandOverMarker("flush", over.slot, uuid4().hex, over.park)
    begin, end = marker.as_kind("begin"), marker.as_kind("end")
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
    """Publish once more what is in a parking queue now, and return how many messages that were.

    Args:
        broker: the broker.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    messages = broker.amqp.count(queue).messages
    return broker.carrier.move_messages(queue, exchange, messages) if messages else 0


def drain_park(broker: LiveBroker, exchange: str, queue: str) -> int:
    """Publish once more what is in a parking queue, until it is empty; return how many messages that were.

    Args:
        broker: the broker.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        BrokerRefusedError: messages come as fast as they are moved.
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    total = 0
    for _ in range(_PASSES):
        moved = republish_parked(broker, exchange, queue)
        total += moved
        if not moved:
            broker.sleep(SETTLE_S)
            late = republish_parked(broker, exchange, queue)
            if not late:
                return total
            total += late
    raise BrokerRefusedError(
        f"{broker.where}: the parking queue {queue} was emptied {_PASSES} times, and there are messages in it again: a slot of {exchange} "
        "has no queue, or somebody else publishes to it; look at its bindings, then apply again",
        exchange=exchange,
        queue=queue,
    )

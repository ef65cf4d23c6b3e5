"""A slot changes hands: from one queue to another, behind a ring that stays as it is.

*parked*: the slot is unbound from one queue, and bound to the other as soon as the broker has answered. What comes in between is
parked. It is then published once more to its exchange, which hashes it as it did before. So it comes to the queue that has its
slot, with its own exchange, routing key and properties. If the slot still has no queue, the message is parked again, at the end.
Nothing is lost or doubled. A parked message may be overtaken by later ones with its key.

*in-order*: the consumers of both queues, members of a group, help. The old queue is read up to a marker before the new
one gets anything, and what came meanwhile is read out of the parking queue first. So no message is overtaken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.operations import ApiRequest, Operation, QueueDeclare, Refusal, steps_of
from rabbit_chx.topology.steps import (
    Access,
    HandOverMarker,
    MarkerReply,
    MarkerSending,
    MessageTransfer,
    Pause,
    Pipeline,
    Sequence,
    asked,
)

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
        return _binding(self.bind).source

    @property
    def old(self) -> str:
        """The queue that has the slot before."""
        return str(_binding(self.unbind).destination)

    @property
    def new(self) -> str:
        """The queue that has it afterwards."""
        return str(_binding(self.bind).destination)


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
    changes: List[PlannedChange], slots: Mapping[str, str], parks: Mapping[str, str]
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


def handed_over(over: HandOver, access: Access, level: HandOverLevel, tally: HandOverTally) -> Sequence[None]:
    """Give a slot from one queue to another.

    Raises:
        RabbitChxError: the broker refuses something. What is parked stays parked.
    """
    if level == "in-order":
        yield from _in_order(over, access, tally)
    else:
        yield from _at_once(over, access, tally)
    tally.slots.append((over.slot, over.old, over.new))
    tally.moved += yield from park_passed(access.where, over.exchange, over.park)


def _at_once(over: HandOver, access: Access, tally: HandOverTally) -> Sequence[None]:
    steps = (*_operations(over.unbind, access), *_operations(over.bind, access))
    answer = yield Pipeline(steps)
    if isinstance(answer, Refusal):
        for step in steps:  # which finds the one that the broker refuses
            yield from asked(access.where, step)
            tally.begun = True


def _in_order(over: HandOver, access: Access, tally: HandOverTally) -> Sequence[None]:
    where = access.where
    tally.moved += yield from park_drained(where, over.exchange, over.park)
    marker = HandOverMarker("flush", over.slot, uuid4().hex, over.park)
    begin, end = marker.as_kind("begin"), marker.as_kind("end")
    for step in _operations(over.unbind, access):
        yield from asked(where, step)
    tally.begun = True
    yield Pause(SETTLE_S)
    yield MarkerSending(over.old, marker)
    if not (yield MarkerReply(marker, "flushed", _REPLY_S, _LONGEST_REPLY_S, (over.old,))):
        tally.overtaken.append(_late(over, over.old))
        yield from _bound(over, access)
        return
    yield MarkerSending(over.new, begin)
    yield from _bound(over, access)
    yield Pause(SETTLE_S)
    yield MarkerSending(over.park, end)
    if not (yield MarkerReply(begin, "taken", _REPLY_S, _LONGEST_REPLY_S, (over.new, over.park))):
        tally.overtaken.append(_late(over, over.new))


def _bound(over: HandOver, access: Access) -> Sequence[None]:
    for step in _operations(over.bind, access):
        yield from asked(access.where, step)


def _late(over: HandOver, queue: str) -> str:
    return (
        f"slot {over.slot}: the group did not read {queue} up to the marker: it read nothing for {_REPLY_S:g} s, or was not done after "
        f"{_LONGEST_REPLY_S:g} s. So parked messages of the slot may be overtaken by later ones"
    )


def _operations(change: PlannedChange, access: Access) -> tuple[Operation, ...]:
    steps = steps_of(change, access.vhost, allow_loss=False)
    return tuple(step for step in steps if not isinstance(step, ApiRequest))


def _binding(change: PlannedChange) -> BindingDefinition:
    assert isinstance(change.subject, BindingDefinition)  # noqa: S101  # `parts_of` takes no other
    return change.subject


def park_passed(where: str, exchange: str, queue: str) -> Sequence[int]:
    """Publish once more what is in a parking queue now, and return how many messages that were.

    Args:
        where: the broker's address without password, for errors.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    counts = yield from asked(where, QueueDeclare(queue, passive=True))
    if counts is None or not counts.messages:
        return 0
    moved: int = yield MessageTransfer(queue, exchange, counts.messages)
    return moved


def park_drained(where: str, exchange: str, queue: str) -> Sequence[int]:
    """Publish once more what is in a parking queue, until it is empty; return how many messages that were.

    Args:
        where: the broker's address without password, for errors.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        BrokerRefusedError: messages come as fast as they are moved.
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    total = 0
    for _ in range(_PASSES):
        moved = yield from park_passed(where, exchange, queue)
        total += moved
        if not moved:
            yield Pause(SETTLE_S)
            late = yield from park_passed(where, exchange, queue)
            if not late:
                return total
            total += late
    raise BrokerRefusedError(
        f"{where}: the parking queue {queue} was emptied {_PASSES} times, and there are messages in it again: a slot of {exchange} "
        "has no queue, or somebody else publishes to it; look at its bindings, then apply again",
        exchange=exchange,
        queue=queue,
    )

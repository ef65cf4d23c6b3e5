"""A slot changes hands: from one queue to another, behind a ring that stays as it is.

*parked*: the slot is unbound from one queue, and bound to the other as soon as the broker has answered. What comes between is parked,
and published once more then. Nothing is lost or doubled. A parked message may be overtaken by later ones with its key.

*in-order*: the consumers of both queues help, which are members of a group. The old queue is read up to a marker before the new
one gets anything, and what came meanwhile is read out of the parking queue first. So no message is overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.sequences.carrier_steps import MarkerReply, MarkerSending, Pause
from rabbit_chx.topology.sequences.change_operations import steps_of
from rabbit_chx.topology.sequences.hand_over_marker import HandOverMarker
from rabbit_chx.topology.sequences.operations import Refusal
from rabbit_chx.topology.sequences.parking import SETTLE_S, park_drained, park_passed
from rabbit_chx.topology.sequences.steps import ApiRequest, Pipeline, asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Sequence as List

    from rabbit_chx.topology.changes import PlannedChange
    from rabbit_chx.topology.sequences.operations import Operation
    from rabbit_chx.topology.sequences.steps import Access, Sequence

__all__ = ["HAND_OVER_LEVELS", "HandOver", "HandOverLevel", "HandOverTally", "handed_over", "parts_of"]

HandOverLevel: TypeAlias = Literal["parked", "in-order"]
HAND_OVER_LEVELS: tuple[HandOverLevel, ...] = get_args(HandOverLevel)

#: How long a group may take to read its queue up to a marker: seconds without any reading, and in all.
_REPLY_S, _LONGEST_REPLY_S = 60.0, 900.0


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

    Args:
        over: the slot and its queues.
        access: what the sequence may ask.
        level: how.
        tally: counts what was done.

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

"""A proposal of slots to move so that no queue exceeds a load target.

One greedy pass: in each step the queue that is most over its limit gives a slot to the queue with the most room: the lightest slot that is
enough, else the heaviest that fits. The fewest moves would be a bin-packing problem.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias

from rabbit_chx.analysis import Finding, SlotLoad
from rabbit_chx.analysis.slot_load import KeyLoad
from rabbit_chx.analysis.wording import place_text, rounded
from rabbit_chx.checks import is_finite, is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, ExchangeRef, SlotTable
from rabbit_chx.routing.slot_table import check_slot_table
from rabbit_chx.topology.objects.objects import RingMember, order_of_name
from rabbit_chx.topology.slots.owners import SlotNames, pin_members
from rabbit_chx.words import percent, percent_or_blank

BalanceState: TypeAlias = Literal["balanced", "proposed", "impossible", "not-found"]
#: A queue; None owns the slots without a queue.
_Owner: TypeAlias = str | None

_PERCENT = 100.0
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%?)", re.ASCII)
#: The rounding error of sums, as a share of the load.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The largest load that a queue may have.

    A factor multiplies the part that a queue gets by its weight: with four queues of equal weight, 1.2 is 30% of the load. A share is a
    part of the whole load, the same for each queue whatever its weight.

    Attributes:
        value: the factor, such as 1.2, or the share, such as 0.3.
        kind: ``factor`` or ``share``.

    Raises:
        InputError: the value is not above 0, or a share is above 1.
    """

    value: float
    kind: Literal["factor", "share"] = "factor"

    def __post_init__(self) -> None:
        if self.kind not in ("factor", "share"):
            raise InputError(f"{self.kind!r:.40} is not a kind of target: pass 'factor' or 'share'")
        if not 0 < self.value < float("inf") or (self.kind == "share" and self.value > 1):
            raise InputError(
                f"the target {self.value!r:.40} is no {self.kind}: pass a factor such as 1.2, or a share such as 0.3"
            )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse a target: ``1.2`` is a factor, ``30%`` a share.

        Raises:
            InputError: the text is neither.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise InputError(
                f"the target {text!r:.40} is none: pass a factor such as 1.2, or a share of the load such as 30%"
            )
        number = float(match[1])
        return cls(number / _PERCENT, "share") if match[2] else cls(number)

    def __str__(self) -> str:
        return f"{self.value:.10g}" if self.kind == "factor" else f"{self.value * _PERCENT:.10g}%"

    def limits(self, weights: Mapping[str, int], load: float) -> dict[str, float]:
        """Return the largest permitted load of each queue, from the weights of the queues and their total load."""
        total = sum(weights.values())
        parts = {queue: weight / total if self.kind == "factor" else 1.0 for queue, weight in weights.items()}
        return {queue: self.value * part * load for queue, part in parts.items()}


def _name(slot: ExchangeRef) -> str:
    return slot.name


def _blank(value: object) -> object:
    return "" if value is None else value


@dataclass(frozen=True, slots=True)
class SlotMove:
    """A slot that moves from one queue (None: no queue) to another; `share` is its share of the load."""

    slot: ExchangeRef = field(metadata=shown("slot", _name, as_json=_name))
    old: str | None = field(metadata=shown("from", place_text))
    new: str = field(metadata=shown("to"))
    share: float = field(metadata=shown("of the load", percent, number=True, json="load", as_json=rounded))


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of a queue before and after the moves.

    Attributes:
        queue: the queue; None for the slots without a queue.
        weight: its weight; None if it may not have slots.
        before: its share of the load.
        after: its share of the load afterwards.
        limit: its largest permitted share of the load; None if it may not have slots.
    """

    queue: str | None = field(metadata=shown("queue", place_text))
    weight: int | None = field(metadata=shown("weight", _blank, number=True))
    slots_before: int = field(metadata=shown("slots", number=True))
    slots_after: int = field(metadata=shown("after", number=True))
    before: float = field(metadata=shown("of the load", percent, number=True, as_json=rounded))
    after: float = field(metadata=shown("after", percent, number=True, as_json=rounded))
    limit: float | None = field(metadata=shown("limit", percent_or_blank, number=True, as_json=rounded))


@dataclass(frozen=True, slots=True)
class SlotBalance:
    """The result of :func:`rabbit_chx.topology.slots.balance`.

    Attributes:
        state: ``balanced``: no move is needed. ``proposed``: the moves reach the target. ``impossible``: no moves can reach it.
            ``not-found``: no solution was found.
        target: the largest load that a queue may have.
        before: the owner of each slot.
        after: the owner of each slot afterwards.
        moves: the slots that move, in ring order.
        queues: the load of each queue, in the natural order of their names.
        obstacle: why the target is not reached; None if it is. Its kind is ``own-keys`` (a queue that is itself a destination of the ring
            exceeds its limit), ``hot-key`` (a key exceeds the limit of every queue), ``hot-slot`` (a slot does), ``target`` (the sum of all
            limits is below the load), or ``not-found`` (no solution was found). Its destination is the slot or queue; `names` has the key.
    """

    state: BalanceState
    target: LoadTarget
    before: SlotTable
    after: SlotTable
    moves: tuple[SlotMove, ...]
    queues: tuple[QueueLoad, ...]
    obstacle: Finding | None = None

    @property
    def load_moved(self) -> float:
        """The share of the load whose queue changes."""
        return sum((move.share for move in self.moves), 0.0)

    @property
    def keys_moved(self) -> float:
        """The exact share of all keys whose queue changes."""
        return self.before.share_moved(self.after)

    def members(self, exchange: str) -> tuple[RingMember, ...] | None:
        """Return the queues of `exchange` with their slots afterwards, as in a topology file.

        None if a topology file cannot express them: a slot has no queue or an unusual name, or the ring also has other members.
        """
        slots = SlotNames(exchange, len(self.after.slots)).refs
        if self.after.ring.buckets != slots or len(self.after.owners) < len(slots):
            return None
        return pin_members(self.after.owners[slot] for slot in slots)


def balance(
    slots: SlotTable,
    load: SlotLoad | Mapping[Destination, float],
    weights: Mapping[str, int] | None = None,
    *,
    target: LoadTarget | float = 1.2,
) -> SlotBalance:
    """Return slots to move so that no queue has more of the load than the target allows.

    The moves are few, but not always the fewest.

    Args:
        slots: the owner of each slot.
        load: the load of each slot, and of each queue that is itself a destination of the ring: messages of a sample, or rates.
        weights: the weights of the queues that may have slots; None: equal weights for the queues that own slots. Any other queue gives all
            its slots away.
        target: the largest load that a queue may have; a number is a factor.

    Raises:
        InputError: a weight, a load or the target is invalid, the load is 0, or no queue may have slots.
    """
    check_slot_table(slots)
    queues = [queue for queue in slots.destinations if isinstance(queue, str)]
    weights = _check_weights(dict.fromkeys(queues, 1) if weights is None else weights)
    sample = load if isinstance(load, SlotLoad) else _check_load(load)
    target = target if isinstance(target, LoadTarget) else LoadTarget(target)
    loads = {slot: sample.messages.get(slot, 0) for slot in slots.slots}
    own = {queue: sample.messages.get(queue, 0) for queue in queues if queue in slots.ring.destinations}
    total = sum(loads.values()) + sum(own.get(queue, 0) for queue in weights)
    if total <= 0:
        raise InputError("the slots have no load: pass a sample with messages of this exchange")

    limits: dict[_Owner, float | None] = dict.fromkeys([*weights, *queues, None])
    for queue, limit in target.limits(weights, total).items():
        limits[queue] = limit + _TOLERANCE * total
    problem = MoveProblem(loads, {slot: slots.owners.get(slot) for slot in loads}, limits, own)
    obstacle = find_obstacle(problem, sample.keys, total)
    found = find_moves(problem) if obstacle is None else None
    moves = found or {}
    state: BalanceState = "proposed" if moves else "balanced"
    if found is None:
        state = "impossible" if obstacle else "not-found"
        says = "no way to share out the slots was found that reaches the target, and none is ruled out"
        obstacle = obstacle or Finding("not-found", says, "raise the target, or make more slots")
    return SlotBalance(
        state=state,
        target=target,
        before=slots,
        after=replace(slots, owners={**slots.owners, **moves}),
        moves=tuple(
            SlotMove(slot, slots.owners.get(slot), moves[slot], loads[slot] / total)
            for slot in loads
            if slot in moves
        ),
        queues=tuple(_queue_loads(problem, moves, weights, target, total)),
        obstacle=obstacle,
    )


def _check_load(load: Mapping[Destination, float]) -> SlotLoad:
    for place, amount in load.items():
        if not is_finite(amount) or amount < 0:
            raise InputError(f"the load of {place} is {amount!r:.40}: pass a number from 0")
    return SlotLoad(load)


def _check_weights(weights: Mapping[str, int]) -> dict[str, int]:
    for queue, weight in weights.items():
        if not is_whole(weight, 1):
            raise InputError(
                f"the weight of {queue!r} is {weight!r:.40}: pass a whole number from 1", queue=queue
            )
    if not weights:
        raise InputError("there is no queue to have the slots: pass at least one weight")
    return dict(weights)


def _queue_loads(
    problem: MoveProblem,
    moves: Mapping[ExchangeRef, str],
    weights: Mapping[str, int],
    target: LoadTarget,
    total: float,
) -> Iterator[QueueLoad]:
    owners = problem.owners
    had, has = Counter(owners.values()), Counter({**owners, **moves}.values())
    before, after = problem.loads_after({}), problem.loads_after(moves)
    limits = target.limits(weights, 1.0)
    for queue in sorted(problem.limits, key=lambda queue: (queue is None, order_of_name(queue or ""))):
        if queue is not None or had[queue]:
            yield QueueLoad(
                queue,
                weights.get(queue or ""),
                had[queue],
                has[queue],
                before[queue] / total,
                after[queue] / total,
                limits.get(queue or ""),
            )


def find_obstacle(problem: MoveProblem, keys: Sequence[KeyLoad], total: float) -> Finding | None:
    """Return why no moves can reach the target; None if that is not ruled out. The first key of a slot is its heaviest."""
    rooms, loads = problem.rooms, problem.loads
    room = max(rooms.values())
    limit = f"no queue may have more than {percent(room / total)}"
    for queue in (queue for queue, room in rooms.items() if room < 0):
        own = problem.own[queue]
        says = (
            f"queue {queue} has {percent(own / total)} of the load by buckets of its own in the ring, and may have "
            f"{percent((own + rooms[queue]) / total)}"
        )
        return Finding("own-keys", says, "bind it to slots instead, or raise the target", destination=queue)
    slot = max(loads, key=loads.__getitem__, default=None)
    if slot is not None and loads[slot] > room:
        key = next((key for key in keys if key.place == slot and key.least > room), None)
        if key is not None:
            says = (
                f"key {key.key!r:.80} alone has {percent(key.least / total)} of the load or more, and {limit}"
            )
            cure = (
                "nothing can split a key over queues, so publish it under several keys, or raise the target"
            )
            return Finding("hot-key", says, cure, destination=slot, names=(str(key.key),))
        says = f"slot {slot.name} has {percent(loads[slot] / total)} of the load, and {limit}"
        return Finding("hot-slot", says, "make more slots, or raise the target", destination=slot)
    if (room_of_all := sum(rooms.values())) < sum(loads.values()):
        allowed = room_of_all + sum(problem.own.get(queue, 0) for queue in rooms)
        says = f"all queues together may have {percent(allowed / total)} of the load"
        return Finding("target", says, "raise the target, or add queues")
    return None


@dataclass(frozen=True)
class MoveProblem:
    """Slots with a load, and queues with a limit.

    Attributes:
        loads: the load of each slot, from 0, in the order of the ring.
        limits: the largest load of each queue; None if it may not have slots.
        own: the load of a queue as a destination of the ring itself, without slots.
    """

    loads: Mapping[ExchangeRef, float]
    owners: Mapping[ExchangeRef, _Owner]
    limits: Mapping[_Owner, float | None]
    own: Mapping[str, float]

    @cached_property
    def rooms(self) -> dict[str, float]:
        """The load of slots that each queue may have."""
        return {
            queue: limit - self.own.get(queue, 0)
            for queue, limit in self.limits.items()
            if queue is not None and limit is not None
        }

    @cached_property
    def slots_of(self) -> dict[_Owner, list[ExchangeRef]]:
        """The slots of each queue, the heaviest first."""
        slots_of: dict[_Owner, list[ExchangeRef]] = {queue: [] for queue in self.limits}
        for slot in sorted(self.loads, key=self.loads.__getitem__, reverse=True):
            slots_of[self.owners[slot]].append(slot)
        return slots_of

    def loads_after(self, moves: Mapping[ExchangeRef, str]) -> dict[_Owner, float]:
        """Return the load of each queue after `moves`."""
        loads = {queue: self.own.get(queue or "", 0.0) for queue in self.limits}
        for slot, queue in {**self.owners, **moves}.items():
            loads[queue] += self.loads[slot]
        return loads


def find_moves(problem: MoveProblem) -> dict[ExchangeRef, str] | None:
    """Return the new queue of each slot that moves; None if no solution was found."""
    loads, slots_of = problem.loads, {queue: list(slots) for queue, slots in problem.slots_of.items()}
    room = {
        queue: most - sum(loads[slot] for slot in slots_of[queue]) for queue, most in problem.rooms.items()
    }

    def excess(queue: _Owner) -> float:
        if queue is None or queue not in room:
            return float("inf") if slots_of[queue] else 0.0
        return -room[queue]

    for _ in range(4 * len(loads) + 1):
        queue = max(slots_of, key=excess)
        if excess(queue) <= 0:
            pairs = ((slot, owner) for owner, slots in slots_of.items() for slot in slots)
            return {
                slot: owner for slot, owner in pairs if owner is not None and owner != problem.owners[slot]
            }
        taker = max((other for other in room if other != queue), key=room.__getitem__, default=None)
        if taker is None:
            return None
        fitting = [slot for slot in slots_of[queue] if loads[slot] <= room[taker]]
        if queue in room:
            fitting = [slot for slot in fitting if loads[slot] > 0]
        elif not fitting:
            fitting = slots_of[queue][:1]  # it must move: its new queue gives others away
        if not fitting:
            return None
        enough = [slot for slot in fitting if loads[slot] >= excess(queue)]
        slot = min(enough, key=loads.__getitem__) if enough else max(fitting, key=loads.__getitem__)
        if queue is not None and queue in room:
            room[queue] += loads[slot]
        room[taker] -= loads[slot]
        slots_of[queue].remove(slot)
        slots_of[taker].append(slot)
    return None

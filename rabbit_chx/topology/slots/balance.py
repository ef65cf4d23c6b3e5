"""A proposal of slots to move so that no queue exceeds a load target.

Finding the fewest moves is a bin-packing problem. One greedy pass finds a solution close to the optimum, and a lower bound limits the
distance. In each step the queue that is most over its limit gives a slot to the queue with the most room: the lightest slot that is enough,
else the heaviest that fits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Literal, Self, TypeAlias

from rabbit_chx.analysis import Finding, SlotLoad
from rabbit_chx.analysis.slot_load import KeyLoad
from rabbit_chx.analysis.wording import place_text, rounded
from rabbit_chx.checks import is_finite, is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Argument, Fix
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
_HUNDREDTHS = 100
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
        at_least: a lower bound of the number of moves that reach the target.
        queues: the load of each queue, in the natural order of their names.
        obstacles: why the target is not reached: ``hot-key`` (a key exceeds the limit of every queue), ``hot-slot`` (a slot does),
            ``own-keys`` (a queue that is itself a destination of the ring does), ``target`` (the sum of all limits is below the load),
            ``not-found`` (no solution was found). The destination of a finding is the slot or queue; `names` has the key.
        reachable: the lowest target for which a solution was found, if this target has none.
    """

    state: BalanceState
    target: LoadTarget
    before: SlotTable
    after: SlotTable
    moves: tuple[SlotMove, ...]
    at_least: int
    queues: tuple[QueueLoad, ...]
    obstacles: tuple[Finding, ...] = ()
    reachable: LoadTarget | None = None

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

    The moves are few, but not always the fewest: `SlotBalance.at_least` is the lower bound.

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

    def problem_of(target: LoadTarget) -> MoveProblem:
        limits: dict[_Owner, float | None] = dict.fromkeys([*weights, *queues, None])
        for queue, limit in target.limits(weights, total).items():
            limits[queue] = limit + _TOLERANCE * total
        return MoveProblem(loads, {slot: slots.owners.get(slot) for slot in loads}, limits, own)

    problem = problem_of(target)
    moves = None if problem.hopeless else find_moves(problem)
    reachable = _reachable(problem_of, target, weights) if moves is None else None
    return SlotBalance(
        state=("impossible" if problem.hopeless else "not-found")
        if moves is None
        else "proposed"
        if moves
        else "balanced",
        target=target,
        before=slots,
        after=replace(slots, owners={**slots.owners, **(moves or {})}),
        moves=tuple(
            SlotMove(slot, slots.owners.get(slot), moves[slot], loads[slot] / total)
            for slot in loads
            if moves and slot in moves
        ),
        at_least=problem.at_least,
        queues=tuple(_queue_loads(problem, moves or {}, weights, target, total)),
        obstacles=() if moves is not None else tuple(_find_obstacles(problem, sample.keys, total, reachable)),
        reachable=reachable,
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


def _reachable(
    problem_of: Callable[[LoadTarget], MoveProblem], target: LoadTarget, weights: Mapping[str, int]
) -> LoadTarget | None:
    """Return the lowest higher target that is reached: a factor in hundredths, or a share in hundredths of a percent."""
    parts = _HUNDREDTHS if target.kind == "factor" else _HUNDREDTHS * _HUNDREDTHS

    def is_reached(count: int) -> bool:
        problem = problem_of(LoadTarget(count / parts, target.kind))
        return not problem.hopeless and find_moves(problem) is not None

    low = ceil(target.value * parts)
    # With this target the heaviest queue may have the whole load.
    high = parts if target.kind == "share" else ceil(parts * sum(weights.values()) / max(weights.values()))
    if high <= low or not is_reached(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_reached(middle) else (middle, high)
    return LoadTarget(high / parts, target.kind)


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


def _find_obstacles(
    problem: MoveProblem, keys: Sequence[KeyLoad], total: float, reachable: LoadTarget | None
) -> Iterator[Finding]:
    rooms = problem.rooms
    remedy: str = "raise the target"
    if reachable is not None:
        remedy = Fix(Argument("target", str(reachable), call=f"target={reachable!r}"), " can be reached")
    hot = [slot for slot, load in problem.loads.items() if load > max(rooms.values())]
    over = [queue for queue, room in rooms.items() if room < 0]
    for slot in hot:
        yield _find_hot_slot(problem, slot, [key for key in keys if key.place == slot], total, remedy)
    for queue in over:
        own = problem.own[queue]
        yield Finding(
            "own-keys",
            f"queue {queue} has {percent(own / total)} of the load by buckets of its own in the ring, and may have "
            f"{percent((own + rooms[queue]) / total)}",
            Fix("bind it to slots instead, or ", remedy),
            destination=queue,
        )
    if hot or over:
        return
    if (room_of_all := sum(rooms.values())) < sum(problem.loads.values()):
        allowed = room_of_all + sum(problem.own.get(queue, 0) for queue in rooms)
        says = f"all queues together may have {percent(allowed / total)} of the load"
        yield Finding("target", says, Fix(remedy, ", or add queues"))
    else:
        says = "no way to share out the slots was found that reaches the target, and none is ruled out"
        yield Finding("not-found", says, Fix(remedy, ", or make more slots"))


def _find_hot_slot(
    problem: MoveProblem, slot: ExchangeRef, keys: Sequence[KeyLoad], total: float, remedy: str
) -> Finding:
    """Return the reason why a slot is too hot for any queue. The first of its keys is the heaviest."""
    load, room = problem.loads[slot], max(problem.rooms.values())
    limit = f"no queue may have more than {percent(room / total)}"
    share = f"slot {slot.name} has {percent(load / total)} of the load"
    if not keys or (keys[0].least <= room and load - keys[0].least > room):
        says = f"{share}, by many keys, and {limit}"
        return Finding("hot-slot", says, Fix("make more slots, or ", remedy), destination=slot)
    key, part = keys[0].key, percent(keys[0].least / total)
    if keys[0].least > room:
        says = f"key {key!r:.80} alone has {part} of the load or more, and {limit}"
        cure = "nothing can split a key over queues, so publish it under several keys"
        return Finding("hot-key", says, Fix(f"{cure}, or ", remedy), destination=slot, names=(str(key),))
    says = f"{share}, {part} or more by key {key!r:.80} alone, and {limit}"
    cure = "without that key it would fit, so publish it under several keys"
    return Finding("hot-slot", says, Fix(f"{cure}, or ", remedy), destination=slot, names=(str(key),))


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

    @property
    def hopeless(self) -> bool:
        """True if a slot fits into no queue, a queue exceeds its limit without slots, or the queues have too little room in total."""
        rooms, loads = self.rooms.values(), self.loads.values()
        return min(rooms) < 0 or max(loads, default=0.0) > max(rooms) or sum(rooms) < sum(loads)

    @property
    def at_least(self) -> int:
        """The lower bound of the number of moves: each queue over its limit gives its heaviest slots away until the rest fits."""
        count = 0
        for queue, slots in self.slots_of.items():
            if (room := self.rooms.get(queue or "")) is None:
                count += len(slots)
                continue
            load = sum(self.loads[slot] for slot in slots)
            for slot in slots:
                if load <= room:
                    break
                load -= self.loads[slot]
                count += 1
        return count

    def loads_after(self, moves: Mapping[ExchangeRef, str]) -> dict[_Owner, float]:
        """Return the load of each queue after `moves`."""
        loads = {queue: self.own.get(queue or "", 0.0) for queue in self.limits}
        for slot, queue in {**self.owners, **moves}.items():
            loads[queue] += self.loads[slot]
        return loads


def find_moves(problem: MoveProblem) -> dict[ExchangeRef, str] | None:
    """Return the new queue of each slot that moves; None if no solution was found."""
    return _GreedyPass(problem).moves()


class _GreedyPass:
    """Moves slots away from queues over their limit, the most overloaded queue first."""

    def __init__(self, problem: MoveProblem) -> None:
        self._problem = problem
        self._slots_of = {queue: list(slots) for queue, slots in problem.slots_of.items()}
        self._room = {
            queue: room - sum(problem.loads[slot] for slot in self._slots_of[queue])
            for queue, room in problem.rooms.items()
        }

    def moves(self) -> dict[ExchangeRef, str] | None:
        """Return the new queue of each slot that moves; None if a queue stays over its limit."""
        for _ in range(4 * len(self._problem.loads) + 1):
            queue = max(self._slots_of, key=self._excess)
            if self._excess(queue) <= 0:
                return self._list_moves()
            if not self._give_away(queue):
                return None
        return None

    def _excess(self, queue: _Owner) -> float:
        if queue is None or queue not in self._room:
            return float("inf") if self._slots_of[queue] else 0.0
        return -self._room[queue]

    def _give_away(self, queue: _Owner) -> bool:
        """Move the lightest slot that is enough, else the heaviest that fits, to the queue with the most room."""
        loads, excess = self._problem.loads, self._excess(queue)
        takers = [taker for taker in self._room if taker != queue]
        if not takers:
            return False
        emptiest = max(takers, key=self._room.__getitem__)
        slots = self._slots_of[queue]
        fitting = [slot for slot in slots if loads[slot] <= self._room[emptiest]]
        if queue in self._room:
            fitting = [slot for slot in fitting if loads[slot] > 0]
        elif not fitting:
            fitting = slots[:1]  # it must move: its new queue gives others away
        if not fitting:
            return False
        enough = [slot for slot in fitting if loads[slot] >= excess]
        slot = min(enough, key=loads.__getitem__) if enough else max(fitting, key=loads.__getitem__)
        self._move(slot, queue, emptiest)
        return True

    def _move(self, slot: ExchangeRef, old: _Owner, new: _Owner) -> None:
        for queue, load in ((old, self._problem.loads[slot]), (new, -self._problem.loads[slot])):
            if queue in self._room:
                self._room[queue] += load
        self._slots_of[old].remove(slot)
        self._slots_of[new].append(slot)

    def _list_moves(self) -> dict[ExchangeRef, str]:
        owners = self._problem.owners
        return {
            slot: queue
            for queue, slots in self._slots_of.items()
            for slot in slots
            if queue is not None and owners[slot] != queue
        }

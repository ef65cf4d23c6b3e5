"""The fewest slots that have to change hands so that no queue has too much of the load: a proposal, as a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, Literal, Self, TypeAlias

from rabbit_chx.analysis import KeyLoad, SlotLoad
from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, SlotTable
from rabbit_chx.topology.balance_moves import FoundMoves, MoveProblem, fewest_moves, greedy_moves
from rabbit_chx.topology.objects import RingMember, SlotNames, order_of_name

__all__ = ["LoadObstacle", "LoadTarget", "ObstacleKind", "QueueLoad", "SlotBalance", "SlotMove", "balance"]

_PERCENT = 100.0
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%?)", re.ASCII)
BalanceState: TypeAlias = Literal["balanced", "proposed", "impossible", "not-found"]
_STEPS = 300_000
_HUNDREDTHS = 100
#: What sums of floats may be off, as a share of the load.
_TOLERANCE = 1e-9
ObstacleKind: TypeAlias = Literal["hot-key", "hot-slot", "own-keys", "target", "no-way", "not-found"]


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """How much of the load a queue may have.

    A factor is over the part that is due to a queue by its weight: with four queues of one weight 1.2 is 30 % of the load. A
    share is of the whole load, and the same for each queue, whatever its weight.

    Attributes:
        value: the factor, such as 1.2, or the share, such as 0.3.
        kind: which of both it is.

    Raises:
        InputError: the value is not above 0, or a share is above 1.
    """

    value: float
    kind: Literal["factor", "share"] = "factor"

    def __post_init__(self) -> None:
        if self.kind not in ("factor", "share"):
            raise InputError(f"{self.kind!r:.40} is no kind of target: give 'factor' or 'share'")
        if not 0 < self.value < float("inf") or (self.kind == "share" and self.value > 1):
            raise InputError(
                f"the target {self.value!r:.40} is no {self.kind}: give a factor such as 1.2, or a share such as 0.3"
            )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the target of a text: ``1.2`` is a factor, ``30%`` a share.

        Args:
            text: the text.

        Raises:
            InputError: it is neither.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise InputError(
                f"the target {text!r:.40} is none: give a factor such as 1.2, or a share of the load such as 30%"
            )
        number = float(found[1])
        return cls(number / _PERCENT, "share") if found[2] else cls(number)

    def __str__(self) -> str:
        return f"{self.value:.10g}" if self.kind == "factor" else f"{self.value * _PERCENT:.10g}%"

    def limits(self, weights: Mapping[str, int], load: float) -> dict[str, float]:
        """Return the load that each queue may have.

        Args:
            weights: the weight of each queue.
            load: the load of all of them.
        """
        total = sum(weights.values())
        parts = {queue: weight / total if self.kind == "factor" else 1.0 for queue, weight in weights.items()}
        return {queue: self.value * part * load for queue, part in parts.items()}


@dataclass(frozen=True, slots=True)
class SlotMove:
    """A slot that changes hands.

    Attributes:
        slot: the slot.
        old: the queue that has it; None where none has.
        new: the queue that gets it.
        share: its share of the load.
    """

    slot: ExchangeRef
    old: str | None
    new: str
    share: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """A queue before and after.

    Attributes:
        queue: the queue; None for the slots that nobody has.
        weight: its weight; None where it is to have no slots.
        limit: the share of the load that it may have; None where it is to have no slots.
        slots_before: how many slots it has.
        slots_after: how many it gets.
        before: its share of the load.
        after: its share of the load afterwards.
    """

    queue: str | None
    weight: int | None
    limit: float | None
    slots_before: int
    slots_after: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class SlotBalance:
    """The outcome of :func:`rabbit_chx.topology.balance`.

    Attributes:
        state: ``balanced``: nothing is to be done. ``proposed``: the moves reach the target. ``impossible``: no moves do.
            ``not-found``: none were found that do.
        target: how much of the load a queue may have.
        before: who has which slot.
        after: who gets which slot.
        moves: the slots that change hands, in the order of the ring.
        at_least: no fewer moves reach the target.
        least_load: whether no other proposal with so few moves moves less of the load.
        queues: each queue, before and after, in the natural order of their names.
        obstacles: why the target is not reached.
        reachable: the lowest target that was found to be reachable, where this one was not.
    """

    state: BalanceState
    target: LoadTarget
    before: SlotTable
    after: SlotTable
    moves: tuple[SlotMove, ...]
    at_least: int
    least_load: bool
    queues: tuple[QueueLoad, ...]
    obstacles: tuple[LoadObstacle, ...] = ()
    reachable: LoadTarget | None = None

    @property
    def load_moved(self) -> float:
        """The share of the load whose queue changes."""
        return sum((move.share for move in self.moves), 0.0)

    @property
    def keys_moved(self) -> float:
        """The exact share of all keys whose queue changes."""
        return self.before.share_moved(self.after)

    @property
    def busiest_before(self) -> QueueLoad:
        """The queue that has the most of the load."""
        return max(self.queues, key=lambda one: one.before)

    @property
    def busiest_after(self) -> QueueLoad:
        """The queue that has the most of the load afterwards."""
        return max(self.queues, key=lambda one: one.after)

    def members(self, exchange: str) -> tuple[RingMember, ...] | None:
        """Return the queues with the slots that they have afterwards, as a topology file says them.

        None where a file cannot say it: a slot has no queue, or has another name than a file gives it, or the ring has more
        than slots.

        Args:
            exchange: the exchange's name.
        """
        slots = SlotNames(exchange, len(self.after.slots)).refs
        if self.after.ring.buckets != slots or len(self.after.owners) < len(slots):
            return None
        numbers: dict[str, list[int]] = {}
        for number, slot in enumerate(slots):
            numbers.setdefault(self.after.owners[slot], []).append(number)
        listed = [one.queue for one in self.queues if one.queue in numbers]
        return tuple(RingMember(queue, slots=tuple(numbers[queue])) for queue in listed if queue is not None)


def balance(
    slots: SlotTable,
    load: SlotLoad | Mapping[Destination, float],
    weights: Mapping[str, int] | None = None,
    *,
    target: LoadTarget | float = 1.2,
    steps: int = _STEPS,
) -> SlotBalance:
    """Return the fewest slots that have to change hands so that no queue has more of the load than the target allows.

    Among proposals of equally many moves it is one that moves the least load. To find the fewest is a hard problem, so the
    search has a bound. The answer says what is proven: `SlotBalance.at_least` moves are needed in any case, and
    `SlotBalance.least_load` says whether the second half is proven too. Where the bound ends the search, a quicker way
    answers, which may move more.

    Args:
        slots: who has which slot now.
        load: the load of each slot, and of each queue that is itself a destination of the ring: messages of a sample, or rates.
        weights: the weights of the queues that are to have slots; None: those that have some, with the same weight each. A
            queue that is not among them gives all its slots away.
        target: how much of the load a queue may have; a number is a factor over the part that is due to it.
        steps: how many steps the search may take; 300,000 take about a second.

    Raises:
        InputError: a weight, a load or the target is none, there is no load, or no queue that may have slots.
    """
    if not isinstance(slots, SlotTable):
        raise InputError(f"{slots!r:.60} is no SlotTable: give one, as Broker.slots returns it")
    given = (
        {queue: 1 for queue in slots.destinations if isinstance(queue, str)} if weights is None else weights
    )
    made = load if isinstance(load, SlotLoad) else _as_load(load)
    wanted = target if isinstance(target, LoadTarget) else LoadTarget(target)
    asked = _Balancing(slots, made, _checked_weights(given))
    if asked.total <= 0:
        raise InputError("the slots have no load: give a sample with messages of this exchange")
    return asked.answer(wanted, steps)


def _as_load(load: Mapping[Destination, float]) -> SlotLoad:
    for place, amount in load.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
            raise InputError(f"the load of {place} is {amount!r:.40}: give a number from 0")
    return SlotLoad(load)


def _checked_weights(weights: Mapping[str, int]) -> dict[str, int]:
    for queue, weight in weights.items():
        if type(weight) is not int or weight < 1:
            raise InputError(
                f"the weight of {queue!r} is {weight!r:.40}: give a whole number from 1", queue=queue
            )
    if not weights:
        raise InputError("there is no queue to have the slots: give at least one weight")
    return dict(weights)


@dataclass(frozen=True)
class _Balancing:
    """One question: who has which slot, their load, and the weights. Its answers are for one target each."""

    slots: SlotTable
    load: SlotLoad
    weights: dict[str, int]

    @cached_property
    def queues(self) -> list[str | None]:
        """Those that may have slots, those that must give theirs away, and None for the slots that nobody has."""
        listed = (queue for queue in self.slots.destinations if isinstance(queue, str))
        return [*dict.fromkeys([*self.weights, *listed]), None]

    @cached_property
    def fixed(self) -> list[float]:
        """The load of each queue as a destination of the ring."""
        own = {place: self.load.messages.get(place, 0) for place in self.slots.ring.destinations}
        return [0 if queue is None else own.get(queue, 0) for queue in self.queues]

    @cached_property
    def loads(self) -> list[float]:
        """The load of each slot."""
        return [self.load.messages.get(slot, 0) for slot in self.slots.slots]

    @cached_property
    def owners(self) -> list[int]:
        """The queue of each slot, by number."""
        numbers = {queue: number for number, queue in enumerate(self.queues)}
        return [numbers[self.slots.owners.get(slot)] for slot in self.slots.slots]

    @cached_property
    def total(self) -> float:
        """The load that is to be shared: that of all slots, and what the queues that share have of their own."""
        return sum(self.loads) + sum(self.fixed[: len(self.weights)])

    def problem(self, target: LoadTarget) -> MoveProblem:
        """Return what is to be solved for a target."""
        spare = _TOLERANCE * self.total
        limits = {queue: limit + spare for queue, limit in target.limits(self.weights, self.total).items()}
        return MoveProblem(
            self.loads, self.owners, [limits.get(queue or "") for queue in self.queues], self.fixed
        )

    def answer(self, target: LoadTarget, steps: int) -> SlotBalance:
        """Return the proposal for a target, or why there is none."""
        problem = self.problem(target)
        found = fewest_moves(problem, steps)
        moves = found.moves or {}
        owners = dict(self.slots.owners) | {
            self.slots.slots[slot]: self._name(queue) for slot, queue in moves.items()
        }
        reachable = None if found.moves is not None else self._reachable(target)
        return SlotBalance(
            state=_state(found),
            target=target,
            before=self.slots,
            after=replace(self.slots, owners=owners),
            moves=tuple(
                SlotMove(
                    self.slots.slots[slot],
                    self.queues[self.owners[slot]],
                    self._name(queue),
                    self.loads[slot] / self.total,
                )
                for slot, queue in sorted(moves.items())
            ),
            at_least=found.at_least,
            least_load=found.least_load,
            queues=tuple(sorted(self._queue_loads(target, problem, moves), key=_by_name)),
            obstacles=()
            if found.moves is not None
            else tuple(
                obstacles(
                    problem,
                    found,
                    slots=self.slots.slots,
                    keys=self.load.keys,
                    queues=self.queues,
                    reachable=reachable,
                )
            ),
            reachable=reachable,
        )

    def _name(self, queue: int) -> str:
        name = self.queues[queue]
        assert name is not None  # noqa: S101  # the last one, which may have no slots
        return name

    def _queue_loads(
        self, target: LoadTarget, problem: MoveProblem, moves: Mapping[int, int]
    ) -> Iterator[QueueLoad]:
        before, after = problem.loads_after({}), problem.loads_after(moves)
        limits = target.limits(self.weights, 1.0)
        had = Counter(self.owners)
        has = Counter(moves.get(slot, owner) for slot, owner in enumerate(self.owners))
        for number, queue in enumerate(self.queues):
            if queue is None and not had[number]:
                continue
            yield QueueLoad(
                queue,
                self.weights.get(queue or ""),
                limits.get(queue or ""),
                had[number],
                has[number],
                before[number] / self.total,
                after[number] / self.total,
            )

    def _reachable(self, target: LoadTarget) -> LoadTarget | None:
        """Return the lowest target in hundredths that the quick way reaches; None where it reaches none."""

        def reached(hundredths: int) -> bool:
            problem = self.problem(LoadTarget(hundredths / _HUNDREDTHS / scale, target.kind))
            return not problem.hopeless and greedy_moves(problem) is not None

        # A factor in hundredths, or a share in hundredths of a percent.
        scale = 1 if target.kind == "factor" else _HUNDREDTHS
        low = ceil(target.value * _HUNDREDTHS * scale)
        total = sum(self.weights.values())
        high = (
            _HUNDREDTHS * scale
            if target.kind == "share"
            else ceil(_HUNDREDTHS * total / max(self.weights.values()))
        )
        if high <= low or not reached(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return LoadTarget(high / _HUNDREDTHS / scale, target.kind)


def _by_name(one: QueueLoad) -> tuple[object, ...]:
    return one.queue is None, order_of_name(one.queue or "")


def _state(found: FoundMoves) -> BalanceState:
    if found.moves is None:
        return "impossible" if found.impossible else "not-found"
    return "proposed" if found.moves else "balanced"


@dataclass(frozen=True, slots=True)
class LoadObstacle:
    """A reason why a target cannot be reached, or was not.

    Attributes:
        kind: ``hot-key``: a key has more messages than any queue may have. ``hot-slot``: a slot has. ``own-keys``: a queue
            that is itself a destination of the ring has. ``target``: all queues together may have less than the load.
            ``no-way``: each way was tried. ``not-found``: none was found in as many steps as were allowed.
        says: the reason in words, with the remedy.
        slot: the slot; None where the reason is no slot.
        key: the key; None where the reason is no key.
        queue: the queue; None where the reason is no queue.
    """

    kind: ObstacleKind
    says: str
    slot: ExchangeRef | None = None
    key: Any = None
    queue: str | None = None


def obstacles(
    problem: MoveProblem,
    found: FoundMoves,
    *,
    slots: Sequence[ExchangeRef],
    keys: Sequence[KeyLoad],
    queues: Sequence[str | None],
    reachable: LoadTarget | None,
) -> Iterator[LoadObstacle]:
    """Say why no moves were found: what is too hot for any queue, else that all is too much, else that the search ended.

    Args:
        problem: the slots and the queues, by number.
        found: the outcome of the search.
        slots: the slots.
        keys: the heaviest keys.
        queues: the queues; None for nobody.
        reachable: a higher target that can be reached, if one is known.
    """
    total = sum(problem.loads) + sum(problem.fixed[queue] for queue in problem.takers)
    rooms = [limit - problem.fixed[queue] for queue, limit in enumerate(problem.limits) if limit is not None]
    room = max(rooms)
    remedy = "raise the target" if reachable is None else f"--target {reachable} can be reached"
    named = False
    for slot, load in zip(slots, problem.loads, strict=True):
        if load > room:
            named = True
            kind, says, key = _hot(slot, load, room, total, [one for one in keys if one.place == slot])
            yield LoadObstacle(kind, f"{says}, or {remedy}", slot, key)
    for queue, limit in enumerate(problem.limits):
        if limit is not None and problem.fixed[queue] > limit:
            named = True
            yield LoadObstacle(
                "own-keys",
                f"queue {queues[queue]} has {percent(problem.fixed[queue] / total)} of the load by buckets of its own in the "
                f"ring, and may have {percent(limit / total)}: bind it to slots instead, or {remedy}",
                queue=queues[queue],
            )
    if named:
        return
    allowed = sum(limit for limit in problem.limits if limit is not None)
    if allowed < total:
        yield LoadObstacle(
            "target",
            f"all queues together may have {percent(allowed / total)} of the load: {remedy}, or add queues",
        )
    elif found.impossible:
        yield LoadObstacle(
            "no-way", f"no way to share out the slots reaches the target: {remedy}, or make more slots"
        )
    else:
        yield LoadObstacle(
            "not-found",
            f"no way to share out the slots was found that reaches the target, and none is ruled out: {remedy}",
        )


def _hot(
    slot: ExchangeRef, load: float, room: float, total: float, keys: Sequence[KeyLoad]
) -> tuple[ObstacleKind, str, Any]:
    """Say what makes a slot too hot for any queue: the kind of obstacle, the reason in words, and the key."""
    limit = f"no queue may have more than {percent(room / total)}"
    key = keys[0] if keys else None
    if key is not None and key.least > room:
        return (
            "hot-key",
            (
                f"key {key.key!r:.80} alone has {percent(key.least / total)} of the load or more, and {limit}: nothing can split a "
                "key over queues, so publish it under several keys"
            ),
            key.key,
        )
    share = f"slot {slot.name} has {percent(load / total)} of the load"
    if key is not None and load - key.least <= room:
        return (
            "hot-slot",
            (
                f"{share}, {percent(key.least / total)} or more by key {key.key!r:.80} alone, and {limit}: without that key it would "
                "fit, so publish it under several keys"
            ),
            key.key,
        )
    return "hot-slot", f"{share}, by many keys, and {limit}: make more slots", None

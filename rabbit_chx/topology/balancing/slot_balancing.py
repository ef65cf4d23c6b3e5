"""The fewest slots that have to change hands, from a slot table, the load of its slots and a target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from rabbit_chx.analysis import SlotLoad
from rabbit_chx.errors import InputError
from rabbit_chx.routing import SlotTable
from rabbit_chx.topology.balancing.fewest_moves import fewest_moves
from rabbit_chx.topology.balancing.greedy_moves import greedy_moves
from rabbit_chx.topology.balancing.load_obstacle import obstacles
from rabbit_chx.topology.balancing.load_target import LoadTarget
from rabbit_chx.topology.balancing.move_problem import MoveProblem
from rabbit_chx.topology.balancing.slot_balance import QueueLoad, SlotBalance, SlotMove
from rabbit_chx.topology.objects import order_of_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.balancing.fewest_moves import FoundMoves
    from rabbit_chx.topology.balancing.slot_balance import BalanceState

__all__ = ["balance"]

_STEPS = 300_000
_HUNDREDTHS = 100
#: What sums of floats may be off, as a share of the load.
_TOLERANCE = 1e-9


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

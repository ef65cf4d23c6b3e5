"""Slots with a load, queues with a limit, and the slots that have to change hands. Numbers only.

The fewest moves are a hard problem: to fill queues up to a limit is bin packing. So there are two ways. `search` finds the
fewest moves, and among those the least load, by going through all moves that can help; its steps are counted, and it gives up
at a bound. `greedy` needs no such bound and may move more. `at_least` is what any way needs: a queue over its limit has to give
away its heaviest slots until the rest fits, and no fewer slots would do.

*greedy*: the queue that is most over its limit gives a slot away, to a queue where it fits: the lightest one that is enough, else
the heaviest one that fits. Where none fits, it swaps a slot for a lighter one. At the end what turned out needless is taken
back, and a slot that moves gives way to a lighter one of the same queue where that is enough.

*search*: as long as a queue is over its limit, one of its own slots has to leave it in the end. So the search takes such a queue,
and tries each of its slots with each taker. Slots that it has tried before stay. That reaches each solution that has no needless
move, once. It goes no deeper than the number of moves allows, and leaves a branch that needs more, or moves more load than the
best solution so far. The number of moves grows by one until there is a solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["FoundMoves", "MoveProblem", "fewest_moves", "greedy_moves"]

_DEEPEST = 200  # moves; a level of Python's stack each


@dataclass(frozen=True)
class MoveProblem:
    """Slots and queues, by number.

    Attributes:
        loads: the load of each slot, from 0.
        owners: the queue of each slot.
        limits: the load that each queue may have; None for one that has to give all its slots away and may get none.
        fixed: the load that each queue has without any slot.
    """

    loads: Sequence[float]
    owners: Sequence[int]
    limits: Sequence[float | None]
    fixed: Sequence[float]

    @cached_property
    def slots_of(self) -> list[list[int]]:
        """The slots of each queue, the heaviest first."""
        found: list[list[int]] = [[] for _ in self.limits]
        for slot in sorted(range(len(self.loads)), key=lambda one: (-self.loads[one], one)):
            found[self.owners[slot]].append(slot)
        return found

    @cached_property
    def takers(self) -> list[int]:
        """The queues that may get slots."""
        return [queue for queue, limit in enumerate(self.limits) if limit is not None]

    @cached_property
    def at_least(self) -> int:
        """How many slots have to change hands in any case."""
        loads = self.loads_after({})
        return sum(self.needed(queue, loads[queue], slots) or 0 for queue, slots in enumerate(self.slots_of))

    @property
    def hopeless(self) -> bool:
        """Whether a slot fits into no queue, or a queue is over its limit without any slot."""
        rooms = [
            limit - fixed for limit, fixed in zip(self.limits, self.fixed, strict=True) if limit is not None
        ]
        return min(rooms, default=0.0) < 0 or max(self.loads, default=0.0) > max(rooms, default=-1.0)

    def needed(self, queue: int, load: float, slots: Sequence[int]) -> int | None:
        """Return how many of these slots a queue has to give away at least; None if all of them are too few.

        Args:
            queue: the queue.
            load: its load.
            slots: those of its slots that it may give away, the heaviest first.
        """
        limit = self.limits[queue]
        if limit is None:
            return len(slots)
        for count, slot in enumerate(slots):
            if load <= limit:
                return count
            load -= self.loads[slot]
        return len(slots) if load <= limit else None

    def loads_after(self, moves: Mapping[int, int]) -> list[float]:
        """Return the load of each queue.

        Args:
            moves: the new queue of each slot that changes hands.
        """
        loads = list(self.fixed)
        for slot, owner in enumerate(self.owners):
            loads[moves.get(slot, owner)] += self.loads[slot]
        return loads

    def cost(self, moves: Mapping[int, int]) -> tuple[int, float]:
        """Return how many slots change hands, and their load.

        Args:
            moves: the new queue of each slot that changes hands.
        """
        return len(moves), sum(self.loads[slot] for slot in moves)

    def solved_by(self, moves: Mapping[int, int]) -> bool:
        """Return whether no queue is over its limit, or has a slot that it may not have.

        Args:
            moves: the new queue of each slot that changes hands.
        """
        queues = {moves.get(slot, owner) for slot, owner in enumerate(self.owners)}
        loads = self.loads_after(moves)
        return all(
            queue not in queues if limit is None else loads[queue] <= limit
            for queue, limit in enumerate(self.limits)
        )


def greedy_moves(problem: MoveProblem) -> dict[int, int] | None:
    """Return the new queue of each slot that changes hands; None where no way was found.

    Args:
        problem: the slots and the queues.
    """
    found = [moves for fill in (False, True) if (moves := _Greedy(problem, fill=fill).moves()) is not None]
    return min(found, key=problem.cost, default=None)


class _Greedy:
    """One run. `fill` chooses the fullest queue where a slot fits, in place of the emptiest."""

    def __init__(self, problem: MoveProblem, *, fill: bool) -> None:
        self._problem = problem
        self._fill = fill
        self._held = [list(slots) for slots in problem.slots_of]
        self._loads = problem.loads_after({})

    def moves(self) -> dict[int, int] | None:
        for _ in range(4 * len(self._problem.loads) + 1):
            queue = max(range(len(self._loads)), key=self._excess)
            if self._excess(queue) <= 0:
                self._take_back()
                self._lighten()
                return self._moves()
            if not (self._give_away(queue) or self._swap(queue)):
                return None
        return None

    def _taker(self, slot: int, queue: int) -> int | None:
        """Return the queue where a slot fits that is to be filled first; None where it fits nowhere."""
        load = self._problem.loads[slot]
        fits = [other for other in self._problem.takers if other != queue and self._slack(other) >= load]
        return (min if self._fill else max)(fits, key=self._slack, default=None)

    def _excess(self, queue: int) -> float:
        limit = self._problem.limits[queue]
        if limit is None:
            return float("inf") if self._held[queue] else 0.0
        return self._loads[queue] - limit

    def _slack(self, queue: int) -> float:
        limit = self._problem.limits[queue]
        return float("-inf") if limit is None else limit - self._loads[queue]

    def _give_away(self, queue: int) -> bool:
        loads, excess = self._problem.loads, self._excess(queue)
        others = [other for other in self._problem.takers if other != queue]
        if not others:
            return False
        emptiest = max(others, key=self._slack)
        room = self._slack(emptiest)
        forced = self._problem.limits[queue] is None
        fitting = [slot for slot in self._held[queue] if loads[slot] <= room and (forced or loads[slot] > 0)]
        if not fitting:
            if not forced:
                return False
            fitting = self._held[queue][:1]  # it has to go: whoever gets it gives others away
        enough = [slot for slot in fitting if loads[slot] >= excess]
        slot = min(enough, key=loads.__getitem__) if enough else max(fitting, key=loads.__getitem__)
        taker = self._taker(slot, queue)
        self._move(slot, queue, emptiest if taker is None else taker)
        return True

    def _swap(self, queue: int) -> bool:
        """Swap a slot of the queue for a lighter one that leaves its other queue under the limit."""
        loads, excess = self._problem.loads, self._excess(queue)
        best: tuple[tuple[bool, float, float], int, int, int] | None = None
        for other in self._problem.takers:
            if other == queue:
                continue
            room = self._slack(other)
            for slot in self._held[queue]:
                for back in self._held[other]:
                    gain = loads[slot] - loads[back]
                    if 0 < gain <= room:
                        enough = gain >= excess
                        worth = (enough, -gain if enough else gain, -loads[back])
                        if best is None or worth > best[0]:
                            best = worth, slot, other, back
        if best is None:
            return False
        _, slot, other, back = best
        self._move(slot, queue, other)
        self._move(back, other, queue)
        return True

    def _move(self, slot: int, old: int, new: int) -> None:
        self._held[old].remove(slot)
        self._held[new].append(slot)
        self._loads[old] -= self._problem.loads[slot]
        self._loads[new] += self._problem.loads[slot]

    def _moves(self) -> dict[int, int]:
        owners = self._problem.owners
        return {
            slot: queue for queue, slots in enumerate(self._held) for slot in slots if owners[slot] != queue
        }

    def _take_back(self) -> None:
        """Leave slots where they are that need not move, the heaviest first."""
        owners, loads = self._problem.owners, self._problem.loads
        for slot, queue in sorted(self._moves().items(), key=lambda one: -loads[one[0]]):
            if loads[slot] <= self._slack(owners[slot]):
                self._move(slot, queue, owners[slot])

    def _lighten(self) -> None:
        """Move the lightest slot that is enough in place of a heavier one."""
        owners, loads = self._problem.owners, self._problem.loads
        for slot, queue in sorted(self._moves().items(), key=lambda one: -loads[one[0]]):
            old = owners[slot]
            lighter = (
                other
                for other in self._held[old]
                if owners[other] == old
                and loads[other] < loads[slot]
                and loads[slot] - loads[other] <= self._slack(old)
            )
            best = min(lighter, key=loads.__getitem__, default=None)
            if best is not None:
                self._move(slot, queue, old)
                self._move(best, old, queue)


@dataclass(frozen=True, slots=True)
class FoundMoves:
    """What was found, and what is known about it.

    Attributes:
        moves: the new queue of each slot that changes hands; None where no way was found.
        at_least: how many moves any way needs.
        least_load: whether no way with so few moves moves less load.
        impossible: whether there is no way at all.
    """

    moves: dict[int, int] | None
    at_least: int
    least_load: bool = False
    impossible: bool = False


def fewest_moves(problem: MoveProblem, steps: int) -> FoundMoves:
    """Return the fewest moves that bring each queue under its limit.

    Args:
        problem: the slots and the queues.
        steps: how many steps the search may take; then the best that is known counts.
    """
    least = problem.at_least
    if problem.hopeless:
        return FoundMoves(None, least, impossible=True)
    moves = greedy_moves(problem)
    most = len(problem.loads) if moves is None else len(moves)
    search = _Search(problem, steps)
    for count in range(least, min(most, _DEEPEST) + 1):
        known = moves if moves is not None and count == most else None
        found = search.run(count, known)
        if found is not None:
            return FoundMoves(found, count, least_load=not search.exhausted)
        if search.exhausted:
            return FoundMoves(moves, count)
    if most > _DEEPEST:
        return FoundMoves(moves, least)
    return FoundMoves(moves, most, impossible=moves is None)


class _OutOfStepsError(Exception):
    """The search has taken all its steps."""


class _Search:
    """A search for a number of moves. Its steps are counted over all runs.

    Attributes:
        exhausted: whether it has taken all its steps, so that a run may not have seen everything.
    """

    def __init__(self, problem: MoveProblem, steps: int) -> None:
        self._problem = problem
        self._steps = steps
        self.exhausted = False

    def run(self, count: int, known: dict[int, int] | None) -> dict[int, int] | None:
        """Return the solution of at most so many moves that moves the least load; None if none was found.

        Args:
            count: the number of moves.
            known: a solution of so many moves, if one is known.
        """
        problem = self._problem
        self._best = known
        self._least = float("inf") if known is None else problem.cost(known)[1]
        self._loads = problem.loads_after({})
        self._free = [list(slots) for slots in problem.slots_of]
        self._moves: dict[int, int] = {}
        needs = [self._need(queue) for queue in range(len(problem.limits))]
        try:
            if None not in needs:
                self._step(count, 0.0, [need or 0 for need in needs])
        except _OutOfStepsError:
            self.exhausted = True
        return self._best

    def _need(self, queue: int) -> int | None:
        return self._problem.needed(queue, self._loads[queue], self._free[queue])

    def _step(self, left: int, moved: float, needs: list[int]) -> None:
        if sum(needs) > left or moved + self._must_move(needs) >= self._least:
            return
        if not any(needs):
            self._best, self._least = dict(self._moves), moved
            return
        queue = max(range(len(needs)), key=needs.__getitem__)
        free = self._free[queue]
        for at, slot in enumerate(free):
            self._free[queue] = free[at + 1 :]
            if not self._try(slot, queue, left - 1, moved, needs):
                break
        self._free[queue] = free

    def _must_move(self, needs: list[int]) -> float:
        """Return the load that has to move from here on at least."""
        problem, total = self._problem, 0.0
        for queue, need in enumerate(needs):
            if need:
                limit = problem.limits[queue]
                total += (
                    sum(problem.loads[slot] for slot in self._free[queue])
                    if limit is None
                    else self._loads[queue] - limit
                )
        return total

    def _try(self, slot: int, queue: int, left: int, moved: float, needs: list[int]) -> bool:
        """Move a slot to each taker; return whether the next slot of its queue may move in its place."""
        problem, loads, load = self._problem, self._loads, self._problem.loads[slot]
        before, loads[queue] = loads[queue], loads[queue] - load
        need = self._need(queue)
        if need is not None and need <= left:
            seen = set[tuple[float, float]]()
            for taker in sorted(problem.takers, key=self._slack, reverse=True):
                if taker == queue:
                    continue
                self._steps -= 1
                if self._steps < 0:
                    raise _OutOfStepsError
                if not problem.slots_of[taker]:  # queues without slots are all the same
                    same = (loads[taker], problem.limits[taker] or 0.0)
                    if same in seen:
                        continue
                    seen.add(same)
                held, loads[taker] = loads[taker], loads[taker] + load
                there = self._need(taker)
                if there is not None:
                    after = list(needs)
                    after[queue], after[taker] = need, there
                    self._moves[slot] = taker
                    self._step(left, moved + load, after)
                    del self._moves[slot]
                loads[taker] = held
        loads[queue] = before
        # Those that come next are lighter: if this one is too light, so are they; and of a queue that gives all away none stays.
        return need is not None and need <= left and problem.limits[queue] is not None

    def _slack(self, queue: int) -> float:
        limit = self._problem.limits[queue]
        return float("-inf") if limit is None else limit - self._loads[queue]

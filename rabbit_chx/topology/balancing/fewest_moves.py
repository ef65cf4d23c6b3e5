"""The fewest moves that bring each queue under its limit, and among those the least load, by search.

As long as a queue is over its limit, one of its own slots has to leave it in the end. So the search takes such a queue, and
tries each of its slots with each taker. Slots that it has tried before stay. That reaches each solution that has no needless
move, once. It goes no deeper than the number of moves allows, and leaves a branch that needs more, or moves more load than the
best solution so far. The number of moves grows by one until there is a solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.topology.balancing.greedy_moves import greedy_moves

if TYPE_CHECKING:
    from rabbit_chx.topology.balancing.move_problem import MoveProblem

__all__ = ["FoundMoves", "fewest_moves"]

_DEEPEST = 200  # moves; a level of Python's stack each


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

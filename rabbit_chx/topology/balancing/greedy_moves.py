"""Moves that bring each queue under its limit, found without a search: quick for any number of slots, and not always the fewest.

The queue that is most over its limit gives a slot away, to a queue where it fits: the lightest one that is enough, else the
heaviest one that fits. Where none fits, it swaps a slot for a lighter one. At the end what turned out needless is taken back,
and a slot that moves gives way to a lighter one of the same queue where that is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbit_chx.topology.balancing.move_problem import MoveProblem

__all__ = ["greedy_moves"]


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

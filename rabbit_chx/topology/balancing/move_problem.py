"""Slots with a load, queues with a limit, and the slots that have to change hands. Numbers only.

The fewest moves are a hard problem: to fill queues up to a limit is bin packing. So there are two ways. `search` finds the
fewest moves, and among those the least load, by going through all moves that can help; its steps are counted, and it gives up
at a bound. `greedy` needs no such bound and may move more.

`at_least` is what any way needs: a queue over its limit has to give away its heaviest slots until the rest fits, and no fewer
slots would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MoveProblem"]


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

"""Slots that several queues have, as a mover leaves them that dies: which of its queues should keep each one.

A slot moves if none of its queues keeps it. A queue keeps at most its quota rounded down, and as many queues as there are slots
left over keep one more. So the most slots that can stay are a largest matching of slots and queues. It is found by augmenting
paths: a slot takes a place at one of its queues, and slots that have another queue make room for it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["one_queue_each"]


def one_queue_each(
    slots: Sequence[str], bound: Mapping[str, Sequence[str]], weights: Mapping[str, int]
) -> dict[str, str]:
    """Return one of its queues for each slot that has any, such that the most slots can stay where they are.

    Args:
        slots: the slots, in order.
        bound: the queues of each slot; slots that have none may be missing.
        weights: the weight of each queue that is to have slots, at least 1.
    """
    there = {slot: tuple(bound[slot]) for slot in slots if bound.get(slot)}
    chosen = {slot: queues[0] for slot, queues in there.items()}
    if all(len(queues) == 1 for queues in there.values()):
        return chosen
    places = _Places(len(slots), there, weights)
    for slot in sorted(there, key=lambda one: len(there[one]) > 1):
        places.take(slot)
    return chosen | places.taken


class _Places:
    """The places that queues have for slots.

    Attributes:
        taken: the queue of each slot that has a place.
    """

    def __init__(self, count: int, there: Mapping[str, Sequence[str]], weights: Mapping[str, int]) -> None:
        total = sum(weights.values())
        self.taken: dict[str, str] = {}
        self._there = there
        self._sure = {queue: count * weight // total for queue, weight in weights.items()}
        self._may_have_more = {queue for queue, weight in weights.items() if count * weight % total}
        self._left_over = count - sum(self._sure.values())
        self._held = Counter(dict.fromkeys(weights, 0))

    def take(self, slot: str) -> None:
        """Give a slot a place at one of its queues, if it is free or others can make room.

        The search is over queues that would get one slot more: the slot that each of them would get, and the queue that has room
        by that.
        """
        came_by: dict[str, tuple[str, str | None]] = {
            queue: (slot, None) for queue in self._there[slot] if queue in self._sure
        }
        waiting = deque(came_by)
        while waiting:
            queue = waiting.popleft()
            if self._has_room(queue):
                self._move_along(queue, came_by)
                return
            for giving in self._giving_way_to(queue):
                for moving, at in self.taken.items():
                    for other in self._there[moving] if at == giving else ():
                        if other in self._sure and other != giving and other not in came_by:
                            came_by[other] = moving, queue
                            waiting.append(other)

    def _has_room(self, queue: str) -> bool:
        held, sure = self._held[queue], self._sure[queue]
        return held < sure or (held == sure and queue in self._may_have_more and self._left_over > 0)

    def _giving_way_to(self, queue: str) -> Iterator[str]:
        """Yield the queues that make room in a full one by a slot less: itself, and those that have one of those left over."""
        yield queue
        if queue in self._may_have_more and self._held[queue] == self._sure[queue]:
            yield from (one for one, sure in self._sure.items() if self._held[one] > sure)

    def _move_along(self, last: str, came_by: Mapping[str, tuple[str, str | None]]) -> None:
        before = self._more_than_sure()
        queue: str | None = last
        while queue is not None:
            slot, behind = came_by[queue]
            if slot in self.taken:
                self._held[self.taken[slot]] -= 1
            self.taken[slot] = queue
            self._held[queue] += 1
            queue = behind
        self._left_over -= self._more_than_sure() - before

    def _more_than_sure(self) -> int:
        return sum(max(0, self._held[queue] - sure) for queue, sure in self._sure.items())

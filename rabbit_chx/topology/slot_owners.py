"""Which queue has which slot of an exchange: as the file says, or by weight with as few keys in other hands as can be.

A mover that dies leaves a slot with several queues. Such a slot moves if none of its queues keeps it. A queue keeps at most its
quota rounded down, and as many queues as there are slots left over keep one more. So the most slots that can stay are a largest
matching of slots and queues. It is found by augmenting paths: a slot takes a place at one of its queues, and slots that have
another queue make room for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.slot_assignment import kept_slots, slot_counts
from rabbit_chx.topology.objects import RingMember, SlotNames, order_of_name
from rabbit_chx.topology.ring_figures import seed_pairs

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology

__all__ = ["owners_of_slots", "queues_of_slots"]

#: How many seeds of each slot have each queue now.
_Kept = dict[str, Counter[str]]


def queues_of_slots(live: Topology) -> dict[str, tuple[str, ...]]:
    """Return the queues that each exchange is bound to, in the order of their names, but of hash exchanges.

    Args:
        live: what is there.
    """
    found: dict[str, dict[str, None]] = {}
    for binding in live.bindings:
        if isinstance(binding.destination, str):
            found.setdefault(binding.source, {})[binding.destination] = None
    return {source: tuple(queues) for source, queues in found.items()}


def owners_of_slots(
    names: SlotNames, members: Sequence[RingMember], ring: HashRing, bound: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the queue of each slot, in the order of the slots.

    A slot keeps the queue that it has, or one of several, as far as the weights let it. No other owners move fewer slots. A slot that nobody has goes to the queue that has most of
    its keys now, as far as the weights let it.

    Args:
        names: the names of the slots.
        members: the queues that share them, with weights or lists.
        ring: the ring of the exchange that is there; empty if there is none.
        bound: the queues that each exchange is bound to, of `queues_of_slots`.

    Raises:
        InputError: there are no members, a queue would get no slot, or lists of slots do not have each slot once.
    """
    if any(member.slots is not None for member in members):
        return _as_listed(names, members)
    weights = {str(member.destination): weight_of(*member.binding) for member in members}
    there = one_queue_each(names.slots, bound, weights)
    counts = slot_counts(names.count, weights, Counter(there.values()))
    owners, left = kept_slots(names.slots, there, counts)
    free = [slot for slot in names.slots if slot not in owners]
    if free:
        kept = _kept_seeds(names, ring, bound) if any(slot not in there for slot in free) else {}
        owners |= _shared(free, left, kept)
    return {slot: owners[slot] for slot in names.slots}


def _as_listed(names: SlotNames, members: Sequence[RingMember]) -> dict[str, str]:
    owners: dict[str, str] = {}
    slots, exchange = names.slots, names.exchange
    for member in members:
        for number in member.slots or ():
            if not 0 <= number < names.count or slots[number] in owners:
                raise InputError(
                    f"slot {number} of {exchange} is listed twice, or there is none: list each of 0 to {names.count - 1} once"
                )
            owners[slots[number]] = str(member.destination)
    missing = [number for number, slot in enumerate(slots) if slot not in owners]
    if missing:
        raise InputError(
            f"slot {missing[0]} of {exchange} is not listed: list each of 0 to {names.count - 1} once"
        )
    return {slot: owners[slot] for slot in slots}


def _shared(free: Sequence[str], left: dict[str, int], kept: _Kept) -> dict[str, str]:
    """Return who takes the free slots: where most keys stay comes first, then the order of slots and of names."""
    takers = sorted((queue for queue, count in left.items() if count), key=order_of_name)
    wishes = sorted(
        (-kept.get(slot, Counter())[queue], number, place)
        for number, slot in enumerate(free)
        for place, queue in enumerate(takers)
    )
    owners: dict[str, str] = {}
    for _, number, place in wishes:
        queue = takers[place]
        if left[queue] and free[number] not in owners:
            left[queue] -= 1
            owners[free[number]] = queue
    return owners


def _kept_seeds(names: SlotNames, ring: HashRing, bound: Mapping[str, Sequence[str]]) -> _Kept:
    """Return how many seeds of each slot have each queue now; nothing where no key has one."""
    if not ring.bucket_count:
        return {}
    pairs = seed_pairs(ring.bucket_count, names.count)
    queues = [_queue_of_bucket(ring, number, bound) for number in range(len(ring.buckets))]
    slots = names.slots
    kept: _Kept = {}
    for before, after, seeds in zip(
        pairs.before.tolist(), pairs.after.tolist(), pairs.seeds.tolist(), strict=True
    ):
        queue = queues[before]
        if queue is not None:
            kept.setdefault(slots[after], Counter())[queue] += seeds
    return kept


def _queue_of_bucket(ring: HashRing, number: int, bound: Mapping[str, Sequence[str]]) -> str | None:
    place = ring.buckets[number]
    if not isinstance(place, ExchangeRef):
        return place
    queues = bound.get(place.name, ())
    return queues[0] if len(queues) == 1 else None


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

"""The exact share of keys that a change moves, by the ring and by the owners of its slots.

A key has one of 2^21 seeds. The seed and the bucket count determine its bucket. While the bucket count grows, a seed stays in a bucket for
a range of counts, and then jumps to a later bucket. Such a range is called a stay. `MovementCounter` sorts the stays of all seeds once: by
bucket, by the destination of the seed on the live ring, and by the last bucket count of the stay. For each bucket of another ring, two
binary searches then count the seeds that keep their destination.

This makes exact shares affordable: a ring of n buckets costs n searches instead of 2^21 comparisons, and a plan compares as many rings as it
has steps. It works because the bucket of a seed depends on the bucket count only, and because nearly all pairs of a bucket and a previous
destination have no seeds, which a table shows without a search.

The destinations in a ring with slots are slot exchanges, and a message reaches the queue that owns the slot. So the movement of such a ring
is counted by owner, which a `SlotView` has for each moment of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing.bindings import Destination, Place
from rabbit_chx.routing.jump import SEEDS
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.modulus import share_moved

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Moment(NamedTuple):
    """The keys after a step of a plan.

    Attributes:
        moved: the share of keys whose destination differs from that before the plan. Keys without a destination count.
        lost: the share of keys without a destination: their messages are unroutable.
    """

    moved: float
    lost: float


#: The size of the table that marks, by a remainder, the pairs of bucket and destination that may have seeds. Most pairs have none, and need
#: no search.
_MARKS = 1 << 22


class MovementCounter:
    """Counts the share of all keys that other rings move away from one ring. A hole and an empty ring count as destination None.

    `owners` are those of the slots of that ring. `set_owners` replaces them for the rings that are counted.
    """

    def __init__(self, before: Sequence[Place], owners: Mapping[Place, Place] | None = None) -> None:
        import numpy as np

        self._ids: dict[Place, int] = {None: 0}  # the number of each destination
        self._owners = np.zeros(0, np.int64)  # the number of the owner of each destination
        numbers = self.number_destinations(before)
        self.set_owners(owners or {})
        self._before = self._find_owners(numbers)
        self._known = len(self._ids)  # only destinations with lower numbers had keys
        self._least, self._most = len(self._before), 0  # the bucket counts for which stays are sorted

    def number_destinations(self, buckets: Sequence[Place]) -> NDArray[np.int64]:
        """Return the number of the destination of each bucket, 0 for a hole."""
        import numpy as np

        return np.fromiter(map(self._number, buckets), np.int64, len(buckets))

    def update_numbers(
        self, numbers: NDArray[np.int64], destination: Place, length: int
    ) -> NDArray[np.int64]:
        """Return the numbers after a bind or an unbind of a destination, which changes the length of the ring to `length`."""
        import numpy as np

        number = self._number(destination)
        growth = length - len(numbers)
        if growth >= 0:
            return np.append(numbers, np.full(growth, number))
        buckets = np.flatnonzero(numbers == number)
        first = buckets[0]
        end = buckets[-1] + 1
        return np.concatenate([numbers[:first], np.zeros(end - first + growth, np.int64), numbers[end:]])

    def _number(self, destination: Place) -> int:
        return self._ids.setdefault(destination, len(self._ids))

    def set_owners(self, owners: Mapping[Place, Place]) -> None:
        """Count the keys of these slots as keys of their owners from now on; other slots keep their owners."""
        pairs = [(self._number(slot), self._number(owner)) for slot, owner in owners.items()]
        self._number_owners()
        for slot, owner in pairs:
            self._owners[slot] = owner

    def _number_owners(self) -> None:
        """Let each new destination own itself."""
        import numpy as np

        if len(self._owners) < len(self._ids):
            self._owners = np.append(self._owners, np.arange(len(self._owners), len(self._ids)))

    def _find_owners(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the owner of each counted bucket of a ring."""
        import numpy as np

        # With holes, routing counts only as many buckets as have a destination. An empty ring is one hole.
        counted = numbers[: np.count_nonzero(numbers)] if numbers.any() else np.zeros(1, np.int64)
        self._number_owners()
        return self._owners[counted]

    def prepare(self, counts: Iterable[int]) -> None:
        """Sort the stays for rings with these bucket counts, unless they are sorted already."""
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        if not (needed := [*counts]):
            return
        least = min(*needed, self._least)
        most = max(*needed, self._most, len(self._before))
        if least < self._least or most > self._most:
            self._least = least
            self._most = most
            stays = stays_of_seeds(len(self._before), least, most)
            cells = self._cells(stays.bucket, self._before[stays.before]) + np.minimum(stays.last, most)
            order = np.argsort(cells, kind="stable")
            self._stays = cells[order]
            self._seeds_before = np.concatenate([[0], np.cumsum(stays.seeds[order])])
            self._filled = np.zeros(_MARKS, bool)
            self._filled[self._stays // (most + 1) & _MARKS - 1] = True

    def count(self, numbers: NDArray[np.int64], dead_ends: Collection[Place] = ()) -> Moment:
        """Return the share of keys that a ring moves, and the share without a destination on it.

        Args:
            numbers: the numbers of its buckets, from `number_destinations`.
            dead_ends: slots without an owner: their keys count as keys without a destination.
        """
        import numpy as np

        destinations = self._find_owners(numbers)
        count = len(destinations)
        self.prepare([count])
        buckets = np.flatnonzero(destinations < self._known)
        buckets = buckets[self._filled[(buckets * self._known + destinations[buckets]) & _MARKS - 1]]
        staying = self._count_seeds(buckets, destinations[buckets], count).sum()
        is_hole = np.zeros(len(self._ids), bool)
        is_hole[[0, *(self._ids[dead_end] for dead_end in dead_ends if dead_end in self._ids)]] = True
        lost = 0
        holes = np.flatnonzero(is_hole[destinations])
        for before in range(self._known if len(holes) else 0):
            lost += self._count_seeds(holes, np.full_like(holes, before), count).sum()
        return Moment(1 - int(staying) / SEEDS, int(lost) / SEEDS)

    def seeds_by_bucket(
        self, destinations: Sequence[Place], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of seeds of each bucket by their previous destination, for `count` buckets.

        The result is three arrays of one length: bucket, index of the destination, number of seeds. Pairs without seeds are left out.
        """
        import numpy as np

        self.prepare([count])
        cells, last = np.divmod(self._stays, self._most + 1)
        rows = np.flatnonzero((last >= count) & (cells < count * self._known))
        firsts = np.flatnonzero(np.diff(cells[rows], prepend=-1))
        seeds = np.add.reduceat(np.diff(self._seeds_before)[rows], firsts)
        buckets, numbers = np.divmod(cells[rows][firsts], self._known)
        index_of_number = np.full(self._known, -1)
        for index, destination in enumerate(destinations):
            if self._ids.get(destination, self._known) < self._known:
                index_of_number[self._ids[destination]] = index
        indices = index_of_number[numbers]
        is_wanted = indices >= 0
        return buckets[is_wanted], indices[is_wanted], seeds[is_wanted]

    def _cells(self, buckets: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sort key of the first stay of each bucket and previous destination; the last bucket count of a stay is added to it."""
        return (buckets * self._known + numbers) * (self._most + 1)

    def _count_seeds(
        self, buckets: NDArray[np.int64], numbers: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        cells = self._cells(buckets, numbers)
        first = self._stays.searchsorted(cells + count)
        end = self._stays.searchsorted(cells + self._most + 1)
        seeds: NDArray[np.int64] = self._seeds_before[end] - self._seeds_before[first]
        return seeds


def shares_moved_without(key_map: KeyMap, places: Iterable[Destination]) -> dict[Destination, float]:
    """Return the exact share of keys that move when a destination of a map is removed, for each of some of its destinations."""
    buckets = key_map.buckets
    known = {*key_map.destinations}
    left = {place: [bucket for bucket in buckets if bucket != place] for place in places if place in known}
    if not key_map.hashing.has_order:
        return {place: share_moved(buckets, rest, key_map.release) for place, rest in left.items()}
    counter = MovementCounter(buckets)
    counter.prepare(map(bucket_count, left.values()))
    return {place: counter.count(counter.number_destinations(rest)).moved for place, rest in left.items()}


def bucket_count(buckets: Sequence[Place]) -> int:
    """Return the number of buckets that keys can have: holes do not count, and an empty ring counts as one hole."""
    return max(len(buckets) - buckets.count(None), 1)

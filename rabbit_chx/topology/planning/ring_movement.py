"""How many keys another ring would send elsewhere: exact, for many rings that are held against one.

A table of all 2^21 seeds costs time, and it depends on the bucket count alone. So seeds are counted once for each bucket
count, by the pair of their bucket before and their bucket after. After that a ring costs no more than its buckets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.planning.staying_seeds import StayingSeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import HashRing, Place

__all__ = ["Movement", "SeedPairs"]


_MAX_PAIRS = 4
_OWN_NAMES: Mapping[Place, Place] = {}


class SeedPairs(NamedTuple):
    """How many seeds have which bucket before and after.

    Attributes:
        before: the bucket before; 0 everywhere if that ring has no buckets.
        after: the bucket after, likewise.
        seeds: how many seeds have both.
    """

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    seeds: NDArray[np.int64]


class Movement:
    """The movement of keys away from one ring.

    Args:
        before: the ring that keys move away from.
        names: what destinations of that ring are called, if not by their own name: what has one name is one place.
    """

    def __init__(self, before: HashRing, names: Mapping[Place, Place] = _OWN_NAMES) -> None:
        self._ring = before
        self._names = names
        self._ids: dict[Place, int] = {None: -1}
        self._tables: dict[int, NDArray[np.unsignedinteger[Any]]] = {}
        self._rolling: tuple[int, NDArray[np.unsignedinteger[Any]]] | None = None
        self._pairs: dict[int, SeedPairs] = {}
        self._seeds: dict[int, NDArray[np.int64]] = {}
        self._numbers: dict[Place, int] = {None: -1}
        self._places = self.numbered(before.buckets)
        self._known = len(self._ids)
        self._staying: StayingSeeds | None = None
        self._sources: NDArray[np.int32] | None = None

    def renamed(self, names: Mapping[Place, Place]) -> None:
        """Call destinations of rings after that before by other names.

        Args:
            names: what they are called, if not by their own name.
        """
        self._names = names
        self._numbers = {None: -1}

    @property
    def by_own_names(self) -> bool:
        """Whether each destination is a place of its own."""
        return not self._names

    def is_new(self, place: Place) -> bool:
        """Return whether no key has a destination of that name on the ring before.

        Args:
            place: a destination.
        """
        return self._ids.get(self._names.get(place, place), self._known) >= self._known

    def moved(self, buckets: Sequence[Place]) -> float:
        """Return the share of the seeds whose destination is another one on a ring with these buckets.

        It equals `HashRing.share_moved`. A hole and an empty ring are the destination None.

        Args:
            buckets: the destination of each bucket; None at a hole.
        """
        return self.moved_and_lost(buckets)[0]

    def moved_and_lost(self, buckets: Sequence[Place], *, once: bool = False) -> tuple[float, float]:
        """Return the share that moves, and the share that has no destination on the ring with these buckets.

        Args:
            buckets: the destination of each bucket; None at a hole.
            once: whether it is the only ring of its bucket count, for which pairs of buckets are not worth counting.
        """
        return self.moved_and_lost_of(self.numbered(buckets), once=once)

    def moved_and_lost_of(self, numbers: NDArray[np.int32], *, once: bool = False) -> tuple[float, float]:
        """Return the same as `moved_and_lost`, of a ring that is given by the numbers of its destinations."""
        import numpy as np

        count = int(np.count_nonzero(numbers >= 0))
        if once and count not in self._pairs:
            if self._sources is None:
                self._sources = self._places[self._kept_table(self._ring.bucket_count)]
            places = numbers[self._table(count)]
            moved, lost = np.count_nonzero(places != self._sources), np.count_nonzero(places == np.int32(-1))
            return int(moved) / SEEDS, int(lost) / SEEDS
        pairs = self.pairs(count)
        found = numbers[pairs.after]
        moved = pairs.seeds[found != self._places[pairs.before]].sum()
        lost = pairs.seeds[found == np.int32(-1)].sum()
        return int(moved) / SEEDS, int(lost) / SEEDS

    def least_staying(self, numbers: NDArray[np.int32]) -> float:
        """Return a share of the seeds that stays at least: those whose bucket and its destination are the same.

        It costs no table, but for one of the largest bucket count that was prepared.

        Args:
            numbers: the number of the destination of each bucket.
        """
        import numpy as np

        count = int(np.count_nonzero(numbers >= 0))
        own = self._ring.bucket_count
        larger = own if count <= own else max([count, *self._tables])
        if larger not in self._seeds:
            self._seeds[larger] = np.bincount(self._kept_table(larger), minlength=max(larger, 1))
        common = min(count, own)
        same = numbers[:common] == self._places[:common]
        return int(self._seeds[larger][:common][same].sum()) / SEEDS

    def staying_seeds(self, least: int, most: int) -> StayingSeeds:
        """Return the seeds, ready to be held against many rings. The ring before has buckets and no holes.

        Args:
            least: the smallest bucket count, at least 1.
            most: the largest one.
        """
        kept = self._staying
        if kept is None or least < kept.least or most > kept.most:
            kept = self._staying = StayingSeeds(self._places, least, most)
        return kept

    def prepare(self, counts: Iterable[int]) -> None:
        """Make ready for rings of these bucket counts: the largest answers for most seeds of the others."""
        self._kept_table(max([*counts, self._ring.bucket_count]))

    def pairs(self, count: int) -> SeedPairs:
        """Return how many seeds have which bucket before, and after on a ring of so many buckets."""
        found = self._pairs.pop(count, None) or self._counted(count)
        self._pairs[count] = found
        while len(self._pairs) > _MAX_PAIRS:
            del self._pairs[next(iter(self._pairs))]
        return found

    def _counted(self, count: int) -> SeedPairs:
        import numpy as np

        before = self._kept_table(self._ring.bucket_count)
        after = self._table(count)
        same = before == after
        stay = np.bincount(before[same])
        buckets = np.flatnonzero(stay)
        width = max(count, 1)
        cells, seeds = np.unique(
            before[~same].astype(np.int64) * width + after[~same].astype(np.int64), return_counts=True
        )
        return SeedPairs(
            np.concatenate([buckets, cells // width]),
            np.concatenate([buckets, cells % width]),
            np.concatenate([stay[buckets], seeds]),
        )

    def _kept_table(self, count: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the bucket of each seed, and keep it."""
        if count not in self._tables:
            self._tables[count] = self._table(count).copy()
        return self._tables[count]

    def _table(self, count: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the bucket of each seed, until another table is asked for.

        A seed whose bucket is the same with more buckets is not walked again: its bucket is below the bucket count. So
        tables are cheap in the order of falling bucket counts.
        """
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import all_buckets, buckets_of_seeds

        if count in self._tables:
            return self._tables[count]
        if count == 0:
            return np.zeros(SEEDS, np.uint8)
        larger = min((known for known in self._tables if known > count), default=None)
        if (
            self._rolling is not None
            and count <= self._rolling[0]
            and (larger is None or self._rolling[0] <= larger)
        ):
            table = self._rolling[1]
        else:
            table = (all_buckets(count) if larger is None else self._tables[larger]).copy()
        beyond = np.flatnonzero(table >= count).astype(np.uint32)
        if len(beyond):
            table[beyond] = buckets_of_seeds(beyond, count)
        self._rolling = count, table
        return table

    @property
    def places(self) -> NDArray[np.int32]:
        """The number of the destination of each bucket before."""
        return self._places

    def numbered(self, buckets: Sequence[Place]) -> NDArray[np.int32]:
        """Return the number of each bucket's destination, -1 for a hole and for an empty ring."""
        import numpy as np

        numbers = self._numbers
        if not buckets:
            return np.array([-1], np.int32)
        try:
            return np.fromiter(map(numbers.__getitem__, buckets), np.int32, len(buckets))
        except KeyError:
            ids = self._ids
            for place in buckets:
                if place not in numbers:
                    numbers[place] = ids.setdefault(self._names.get(place, place), len(ids))
            return np.fromiter(map(numbers.__getitem__, buckets), np.int32, len(buckets))

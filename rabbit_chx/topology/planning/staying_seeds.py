"""How many seeds stay where they are, for many rings of many bucket counts: exact, without a table for each count.

A seed walks through ever higher buckets as the bucket count grows, and it is in each of them for a range of counts. There are
few such stays: one for each seed, and as many again each time the count grows by a factor of e. So they are sorted once, by
the bucket and by the destination that the seed has on the ring before. Then a ring costs two searches for each bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing.seed_tables import SEEDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["StayingSeeds"]

_SEEDS_AT_ONCE = 1 << 14
_BUCKETS_AT_ONCE = 1 << 10


class StayingSeeds:
    """The seeds of one ring, ready to be held against rings of a range of bucket counts.

    Args:
        places: the number of each bucket's destination on the ring before, from 0 on, without holes.
        least: the smallest bucket count, at least 1.
        most: the largest one.
    """

    def __init__(self, places: NDArray[np.int32], least: int, most: int) -> None:
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        own = len(places)
        self._places = places
        self._destinations = int(places.max()) + 1
        self.least, self.most = least, most = min(least, own), max(most, own)
        self._width = most + 1
        self._lasting = np.zeros(most, np.int64)
        keys = []
        for start in range(0, SEEDS, _SEEDS_AT_ONCE):
            seeds = np.arange(start, start + _SEEDS_AT_ONCE, dtype=np.uint32)
            which, bucket, until = stays_of_seeds(seeds, least, most)
            before = (bucket < own) & (own <= until)
            held = np.empty(len(seeds), np.int64)
            held[which[before]] = places[bucket[before]]
            keys.append((bucket * self._destinations + held[which]) * self._width + until)
            self._lasting += np.bincount(bucket[until == most], minlength=most)
        self._keys = np.concatenate(keys)
        self._keys.sort()

    def least_staying(self, places: NDArray[np.int32]) -> int:
        """Return a number of seeds that stay at least: those with the same bucket on the largest ring, if it is the same.

        Args:
            places: the number of each bucket's destination on another ring, which has no holes.
        """
        common = min(len(places), len(self._places))
        return int(self._lasting[:common][places[:common] == self._places[:common]].sum())

    def staying(self, places: NDArray[np.int32], enough: int = SEEDS) -> int:
        """Return how many seeds have the same destination on another ring, or as many as are enough.

        Args:
            places: the number of each bucket's destination on that ring, which has no holes.
            enough: the count stops when it has reached this.
        """
        import numpy as np

        count = len(places)
        buckets = np.flatnonzero(places < self._destinations)
        found = 0
        for start in range(0, len(buckets), _BUCKETS_AT_ONCE):
            part = buckets[start : start + _BUCKETS_AT_ONCE]
            cells = (part * self._destinations + places[part]) * self._width
            ends = np.searchsorted(self._keys, cells + self._width)
            found += int((ends - np.searchsorted(self._keys, cells + count)).sum())
            if found >= enough:
                break
        return found

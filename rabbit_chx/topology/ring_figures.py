"""How many keys other rings send elsewhere than the ring that is there: exact, for any number of rings.

A key has one of 2^21 seeds, and the seed and the bucket count give its bucket. As the count grows, a seed goes through ever
higher buckets, and it is in each of them for a range of counts: a stay. There are few of them: one for each seed, and as many
again each time the count grows by a factor of e. So all stays are sorted once, by the bucket, by the destination that the seed
has on the ring that is there, and by the largest count. The seeds that keep their destination on another ring are then two
searches for each of its buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.ring_steps import RingWalk, ring_walks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import Destination, HashRing, Place
    from rabbit_chx.topology.objects import RingMember

__all__ = ["RingFigures", "best_walk", "seed_pairs"]

_SEEDS_AT_ONCE = 1 << 14
_OWN_NAMES: Mapping[Place, Place] = {}


class WalkFigures(NamedTuple):
    """What a way from one ring to another does to keys.

    Attributes:
        moved: the share of keys whose destination is another one in the end.
        moved_at_worst: the same at the worst moment between the steps.
        lost_at_worst: the largest share of keys without a destination at any moment.
    """

    moved: float
    moved_at_worst: float
    lost_at_worst: float


def best_walk(
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    figures: RingFigures,
) -> tuple[RingWalk, WalkFigures] | None:
    """Return the way to a ring that leaves the fewest keys without a destination, and of those the one that moves least.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again.
        figures: the figures of rings beside the live one.

    Returns:
        The way, and its figures. None if binds and unbinds cannot make the ring.

    Raises:
        InputError: the broker would refuse a binding.
        NotDeterminedError: no rule of the release decides what one of the operations does.
    """
    walks = ring_walks(live, bound, wanted, replaced)
    figures.prepare([ring.buckets for walk in walks for ring in walk.rings])
    rated = [(walk, figures.of_walk(walk)) for walk in walks]
    return min(rated, key=lambda rating: (rating[1].lost_at_worst, rating[1].moved_at_worst), default=None)


class RingFigures:
    """The shares of all keys that rings send elsewhere than one ring does. A hole and an empty ring are the destination None.

    Args:
        before: the ring that keys move away from.
        names: what destinations of that ring are called, if not by their own name: what has one name is one place.
        names_after: the same for destinations of other rings.
    """

    def __init__(
        self,
        before: HashRing,
        names: Mapping[Place, Place] = _OWN_NAMES,
        names_after: Mapping[Place, Place] = _OWN_NAMES,
    ) -> None:
        self._ids: dict[Place, int] = {None: 0}
        self._names = names
        self._before = self._places(before.buckets)
        self._names = names_after
        self._known = len(self._ids)
        self._least = self._most = len(self._before)
        self._stays: NDArray[np.int64] | None = None

    def moved(self, buckets: Sequence[Place]) -> float:
        """Return the share of keys whose destination is another one on a ring with these buckets: `HashRing.share_moved`."""
        return self.moved_and_lost(buckets)[0]

    def moved_and_lost(self, buckets: Sequence[Place]) -> tuple[float, float]:
        """Return the share of keys that a ring with these buckets moves, and the share that has no destination on it."""
        import numpy as np

        places = self._places(buckets)
        stays = self._stays_for(len(places), len(places))
        known = np.flatnonzero(places < self._known)
        staying = self._seeds_in(stays, known, places[known], len(places))
        lost = 0
        if not places.all():
            holes = np.flatnonzero(places == 0)
            lost = sum(
                self._seeds_in(stays, holes, np.full_like(holes, place), len(places))
                for place in range(self._known)
            )
        return 1 - staying / SEEDS, lost / SEEDS

    def of_walk(self, walk: RingWalk) -> WalkFigures:
        """Return the figures of a way from the ring before to another one."""
        moments = [self.moved_and_lost(ring.buckets) for ring in walk.rings] or [(0.0, 0.0)]
        return WalkFigures(
            moments[-1][0], max(moved for moved, _ in moments), max(lost for _, lost in moments)
        )

    def prepare(self, rings: Iterable[Sequence[Place]]) -> None:
        """Sort the stays once for rings with these buckets, and not again for each that is smaller or larger."""
        counts = [_bucket_count(buckets) for buckets in rings]
        if counts:
            self._stays_for(min(counts), max(counts))

    def _places(self, buckets: Sequence[Place]) -> NDArray[np.int64]:
        """Return a number for the destination of each bucket that a key can have, 0 for none."""
        import numpy as np

        ids, names = self._ids, self._names
        count = _bucket_count(buckets)
        named = (ids.setdefault(names.get(place, place), len(ids)) for place in buckets[:count] or (None,))
        return np.fromiter(named, np.int64, count)

    def _stays_for(self, least: int, most: int) -> NDArray[np.int64]:
        """Return the stays of all seeds for a range of bucket counts, sorted: each is bucket, destination and last count."""
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        if self._stays is None or least < self._least or most > self._most:
            self._least, self._most = min(least, self._least), max(most, self._most)
            own, sorted_stays = len(self._before), []
            for start in range(0, SEEDS, _SEEDS_AT_ONCE):
                seeds = np.arange(start, start + _SEEDS_AT_ONCE, dtype=np.uint32)
                seed, bucket, until = stays_of_seeds(seeds, self._least, self._most)
                then = (bucket < own) & (own <= until)
                before = np.empty(len(seeds), np.int64)
                before[seed[then]] = self._before[bucket[then]]
                sorted_stays.append(self._cells(bucket, before[seed]) + until)
            self._stays = np.concatenate(sorted_stays)
            self._stays.sort()
        return self._stays

    def _cells(self, buckets: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        return (buckets * self._known + places) * (self._most + 1)

    def _seeds_in(
        self, stays: NDArray[np.int64], buckets: NDArray[np.int64], places: NDArray[np.int64], count: int
    ) -> int:
        """Return how many seeds have these buckets with a bucket count, and had these destinations before."""
        cells = self._cells(buckets, places)
        ends = stays.searchsorted(cells + self._most + 1)
        return int((ends - stays.searchsorted(cells + count)).sum())


def _bucket_count(buckets: Sequence[Place]) -> int:
    """Return how many buckets keys can have: holes do not count, and an empty ring is one hole."""
    return max(len(buckets) - buckets.count(None), 1)


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


def seed_pairs(before: int, after: int) -> SeedPairs:
    """Return how many seeds have which bucket with one bucket count and with another one."""
    import numpy as np

    from rabbit_chx.routing.arrays.seeds import all_buckets

    width = max(after, 1)
    cells = all_buckets(max(before, 1)).astype(np.int64) * width + all_buckets(width)
    pairs, seeds = np.unique(cells, return_counts=True)
    return SeedPairs(pairs // width, pairs % width, seeds)

"""How many keys move on a way from one ring to another, and the way on which the fewest do: exact.

A table of all 2^21 seeds costs time, and it depends on the bucket count alone. So seeds are counted once for each bucket
count, by the pair of their bucket before and their bucket after. After that a ring costs no more than its buckets.

For many bucket counts there is another way. A seed walks through ever higher buckets as the bucket count grows, and it is in
each of them for a range of counts. There are few such stays: one for each seed, and as many again each time the count grows by
a factor of e. So they are sorted once, by the bucket and by the destination that the seed has on the ring before. Then a ring
costs two searches for each bucket.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.ring_steps import PlainMoments, ring_walks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import Destination, HashRing, Place
    from rabbit_chx.routing.ring_state import RingState
    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.ring_steps import RingWalk

__all__ = ["Movement", "SeedPairs", "StayingSeeds", "best_walk", "figures_of"]

_ALWAYS = 2.0
#: So many moments are counted first.
_FIRST = 3
#: For so many rings of one size, pairs of buckets are counted instead of seeds.
_WORTH_COUNTING = 4
#: For rings of so many sizes, or for so many large rings, seeds are sorted once instead of counted for each size.
_MANY = 24
#: So many rings of any size are counted that way too.
_MANY_RINGS = 200
#: A ring of so many buckets is large.
_LARGE = 200
#: Of these, no ring has more than so many times the buckets of another.
_RANGE = 16
_MAX_PAIRS = 4
_OWN_NAMES: Mapping[Place, Place] = {}
_SEEDS_AT_ONCE = 1 << 14
_BUCKETS_AT_ONCE = 1 << 10


def best_walk(
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    movement: Movement,
) -> tuple[RingWalk, tuple[float, float, float]] | None:
    """Return the way to a ring that leaves the fewest keys without a destination, and of those the one that moves least.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again.
        movement: the movement away from the live ring.

    Returns:
        The way, and its figures as `figures_of` gives them. None if binds and unbinds cannot make the ring.

    Raises:
        InputError: the broker would refuse a binding.
        NotDeterminedError: no rule of the release decides what one of the operations does.
    """
    walks = ring_walks(live, bound, wanted, replaced)
    moments = [_moments(walk, live, movement) for walk in walks]
    seeds = _seeds_for([one for some in moments for one in some], live, movement)
    rated = [(walk, _figures(some, seeds, movement)) for walk, some in zip(walks, moments, strict=True)]
    return min(rated, key=lambda one: (one[1][2], one[1][1]), default=None)


def figures_of(walk: RingWalk, live: HashRing, movement: Movement) -> tuple[float, float, float]:
    """Return the share that moves in the end, at the worst moment, and the largest share without a destination."""
    moments = _moments(walk, live, movement)
    return _figures(moments, _seeds_for(moments, live, movement), movement)


class _Moment(NamedTuple):
    """A ring between two steps that has to be counted.

    Attributes:
        size: how many buckets it has, without holes.
        complete: whether it has buckets, and no holes.
        numbers: gives the number of the destination of each bucket.
    """

    size: int
    complete: bool
    numbers: Callable[[], NDArray[np.int32]]

    def fits(self, seeds: StayingSeeds) -> bool:
        return self.complete and seeds.least <= self.size <= seeds.most


def _figures(
    moments: Sequence[_Moment], seeds: StayingSeeds | None, movement: Movement
) -> tuple[float, float, float]:
    if not moments:
        return 0.0, 0.0, 0.0
    *earlier, last = moments
    together = [] if seeds is None else [one for one in earlier if one.fits(seeds)]
    known = {id(one) for one in together}
    others = [one for one in earlier if id(one) not in known]
    if seeds is None or not last.fits(seeds):
        movement.prepare([last.size, *(one.size for one in others)])
        end, lost = movement.moved_and_lost_of(last.numbers(), once=True)
    else:
        end, lost = 1 - seeds.staying(last.numbers()) / SEEDS, 0.0
    worst = end if seeds is None else _counted_together(together, end, seeds)
    return end, *_one_by_one(others, worst, lost, movement)


def _seeds_for(moments: Sequence[_Moment], live: HashRing, movement: Movement) -> StayingSeeds | None:
    """Return the seeds of the ring before, sorted, if there are so many moments that this is worth it."""
    if not 0 < live.bucket_count == len(live.buckets):
        return None
    sizes = [one.size for one in moments if one.complete]
    sizes = [size for size in sizes if size * _RANGE >= max(sizes)]
    worth = len(set(sizes)) >= _MANY or len(sizes) >= (
        _MANY_RINGS if max(sizes, default=0) < _LARGE else _MANY
    )
    return movement.staying_seeds(min(sizes), max(sizes)) if worth else None


def _counted_together(moments: Sequence[_Moment], worst: float, seeds: StayingSeeds) -> float:
    """Return the largest share that one of the moments moves, or the worst that is known if that is more."""
    fewest = SEEDS - round(worst * SEEDS)
    at_least = [seeds.least_staying(one.numbers()) for one in moments]
    for least, one in sorted(zip(at_least, moments, strict=True), key=lambda one: one[0]):
        if least >= fewest:
            break
        fewest = min(fewest, seeds.staying(one.numbers(), fewest))
    return (SEEDS - fewest) / SEEDS


def _one_by_one(
    moments: Sequence[_Moment], worst: float, lost: float, movement: Movement
) -> tuple[float, float]:
    """Return the largest share that moves, and the largest without a destination. Some of both are known."""
    if not moments:
        return worst, lost
    movement.prepare([one.size for one in moments])
    often = Counter(one.size for one in moments)
    most = [(1 - movement.least_staying(one.numbers()) if one.complete else _ALWAYS, one) for one in moments]
    # Where most may move comes first, as it makes others not worth counting; then by falling size, for cheap tables.
    most.sort(key=lambda one: -one[0])
    for bound, one in [*most[:_FIRST], *sorted(most[_FIRST:], key=lambda one: -one[1].size)]:
        if bound > worst:
            once = often[one.size] < _WORTH_COUNTING
            moved, nowhere = movement.moved_and_lost_of(one.numbers(), once=once)
            worst, lost = max(worst, moved), max(lost, nowhere)
    return worst, lost


def _moments(walk: RingWalk, live: HashRing, movement: Movement) -> list[_Moment]:
    """Return the moments that have to be counted, the last one always.

    From one step to the next neither share can get smaller in two cases, so the first of the two is not counted: a
    destination is bound that had no bucket before, or the end of the live ring is cut off piece by piece. Where several
    destinations are one place, keys may come back to it in the second case.
    """
    rings = walk.rings
    if not rings:
        return []
    if isinstance(rings, PlainMoments):
        moments, cuts = _plain_moments(rings, live, movement), rings.cuts
    else:
        moments = [_moment_of(ring, movement) for ring in rings]
        cuts = [ring.buckets == live.buckets[: len(ring.buckets)] for ring in rings]
    counted = []
    for n, moment in enumerate(moments[:-1]):
        step = walk.steps[n + 1]
        if step.action == "bind":
            known = moment.complete and movement.is_new(step.member.destination)
        else:
            known = cuts[n] and cuts[n + 1] and movement.by_own_names
        if not known:
            counted.append(moment)
    return [*counted, moments[-1]]


def _plain_moments(rings: PlainMoments, live: HashRing, movement: Movement) -> list[_Moment]:
    import numpy as np

    nowhere = movement.numbered(())
    there = movement.numbered(live.buckets) if rings.old else nowhere[:0]
    new = movement.numbered([run.place for run in rings.new])[: len(rings.new)]
    new = np.repeat(new, [run.length for run in rings.new])
    return [
        _Moment(size, size > 0, partial(rings.numbers, n, there, new) if size else lambda: nowhere)
        for n, size in enumerate(rings.sizes)
    ]


def _moment_of(ring: RingState, movement: Movement) -> _Moment:
    size = len(ring.buckets) - ring.buckets.count(None)
    return _Moment(size, 0 < size == len(ring.buckets), partial(movement.numbered, ring.buckets))


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

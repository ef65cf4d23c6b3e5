"""Seeds to buckets: many seeds, and statistics of all 2^21 seeds of a ring.

`buckets_of_seeds` looks seeds up in the table of the bucket count (`jump`). Statistics for many bucket counts use `Stays` instead: while the
bucket count grows, a seed stays in a bucket for a range of counts, and then jumps to a later one. So one walk of each seed has its bucket
for every count.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rabbit_chx.checks import bytes_of
from rabbit_chx.erlang.hashing import OUTPUT_MULTIPLIER, PRIMES, SEED_MULTIPLIER, WORDS, hash_binary
from rabbit_chx.errors import RowError
from rabbit_chx.routing.arrays.keys import CHUNK_KEYS, UInt32s, hashed_parts, is_arrow
from rabbit_chx.routing.bindings import Destination, Flows, Place
from rabbit_chx.routing.jump import SEEDS, open_table

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray

#: The destinations of a map, the index of each bucket into them (-1 for none), and the number of buckets without holes.
SeedMap: TypeAlias = "tuple[Sequence[Destination], array[int], int]"

_CHUNK_SEEDS = 1 << 14
#: Up to this bucket count the stays are few, and are cached.
_SMALL_RING = 64
#: The number of seeds of each bucket is counted from the stays after this number of bucket counts, and up to this bucket count.
_FEW_COUNTS = 4
_MOST_STAYS = 1024
#: Arrow arrays of at least this many keys are hashed on all cores. The batches of a Spark executor are much smaller.
THREADED_KEYS = 1 << 20
_SEED_MASK = np.uint32(SEEDS - 1)


def indices(
    keys: Iterable[Any], index_of_bucket: array[int], buckets: int, fill_null: str | bytes | None = None
) -> NDArray[np.int32]:
    """Return the destination index of each key."""
    column: Any = keys
    if (threads := _threads(column)) > 1:
        size = -(-len(column) // threads)
        slices = (column.slice(start, size) for start in range(0, len(column), size))
        work = partial(_indices, index_of_bucket=index_of_bucket, buckets=buckets, fill_null=fill_null)
        try:
            with ThreadPoolExecutor(threads) as pool:
                return np.concatenate([*pool.map(work, slices)])
        except RowError:  # its position is that in a slice
            pass
    return _indices(keys, index_of_bucket, buckets, fill_null)


def _threads(keys: Any) -> int:
    """Return the number of threads: more than one only for long pyarrow columns without a dictionary."""
    if not (is_arrow(keys) and hasattr(keys, "null_count")) or hasattr(keys, "dictionary"):
        return 1
    return min(_cores(), len(keys) // (THREADED_KEYS // 2)) if len(keys) >= THREADED_KEYS else 1


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _indices(
    keys: Iterable[Any], index_of_bucket: array[int], buckets: int, fill_null: str | bytes | None
) -> NDArray[np.int32]:
    index = _as_int32(index_of_bucket)
    filled = None if fill_null is None else partial(hash_binary, bytes_of(fill_null, "fill_null"))
    hashed = hashed_parts(keys, seed_of_null=filled)
    parts = [index[buckets_of_seeds(part & _SEED_MASK, buckets)] for part in hashed]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def indices_of_seeds(seeds: UInt32s, index_of_bucket: array[int], buckets: int) -> NDArray[np.int32]:
    """Return the destination index of each seed; 21 bits of each count."""
    index = _as_int32(index_of_bucket)
    indices = np.empty(len(seeds), np.int32)
    for start in range(0, len(seeds), CHUNK_KEYS):
        part = seeds[start : start + CHUNK_KEYS] & _SEED_MASK
        indices[start : start + CHUNK_KEYS] = index[buckets_of_seeds(part, buckets)]
    return indices


def destinations_at(indices: NDArray[np.int32], destinations: Sequence[Destination]) -> NDArray[np.object_]:
    """Return the destination at each index; None for -1."""
    names = np.empty(
        len(destinations) + 1, np.object_
    )  # the last item, which is also the index -1, remains None
    names[:-1] = destinations
    return names[indices]


def counts_at(indices: NDArray[np.int32], destinations: Sequence[Destination]) -> dict[Place, int]:
    """Return the number of occurrences of each destination's index; those of -1, if any, under None."""
    counted = np.zeros(len(destinations) + 1, np.int64)
    for start in range(0, len(indices), CHUNK_KEYS):
        counted += np.bincount(indices[start : start + CHUNK_KEYS] + 1, minlength=len(counted))
    holes, *counts = counted.tolist()
    result: dict[Place, int] = dict(zip(destinations, counts, strict=True))
    return result | {None: holes} if holes else result


def all_seeds() -> UInt32s:
    """Return the 2^21 seeds."""
    return np.arange(SEEDS, dtype=np.uint32)


def all_buckets(buckets: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bucket of each of the 2^21 seeds, read-only."""
    cells = buckets_of_seeds(all_seeds(), buckets)
    cells.flags.writeable = False
    return cells


@lru_cache(maxsize=1024)
def _seeds_by_bucket(buckets: int, all_seeds: int) -> NDArray[np.int64]:
    """Return the number of seeds of each bucket, read-only; `all_seeds` is `SEEDS`, which tests replace.

    The first few bucket counts are counted one by one. After them the stays of all seeds are counted once, for all counts up to a bound.
    """
    if buckets > _MOST_STAYS or _seeds_by_bucket.cache_info().currsize < _FEW_COUNTS:
        counts = np.bincount(all_buckets(buckets), minlength=buckets)
    else:
        stays = _stays_up_to(1 << max(7, (buckets - 1).bit_length()), all_seeds)
        rows = np.flatnonzero((stays.bucket < buckets) & (stays.last >= buckets))
        counts = np.zeros(buckets, np.int64)
        np.add.at(counts, stays.bucket[rows], stays.seeds[rows])
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=2)
def _stays_up_to(most: int, all_seeds: int) -> Stays:
    return _stays(1, 1, most, all_seeds)


def flows(before: SeedMap, after: SeedMap) -> dict[tuple[Place, Place], float]:
    """Return the share of the seeds of each pair of destinations of two maps, only those above 0, row by row."""
    rows = (*before[0], None)
    columns = (*after[0], None)
    if before == after:
        counted = zip(rows, _seeds_by_place(before), strict=True)
        return {(place, place): seeds / SEEDS for place, seeds in counted if seeds}
    cells = _places_of_seeds(before) * len(columns) + _places_of_seeds(after)
    if len(rows) * len(columns) <= SEEDS:
        counted_cells = np.bincount(cells)
        pairs = np.flatnonzero(counted_cells)
        counts = counted_cells[pairs]
    else:
        pairs, counts = np.unique(cells, return_counts=True)
    return {
        (rows[pair // len(columns)], columns[pair % len(columns)]): count / SEEDS
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
    }


def _seeds_by_place(key_map: SeedMap) -> list[int]:
    """Return the number of seeds of each destination; the last is that of none."""
    destinations, index_of_bucket, buckets = key_map
    if not buckets:
        return [0] * len(destinations) + [SEEDS]
    seeds = np.zeros(len(destinations) + 1, np.int64)
    # The index -1 is the last item.
    np.add.at(seeds, _as_int32(index_of_bucket)[:buckets], _seeds_by_bucket(buckets, SEEDS))
    counts: list[int] = seeds.tolist()
    return counts


def _places_of_seeds(key_map: SeedMap) -> NDArray[np.int64]:
    """Return the index of the destination of each seed; that behind the last for none."""
    destinations, index_of_bucket, buckets = key_map
    if not buckets:
        return np.full(SEEDS, len(destinations))
    index = _as_int32(index_of_bucket).astype(np.int64) % (len(destinations) + 1)
    places: NDArray[np.int64] = index[all_buckets(buckets)]
    return places


def indices_of_all_seeds(index_of_bucket: array[int]) -> NDArray[np.int32]:
    """Return the destination index of each of the 2^21 seeds; -1 for a hole or an empty ring."""
    buckets = len(index_of_bucket) - index_of_bucket.count(-1)
    if not buckets:
        return np.full(SEEDS, -1, np.int32)
    indices: NDArray[np.int32] = _as_int32(index_of_bucket)[all_buckets(buckets)]
    return indices


def _as_int32(numbers: array[int]) -> NDArray[np.int32]:
    return np.frombuffer(numbers, np.int32)


def buckets_of_seeds(seeds: UInt32s, buckets: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bucket of each seed from the table; missing seeds are computed first."""
    table, unfilled = open_table(buckets)
    cells = np.frombuffer(table, f"u{table.itemsize}")
    held = cells[seeds]
    missing = held == unfilled
    if missing.any():
        fresh = seeds[missing]  # removing duplicates would cost more
        for start in range(0, len(fresh), _CHUNK_SEEDS):
            part = fresh[start : start + _CHUNK_SEEDS]
            cells[part] = _walk(part, buckets)
        held = cells[seeds]
    return held


def _walk(seeds: UInt32s, buckets: int) -> NDArray[np.float64]:
    """Return the bucket of each seed, as :func:`rabbit_chx.routing.jump.bucket_of_seed`."""
    words = _seed_words(seeds.astype(np.uint64))
    bucket = np.zeros(len(seeds))
    walking = np.arange(len(seeds))
    position = 0
    while len(walking):
        position, word = _next_word(words, position, walking)
        following = (bucket[walking] + 1.0) / _uniform(word)
        on = following < buckets
        walking = walking[on]
        bucket[walking] = np.floor(following[on])
    return bucket


class Stays(NamedTuple):
    """The buckets of seeds for a range of bucket counts, and with one other count. A row represents equal seeds.

    As the bucket count grows, a seed moves to higher buckets. It stays in each of them for a range of counts: a stay.

    Attributes:
        before: the bucket of the seeds with the other bucket count.
        bucket: their bucket.
        last: the largest bucket count of the stay. The smallest is the least requested, or the bucket plus 1 if that is more.
        seeds: the number of seeds of the row.
    """

    before: NDArray[np.int64]
    bucket: NDArray[np.int64]
    last: NDArray[np.int64]
    seeds: NDArray[np.int64]


def stays_of_seeds(before: int, least: int, most: int) -> Stays:
    """Return the stays of all 2^21 seeds for the bucket counts from `least` to `most`; `before` is the other count."""
    least = min(least, before)
    most = max(most, before)
    if most <= _SMALL_RING:
        return _stays_on_small_rings(
            before, _SMALL_RING // 2 if most <= _SMALL_RING // 2 else _SMALL_RING, SEEDS
        )
    return _stays(before, least, most, SEEDS)


@lru_cache(maxsize=32)
def _stays_on_small_rings(before: int, most: int, seeds: int) -> Stays:
    return _stays(before, 1, most, seeds)


def _stays(before: int, least: int, most: int, all_seeds: int) -> Stays:
    """Compute the stays of `stays_of_seeds`; rows that are equal are counted once. `all_seeds` is `SEEDS`, which tests replace."""
    parts = []
    staying = np.zeros(before, np.int64)
    for start in range(0, all_seeds, _CHUNK_SEEDS):
        seeds = np.arange(start, start + _CHUNK_SEEDS, dtype=np.uint64)
        which, bucket, last = _walked_stays(seeds, least, most)
        then = (bucket < before) & (before <= last)
        own = np.empty(len(seeds), np.int64)
        own[which[then]] = bucket[then]
        # Most seeds never change their bucket, and counting is faster than sorting.
        leaves = (bucket != own[which]) | (last < most)
        staying += np.bincount(bucket[~leaves], minlength=before)
        parts.append((bucket[leaves] * before + own[which[leaves]]) * (most + 1) + last[leaves])

    rows = np.concatenate(parts)
    rows.sort()
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    cells, last = np.divmod(rows[starts], most + 1)
    bucket, own = np.divmod(cells, before)
    stay = np.flatnonzero(staying)

    return Stays(
        np.append(own, stay),
        np.append(bucket, stay),
        np.append(last, np.full(len(stay), most)),
        np.append(np.diff(starts, append=len(rows)), staying[stay]),
    )


def _walked_stays(
    seeds: NDArray[np.uint64], least: int, most: int
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Return for each stay the seed's index, its bucket, and the largest bucket count of the stay, at most `most`."""
    words = _seed_words(seeds)
    walking = np.arange(len(seeds))
    bucket = np.zeros(len(seeds), np.int64)
    parts = []
    position = 0
    while len(walking):
        position, word = _next_word(words, position, walking)
        following = np.minimum((bucket + 1.0) / _uniform(word), most).astype(np.int64)
        counts = following >= least
        parts.append((walking[counts], bucket[counts], following[counts]))
        on = following < most
        walking = walking[on]
        bucket = following[on]
    which, buckets, last = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return which, buckets, last


def _next_word(
    words: NDArray[np.uint64], position: int, walking: NDArray[np.intp]
) -> tuple[int, NDArray[np.uint64]]:
    """Advance the generators by one step, and return the next position and their new words."""
    s0 = words[position, walking]
    position = (position + 1) % WORDS
    s1 = words[position, walking]
    s1 ^= s1 << np.uint64(31)
    s1 ^= s1 >> np.uint64(11)
    word = s0 ^ (s0 >> np.uint64(30)) ^ s1
    words[position, walking] = word
    return position, word


def _uniform(word: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (word * np.uint64(OUTPUT_MULTIPLIER)).astype(np.float64) * 2.0**-64


def _seed_words(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the generator's 16 words for each seed, as ``rand:seed_s(exs1024, {K, K, K})`` makes them."""
    x, y, z = ((seeds + np.uint64(1)) * np.uint64(prime) & np.uint64(_SEED_MASK) for prime in PRIMES)
    word = x << np.uint64(43) | y << np.uint64(22) | z << np.uint64(1) | np.uint64(1)
    words = np.empty((WORDS, len(seeds)), np.uint64)
    for position in reversed(range(WORDS)):
        word ^= word >> np.uint64(12)
        word ^= word << np.uint64(25)
        word ^= word >> np.uint64(27)
        words[position] = word * np.uint64(SEED_MULTIPLIER)
    return words


# -- The flows between two maps that take a hash modulo the number of their destinations


class ModuloFlows(Flows):
    """The share of the hashes of each pair of destinations before and after, of two sequences of numbered destinations.

    A hash h has the number h modulo the length of each sequence. Shares are computed when they are read, because two sequences without a
    common divisor have a flow for each pair. Without numbers all hashes are in the place None.

    Args:
        before: the destination of each number before the change.
        after: the same after it.
        hashes: how many values the hash has.
    """

    def __init__(self, before: Sequence[Place], after: Sequence[Place], hashes: int) -> None:
        self._sides = before, after = tuple(before) or (None,), tuple(after) or (None,)
        sizes = len(before), len(after)
        self._hashes = hashes
        self._common = math.gcd(*sizes)
        self._period = math.lcm(*sizes)
        self._inverse = pow(sizes[0] // self._common, -1, sizes[1] // self._common)
        self._numbers: tuple[dict[Place, list[int]], ...] = ({}, {})
        for side, numbers in zip(self._sides, self._numbers, strict=True):
            for number, place in enumerate(side):
                numbers.setdefault(place, []).append(number)
        self.before, self.after = map(tuple, self._numbers)
        #: How many pairs of numbers have a hash.
        self.pairs_of_numbers = min(self._period, hashes)
        self._is_one_to_one = all(
            len(side) == len(numbers) for side, numbers in zip(self._sides, self._numbers, strict=True)
        )

    def _count(self, source: Place, target: Place) -> int:
        """Return the number of hashes of a pair of destinations."""
        by_rest: dict[int, list[int]] = {}
        for new in self._numbers[1].get(target, ()):
            by_rest.setdefault(new % self._common, []).append(new)
        size, other = map(len, self._sides)
        count = 0
        for old in self._numbers[0].get(source, ()):
            for new in by_rest.get(old % self._common, ()):
                # The first hash with these two remainders, by the Chinese remainder theorem.
                first = old + size * ((new - old) // self._common * self._inverse % (other // self._common))
                count += max((self._hashes - first + self._period - 1) // self._period, 0)
        return count

    def __getitem__(self, pair: tuple[Place, Place]) -> float:
        if count := self._count(*pair):
            return count / self._hashes
        raise KeyError(pair)

    def __iter__(self) -> Iterator[tuple[Place, Place]]:
        for source in self._numbers[0]:
            for target in self._row(source).nonzero()[0].tolist():
                yield source, self.after[target]

    def __len__(self) -> int:
        if self._is_one_to_one:
            return self.pairs_of_numbers
        return sum(len(self._row(source).nonzero()[0]) for source in self._numbers[0])

    @property
    def moved(self) -> float:
        """The share of the hashes whose destination changes."""
        return 1 - sum(self._count(place, place) for place in self._numbers[0]) / self._hashes

    def _totals(self, side: int) -> dict[Place, float]:
        whole, rest = divmod(self._hashes, len(self._sides[side]))
        return {
            place: sum(whole + (number < rest) for number in numbers) / self._hashes
            for place, numbers in self._numbers[side].items()
        }

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return the largest flows to another destination, with their shares, the largest first."""
        if self._is_one_to_one:
            # The pairs of the first hashes have one hash more than the others.
            pairs = ((h % len(self._sides[0]), h % len(self._sides[1])) for h in range(self.pairs_of_numbers))
            places = ((self._sides[0][old], self._sides[1][new]) for old, new in pairs)
            different = islice(((source, to) for source, to in places if source != to), most)
            return [(source, to, self[source, to]) for source, to in different]

        largest: list[tuple[Place, Place, float]] = []
        indices = {place: n for n, place in enumerate(self.after)}
        for source in self._numbers[0]:
            row = self._row(source)
            if source in indices:
                row[indices[source]] = 0
            if largest and len(largest) == most and row.max() <= largest[-1][2]:
                continue
            first = (-row).argsort(kind="stable")[:most].tolist()
            moves = [(source, self.after[index], float(row[index])) for index in first if row[index]]
            largest = heapq.nlargest(most, [*largest, *moves], key=itemgetter(2))

        return [(source, to, self[source, to]) for source, to, _ in largest]

    def _row(self, source: Place) -> NDArray[np.float64]:
        """Return the number of hashes of a destination by their destination after the change, in the order of `_targets`."""
        size, other = map(len, self._sides)
        whole, rest = divmod(self._hashes, self._period)
        row = np.zeros(len(self.after))
        for old in self._numbers[0][source]:
            first = np.arange(old, self.pairs_of_numbers, size)
            targets = self._column[first % other]
            row += np.bincount(targets, float(whole) + (first < rest), len(row))
        return row

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        """The index in `_targets` of each number after the change."""
        indices = {place: n for n, place in enumerate(self.after)}
        return np.array([indices[place] for place in self._sides[1]])

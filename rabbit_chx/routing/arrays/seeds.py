"""Seeds to buckets: the walk of many seeds at once, and what all 2^21 of them say about a ring."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from rabbit_chx.amqp.names import bytes_of
from rabbit_chx.erlang import hash_binary
from rabbit_chx.erlang.exs1024 import OUTPUT_MULTIPLIER, PRIMES, SEED_MULTIPLIER, WORDS
from rabbit_chx.routing.arrays.binaries import CHUNK_KEYS, UInt32s
from rabbit_chx.routing.arrays.keys import hashed_parts
from rabbit_chx.routing.seed_tables import SEEDS, open_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.routing.bindings import Destination, Place

__all__ = [
    "all_buckets",
    "buckets_of_seeds",
    "counts_at",
    "destinations_at",
    "indices",
    "indices_of_all_seeds",
    "indices_of_seeds",
    "share_moved",
    "shares",
    "stays_of_seeds",
]

_CHUNK_SEEDS = 1 << 14
_SEED_MASK = np.uint32(SEEDS - 1)


def indices(
    keys: Iterable[Any], index_of_bucket: array[int], buckets: int, fill_null: str | bytes | None = None
) -> NDArray[np.int32]:
    """Return the destination index of each key.

    Args:
        keys: list of str or bytes, NumPy array or pyarrow array, as in :meth:`HashRing.indices`.
        index_of_bucket: the destination index of each bucket; -1 for a hole.
        buckets: the bucket count that routing uses.
        fill_null: the key that a null counts as; None refuses nulls.

    Raises:
        RowError: a key is null or neither text nor bytes; the message has its position.
        InputError: `keys` does not hold keys, or `fill_null` is not a key.
    """
    index = _as_int32(index_of_bucket)
    filled = None if fill_null is None else partial(hash_binary, bytes_of(fill_null, "fill_null"))
    hashed = hashed_parts(keys, seed_of_null=filled)
    parts = [index[buckets_of_seeds(part & _SEED_MASK, buckets)] for part in hashed]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def indices_of_seeds(seeds: UInt32s, index_of_bucket: array[int], buckets: int) -> NDArray[np.int32]:
    """Return the destination index of each seed; only 21 bits of each matter.

    Args:
        seeds: an array of uint32.
        index_of_bucket: the destination index of each bucket; -1 for a hole.
        buckets: the bucket count that routing uses.
    """
    index = _as_int32(index_of_bucket)
    found = np.empty(len(seeds), np.int32)
    for start in range(0, len(seeds), CHUNK_KEYS):
        part = seeds[start : start + CHUNK_KEYS] & _SEED_MASK
        found[start : start + CHUNK_KEYS] = index[buckets_of_seeds(part, buckets)]
    return found


def destinations_at(found: NDArray[np.int32], destinations: Sequence[Destination]) -> NDArray[np.object_]:
    """Return the destination at each index; None for -1."""
    names = np.empty(len(destinations) + 1, np.object_)  # the last place, which -1 is too, stays None
    names[:-1] = destinations
    return names[found]


def counts_at(found: NDArray[np.int32], destinations: Sequence[Destination]) -> dict[Place, int]:
    """Return how often each destination's index is there; -1 under None, if it is there."""
    counted = np.zeros(len(destinations) + 1, np.int64)
    for start in range(0, len(found), CHUNK_KEYS):
        counted += np.bincount(found[start : start + CHUNK_KEYS] + 1, minlength=len(counted))
    holes, *counts = counted.tolist()
    result: dict[Place, int] = dict(zip(destinations, counts, strict=True))
    return result | {None: holes} if holes else result


def all_buckets(buckets: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bucket of each of the 2^21 seeds, read-only."""
    found = buckets_of_seeds(np.arange(SEEDS, dtype=np.uint32), buckets)
    found.flags.writeable = False
    return found


def shares(
    index_of_bucket: array[int], buckets: int, destinations: Sequence[Destination]
) -> dict[Place, float]:
    """Return the exact share of the seeds that each destination has; holes, if seeds reach any, under None.

    Args:
        index_of_bucket: the destination index of each bucket; -1 for a hole.
        buckets: the bucket count that routing uses, at least 1.
        destinations: the ring's destinations.
    """
    index = _as_int32(index_of_bucket)
    counts = np.bincount(all_buckets(buckets), minlength=buckets)
    seeds = np.zeros(len(destinations) + 1, np.int64)
    np.add.at(seeds, index[:buckets], counts)  # the index of a hole, -1, is the last place
    *found, holes = (count / SEEDS for count in seeds.tolist())
    result: dict[Place, float] = dict(zip(destinations, found, strict=True))
    return result | {None: holes} if holes else result


def share_moved(before: Sequence[Place], after: Sequence[Place]) -> float:
    """Return the share of the seeds whose destination differs.

    Args:
        before: the destination of each bucket of one ring; None for a hole.
        after: the same of the other ring.
    """
    numbers: dict[Place, int] = {place: n for n, place in enumerate(dict.fromkeys(chain(before, after)))}
    numbers[None] = -1
    one, other = (
        indices_of_all_seeds(array("i", map(numbers.__getitem__, ring))) for ring in (before, after)
    )
    return int(np.count_nonzero(one != other)) / SEEDS


def indices_of_all_seeds(index_of_bucket: array[int]) -> NDArray[np.int32]:
    """Return the destination index of each of the 2^21 seeds; -1 for a hole or an empty ring."""
    buckets = len(index_of_bucket) - index_of_bucket.count(-1)
    if not buckets:
        return np.full(SEEDS, -1, np.int32)
    found: NDArray[np.int32] = _as_int32(index_of_bucket)[all_buckets(buckets)]
    return found


def _as_int32(numbers: array[int]) -> NDArray[np.int32]:
    return np.frombuffer(numbers, np.int32)


def buckets_of_seeds(seeds: UInt32s, buckets: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bucket of each seed, from the table; seeds that it has not met yet are walked first."""
    table = open_table(buckets)
    cells = np.frombuffer(table.cells, f"u{table.cells.itemsize}")
    found = cells[seeds]
    missing = found == table.unfilled
    if missing.any():
        fresh = seeds[missing]  # repeats cost less than finding them: at most one chunk meets them unfilled
        for start in range(0, len(fresh), _CHUNK_SEEDS):
            part = fresh[start : start + _CHUNK_SEEDS]
            cells[part] = _walk(part, buckets)
        found = cells[seeds]
    return found


def _walk(seeds: UInt32s, buckets: int) -> NDArray[np.float64]:
    """Return the bucket of each seed, as :func:`rabbit_chx.routing.jump.bucket_of_seed` walks to it."""
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


def stays_of_seeds(
    seeds: UInt32s, least: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where seeds are for all bucket counts of a range: their buckets, and how long they stay in each.

    Args:
        seeds: an array of uint32, below 2^21.
        least: the smallest bucket count, at least 1.
        most: the largest one.

    Returns:
        Three arrays of one length: which of the seeds, its bucket, and the largest bucket count, at most `most`, with which
        it has that bucket. It has it with all counts from there down to `least`, or to the bucket plus 1 if that is more.
    """
    words = _seed_words(seeds.astype(np.uint64))
    walking = np.arange(len(seeds))
    bucket = np.zeros(len(seeds))
    parts = []
    position = 0
    while len(walking):
        position, word = _next_word(words, position, walking)
        following = np.floor((bucket + 1.0) / _uniform(word))
        counts = following >= least
        parts.append((walking[counts], bucket[counts], np.minimum(following[counts], most)))
        on = following < most
        walking, bucket = walking[on], following[on]
    which, buckets, until = (np.concatenate(arrays).astype(np.int64) for arrays in zip(*parts, strict=True))
    return which, buckets, until


def _next_word(
    words: NDArray[np.uint64], position: int, walking: NDArray[np.intp]
) -> tuple[int, NDArray[np.uint64]]:
    """Take one step of the generators, and return the next position and their new words."""
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

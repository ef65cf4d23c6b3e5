"""phash2 of many integers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rabbit_chx.erlang.hashing import GOLDEN, HCONST_10, HCONST_11, SMALL_INTEGERS
from rabbit_chx.routing.arrays.binaries import CHUNK_KEYS, mix_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.routing.arrays.binaries import UInt32s

__all__ = ["Integers", "integer_hashes"]

Integers = np.int64 | np.uint64

ZERO = np.uint32(0)


def integer_hashes(values: NDArray[Integers], initial: int) -> UInt32s:
    """The 32-bit hash of each integer of 64 bits.

    Args:
        values: int64 or uint64.
        initial: the hash of what stands before each inside a term.
    """
    hashed = np.empty(len(values), np.uint32)
    for start in range(0, len(values), CHUNK_KEYS):
        part = values[start : start + CHUNK_KEYS]
        hashed[start : start + CHUNK_KEYS] = _hash_chunk(part, initial)
    return hashed


def _hash_chunk(values: NDArray[Integers], initial: int) -> UInt32s:
    """As ``make_hash2`` does: what fits 28 bits in one word, all else as the sign and the magnitude in two."""
    negative = values < 0
    unsigned = values.view(np.uint64)
    magnitude = np.where(negative, ~unsigned + np.uint64(1), unsigned)
    low, high = magnitude.astype(np.uint32), (magnitude >> np.uint64(32)).astype(np.uint32)
    hashes = np.full(len(values), initial, np.uint32)

    small = (values >= SMALL_INTEGERS.start) & (values < SMALL_INTEGERS.stop)
    both = small & negative
    hashes[both] = _step(low[both], ZERO, GOLDEN, hashes[both])
    hashes[small] = _step(unsigned[small].astype(np.uint32), ZERO, GOLDEN, hashes[small])
    for large, constant in ((~small & negative, HCONST_10), (~small & ~negative, HCONST_11)):
        hashes[large] = _step(low[large], high[large], constant, hashes[large])
    return hashes


def _step(x: UInt32s, y: UInt32s | np.uint32, constant: int, hashes: UInt32s) -> UInt32s:
    a, b = (np.full(len(hashes), constant, np.uint32) for _ in range(2))
    mix_in(a, b, hashes, (x, y, ZERO), np.empty_like(hashes))
    return hashes

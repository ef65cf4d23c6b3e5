"""MurmurHash3_x86_32 of many keys at once, as :func:`rabbit_chx.routing.murmur3.murmur3_x86_32` hashes each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from rabbit_chx.routing.arrays.binaries import UInt32s
from rabbit_chx.routing.arrays.keys import spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_WORD = 4
#: By how many bytes are left behind the last whole word: which bytes of the next four are the key's.
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur3_hashes(keys: Iterable[Any], seed: int) -> UInt32s:
    """Return the hash of each key.

    Args:
        keys: the keys, as :meth:`HashRing.indices` takes them; nulls are refused.
        seed: 32 bits.

    Raises:
        RowError: a key is null or neither text nor bytes.
        InputError: `keys` does not hold keys.
    """
    parts = [_hashed(data, offsets.astype(np.int64), seed) for data, offsets in spans(keys)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _hashed(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: int) -> UInt32s:
    low, high = int(offsets[0]), int(offsets[-1])
    data = np.concatenate((data[low:high], np.zeros(_WORD, np.uint8)))
    # Overlapping items, so that one fancy index fetches a word at any place.
    at = np.ndarray((len(data) - _WORD + 1,), "<u4", data, 0, (1,))
    lengths = np.diff(offsets)
    # In this order the keys that have a further word are the end of each array.
    order = np.argsort(lengths, kind="stable")
    starts, lengths = offsets[order] - low, lengths[order]
    words = lengths // _WORD
    hashed = np.full(len(order), seed, np.uint32)
    for word in range(int(words[-1]) if len(words) else 0):
        first = int(np.searchsorted(words, word, side="right"))
        mixed = _rotated(hashed[first:] ^ _scrambled(at[starts[first:] + _WORD * word]), 13)
        hashed[first:] = mixed * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= _scrambled(at[starts + _WORD * words] & _TAIL_MASKS[lengths % _WORD])
    hashed ^= lengths.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ hashed >> np.uint32(shift)) * np.uint32(factor)
    result = np.empty_like(hashed)
    result[order] = hashed
    return result


def _scrambled(words: UInt32s) -> UInt32s:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)

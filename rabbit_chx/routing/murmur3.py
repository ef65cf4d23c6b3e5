"""Austin Appleby's MurmurHash3 of SMHasher: ``MurmurHash3_x86_32`` and ``MurmurHash3_x64_128``."""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_MASK_64 = (1 << 64) - 1
_D1, _D2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def murmur3_x86_32(data: bytes, seed: int = 0) -> int:
    """Return the hash of some bytes, unsigned, 0 to 2^32 - 1.

    Args:
        data: the bytes.
        seed: 32 bits.
    """
    hash_ = seed & _MASK
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: words * 4]):
        hash_ = _rotate(hash_ ^ _scrambled(word), 13) * 5 + 0xE6546B64 & _MASK
    hash_ ^= _scrambled(int.from_bytes(data[words * 4 :], "little")) ^ len(data)
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _MASK
    return hash_ ^ hash_ >> 16


def _scrambled(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 15) * _C2 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


def murmur3_x64_128(data: bytes, seed: int = 0) -> int:
    """Return the hash of some bytes, unsigned, 0 to 2^128 - 1; the original's first half is the lower one.

    Args:
        data: the bytes.
        seed: 32 bits.
    """
    h1 = h2 = seed & _MASK
    tail = len(data) // 16 * 16
    for low, high in struct.iter_unpack("<QQ", data[:tail]):
        h1 = (_rotate_64(h1 ^ _scrambled_low(low), 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 = (_rotate_64(h2 ^ _scrambled_high(high), 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    h1 ^= _scrambled_low(int.from_bytes(data[tail : tail + 8], "little")) ^ len(data)
    h2 ^= _scrambled_high(int.from_bytes(data[tail + 8 :], "little")) ^ len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    h1, h2 = _finished_64(h1), _finished_64(h2)
    h1 = h1 + h2 & _MASK_64
    return h1 | (h2 + h1 & _MASK_64) << 64


def _scrambled_low(word: int) -> int:
    return _rotate_64(word * _D1 & _MASK_64, 31) * _D2 & _MASK_64


def _scrambled_high(word: int) -> int:
    return _rotate_64(word * _D2 & _MASK_64, 33) * _D1 & _MASK_64


def _finished_64(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return half ^ half >> 33


def _rotate_64(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK_64

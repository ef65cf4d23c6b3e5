"""phash2 of many binaries at once.

A chunk of keys is hashed in step: all first blocks of 12 bytes, then the second ones of those keys that have
a second, and so on. Keys are sorted by their number of blocks, so that those still under way are always the
end of each array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rabbit_chx.erlang import hash_binary
from rabbit_chx.erlang.hashing import GOLDEN, HCONST_13, MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

UInt32s: TypeAlias = "NDArray[np.uint32]"

CHUNK_KEYS = 1 << 15  # the dozen arrays of a chunk fit a second-level cache
_FEW_KEYS = 32  # below that, one key after the other is faster
_BLOCK = 12
_WINDOW = 16  # a block, and four bytes that a 16-byte load brings along

# By how many bytes are left behind the last whole block: which bytes of each of the three words are the key's.
_TAIL_MASKS = tuple(
    np.array([(1 << 8 * min(max(left - first, 0), 4)) - 1 for left in range(_BLOCK)], np.uint32)
    for first in (0, 4, 8)
)


def hashed_spans(data: NDArray[np.uint8], offsets: NDArray[Any], initial: int = 0) -> Iterator[UInt32s]:
    """Return the hashes of keys that lie one behind the other, a chunk at a time.

    Args:
        data: the bytes.
        offsets: where each key begins; one more than there are keys.
        initial: the hash of what precedes each key inside a term.
    """
    for start in range(0, len(offsets) - 1, CHUNK_KEYS):
        bounds = offsets[start : start + CHUNK_KEYS + 1].astype(np.int64)
        low, high = int(bounds[0]), int(bounds[-1])
        chunk = data[low : high + _WINDOW]
        if len(chunk) < high - low + _WINDOW:
            chunk = np.concatenate((data[low:high], np.zeros(_WINDOW, np.uint8)))
        yield _hash_chunk(chunk, bounds[:-1] - low, np.diff(bounds), initial)


def _hash_chunk(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], initial: int
) -> UInt32s:
    """Return the hash of each key; `data` has at least 16 bytes behind the start of each key's last block."""
    blocks = lengths // _BLOCK
    order = None
    if blocks.min() != blocks.max():
        # NumPy sorts 16-bit numbers by radix, several times as fast.
        order = np.argsort(blocks.astype(np.uint16) if blocks.max() <= 0xFFFF else blocks, kind="stable")
        starts, lengths, blocks = starts[order], lengths[order], blocks[order]
    hashed = _hash_sorted(data, starts, lengths, blocks, initial)
    if order is None:
        return hashed
    result = np.empty_like(hashed)
    result[order] = hashed
    return result


def _hash_sorted(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    blocks: NDArray[np.int64],
    initial: int,
) -> UInt32s:
    """Hash keys that are sorted by their number of whole blocks."""
    size = len(starts)
    a, b = np.full(size, GOLDEN, np.uint32), np.full(size, GOLDEN, np.uint32)
    c = np.full(size, HCONST_13 + initial & MASK, np.uint32)
    spare = np.empty(size, np.uint32)
    # Keys of one length are at even distances, because they lie one behind the other.
    stride = int(lengths[0]) if lengths.min() == lengths.max() else 0

    done, block = 0, 0
    while size - (done := int(np.searchsorted(blocks, block, side="right"))) >= _FEW_KEYS:
        words = _words(data, starts[done:] + _BLOCK * block, stride)
        mix_in(a[done:], b[done:], c[done:], words, spare[done:])
        block += 1
    for position in range(done, size):
        key = data[starts[position] : starts[position] + lengths[position]].tobytes()
        c[position] = hash_binary(key, initial)
    if not done:
        return c

    words = _words(data, starts[:done] + _BLOCK * blocks[:done], stride)
    left = lengths[:done] - _BLOCK * blocks[:done]
    tail = [word & mask[left] for word, mask in zip(words, _TAIL_MASKS, strict=True)]
    # The length is in the low byte of the last word, and runs over into the others.
    tail[2] = (tail[2] << np.uint32(8)) + lengths[:done].astype(np.uint32)
    mix_in(a[:done], b[:done], c[:done], tail, spare[:done])
    c[lengths == 0] = HCONST_13 + initial & MASK
    return c


def _words(data: NDArray[np.uint8], positions: NDArray[np.int64], stride: int) -> list[UInt32s]:
    """Return the three little-endian words at each position; a stride of 0 says that it varies."""
    if stride:
        begin = int(positions[0])
        return [np.ndarray((len(positions),), "<u4", data, begin + 4 * n, (stride,)) for n in range(3)]
    # One fancy index over overlapping 16-byte items fetches a whole block.
    windows = np.ndarray((len(data) - _WINDOW + 1,), f"V{_WINDOW}", data, 0, (1,))
    words = windows[positions].view("<u4").reshape(-1, _WINDOW // 4)
    return [words[:, n] for n in range(3)]


def mix_in(a: UInt32s, b: UInt32s, c: UInt32s, words: Sequence[UInt32s | np.uint32], spare: UInt32s) -> None:
    """Add a block to each state and mix, in place.

    Args:
        a: the first word of each state.
        b: the second word of each state.
        c: the third word of each state.
        words: three words of the block of each key.
        spare: room for one array.
    """
    for register, word in zip((a, b, c), words, strict=True):
        np.add(register, word, out=register)
    for x, y, z, shift in (
        (a, b, c, 13), (b, c, a, -8), (c, a, b, 13),
        (a, b, c, 12), (b, c, a, -16), (c, a, b, 5),
        (a, b, c, 3), (b, c, a, -10), (c, a, b, 15),
    ):  # fmt: skip
        np.subtract(x, y, out=x)
        np.subtract(x, z, out=x)
        if shift > 0:
            np.right_shift(z, np.uint32(shift), out=spare)
        else:
            np.left_shift(z, np.uint32(-shift), out=spare)
        np.bitwise_xor(x, spare, out=x)

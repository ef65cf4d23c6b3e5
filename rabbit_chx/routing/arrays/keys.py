"""Columns of keys and their hashes: phash2 and murmur3 of many binaries.

Lists, NumPy arrays and pyarrow arrays become spans of one buffer, in chunks. The keys of a chunk are hashed in step: all first blocks of 12
bytes, then the second blocks of longer keys, and so on. Keys are sorted by their number of blocks, so that the unfinished keys are always
the end of each array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rabbit_chx.checks import bytes_of, too_long
from rabbit_chx.erlang.hashing import GOLDEN, HCONST_13, MASK, hash_binary
from rabbit_chx.errors import InputError, RowError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Returns the seed of a null; called only for nulls. None if nulls are refused.
SeedOfNull: TypeAlias = Callable[[], int] | None

UInt32s: TypeAlias = "NDArray[np.uint32]"

CHUNK_KEYS = 1 << 15  # the dozen arrays of a chunk fit a second-level cache
_ARROW_KINDS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
_PANDAS_NULLS = ("NAType", "NaTType")


# -- columns: keys in chunks, as spans of one buffer


def hashes(
    keys: Iterable[Any], initial: int = 0, *, seed_of_null: SeedOfNull = None, longest: int | None = None
) -> UInt32s:
    """Return the 32-bit phash2 of each key; modulo 2^27 it is the default result of phash2.

    Args:
        keys: the keys, as in :meth:`HashRing.indices`.
        initial: the hash of the part of the term before each key.
        seed_of_null: returns the hash of a null; None refuses nulls.
        longest: the most bytes of a key; None for no limit.
    """
    parts = list(hashed_parts(keys, initial, seed_of_null=seed_of_null, longest=longest))
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def hashed_parts(
    keys: Iterable[Any], initial: int = 0, *, seed_of_null: SeedOfNull = None, longest: int | None = None
) -> Iterator[UInt32s]:
    """Yield the hashes of the keys in chunks; see `hashes`."""
    if is_arrow(keys):
        yield from _hash_arrow(keys, initial, seed_of_null, longest)
        return
    if isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype.kind not in "SUOT":
        raise InputError(f"a NumPy array of type {keys.dtype} holds no keys: pass one of str or bytes")
    for first, piece in pieces(keys):
        hashed, null = _hash_list(piece, first, initial, longest)
        if null:
            if seed_of_null is None:
                raise null_error(first + null[0])
            hashed[null] = seed_of_null()
        yield hashed


def spans(keys: Any) -> Iterator[tuple[NDArray[np.uint8], NDArray[Any]]]:
    """Yield the keys in chunks, as one buffer and the offsets of the keys, including the end; nulls are refused."""
    if not is_arrow(keys):
        for first, piece in pieces(keys):
            null = next((place for place, key in enumerate(piece) if is_null(key)), None)
            if null is not None:
                raise null_error(first + null)
            yield _spans_of_list(piece, set(map(type, piece)), first)
        return

    first = 0
    for chunk in getattr(keys, "chunks", [keys]):
        plain = chunk.dictionary_decode() if hasattr(chunk, "dictionary") else chunk
        if not hasattr(plain, "buffers"):
            raise InputError(
                f"a pyarrow {type(plain).__name__} holds no keys: pass an Array or a ChunkedArray"
            )
        refuse_nulls(plain, first)
        for start in range(0, len(plain), CHUNK_KEYS):
            yield _spans_of_arrow(plain.slice(start, CHUNK_KEYS))
        first += len(plain)


def pieces(values: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield chunks of the values as lists of Python objects, with the position of the first value."""
    unordered_or_more = (
        isinstance(values, (str, bytes, bytearray, memoryview, Mapping, AbstractSet))
        or getattr(values, "ndim", 1) != 1
    )
    if (
        unordered_or_more
        or not hasattr(values, "__iter__")
        or (is_arrow(values) and not hasattr(values, "null_count"))
    ):
        raise InputError(f"{values!r:.60} is not an array of keys: pass a list, even of one")
    if isinstance(values, np.ndarray) or is_arrow(values):
        for first in range(0, len(values), CHUNK_KEYS):
            part = values[first : first + CHUNK_KEYS]
            yield first, part.to_pylist() if is_arrow(values) else part.tolist()
        return

    iterator = iter(values)
    first = 0
    while piece := list(islice(iterator, CHUNK_KEYS)):
        if hasattr(values, "tolist"):  # pandas: iteration yields NumPy scalars
            yield first, [value.item() if isinstance(value, np.generic) else value for value in piece]
        else:
            yield first, piece
        first += len(piece)


def is_arrow(values: object) -> bool:
    """Return whether this is a pyarrow object, without importing pyarrow."""
    return type(values).__module__.partition(".")[0] == "pyarrow"


def is_null(value: object) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    return type(value).__name__ in _PANDAS_NULLS and type(value).__module__.startswith("pandas.")


def null_error(position: int) -> RowError:
    """Return the error for a null at a position."""
    return RowError(
        f"the value at position {position} is null: drop such rows, or pass fill_null, the value that they count as"
    )


def _hash_list(keys: list[Any], first: int, initial: int, longest: int | None) -> tuple[UInt32s, list[int]]:
    """Return the hashes of a chunk, and the indices of its nulls, whose hashes are undefined."""
    null: list[int] = []
    kinds = set(map(type, keys))
    if not kinds <= {str, bytes}:
        null = [place for place, key in enumerate(keys) if is_null(key)]
        if null:
            keys = [b"" if is_null(key) else key for key in keys]
            kinds = set(map(type, keys))
    data, offsets = _spans_of_list(keys, kinds, first)
    if longest is not None:
        _refuse_long(np.diff(offsets), longest, first)
    return next(hash_spans(data, offsets, initial)), null


def _spans_of_list(
    keys: list[Any], kinds: set[type], first: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one buffer of all keys, and the offsets, including the end."""
    text = "".join(keys) if kinds == {str} else None
    if text is not None and text.isascii():
        data = text.encode()
    else:
        if kinds != {bytes}:
            keys = [_bytes_of(first + place, key) for place, key in enumerate(keys)]
        data = b"".join(keys)
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)), out=offsets[1:])
    return np.frombuffer(data, np.uint8), offsets


def _bytes_of(position: int, key: object) -> bytes:
    try:
        return bytes_of(key, f"the key at position {position}")
    except InputError as error:
        raise RowError(str(error)) from None


def _hash_arrow(
    keys: Any,
    initial: int,
    seed_of_null: SeedOfNull,
    longest: int | None,
    first: int = 0,
) -> Iterator[UInt32s]:
    """Hash a pyarrow Array or ChunkedArray; `first` is the position of its first key in the column."""
    if hasattr(keys, "chunks"):
        for chunk in keys.chunks:
            yield from _hash_arrow(chunk, initial, seed_of_null, longest, first)
            first += len(chunk)
        return
    if not hasattr(keys, "buffers"):
        raise InputError(f"a pyarrow {type(keys).__name__} holds no keys: pass an Array or a ChunkedArray")

    if hasattr(keys, "dictionary") and keys.dictionary.null_count:
        keys = keys.dictionary_decode()
    if seed_of_null is None:
        refuse_nulls(keys, first)

    start = 0
    for part in _hash_array(keys, initial, longest, first):
        if keys.null_count and seed_of_null:
            null = keys.slice(start, len(part)).is_null().to_numpy(zero_copy_only=False)
            if null.any():
                part[null] = seed_of_null()
        yield part
        start += len(part)


def _hash_array(keys: Any, initial: int, longest: int | None, first: int) -> Iterator[UInt32s]:
    """Hash a pyarrow Array; the hash of a null is undefined."""
    if hasattr(keys, "dictionary"):
        yield from _hash_dictionary(keys, initial, longest, first)
        return
    for start in range(0, max(len(keys), 1), CHUNK_KEYS):
        data, offsets = _spans_of_arrow(keys.slice(start, CHUNK_KEYS))
        if longest is not None:
            _refuse_long(np.diff(offsets), longest, first + start)
        yield from hash_spans(data, offsets, initial)


def _hash_dictionary(keys: Any, initial: int, longest: int | None, first: int) -> Iterator[UInt32s]:
    """Hash the values of a dictionary once, and yield the hash of each key; the last item is for nulls."""
    values = np.concatenate([*_hash_array(keys.dictionary, initial, None, 0), np.zeros(1, np.uint32)])
    sizes = np.append(0 if longest is None else np.diff(_spans_of_arrow(keys.dictionary)[1]), 0)
    for start in range(0, len(keys), CHUNK_KEYS):
        places = keys.indices.slice(start, CHUNK_KEYS).fill_null(0).to_numpy(zero_copy_only=False)
        if longest is not None:
            _refuse_long(sizes[places], longest, first + start)
        yield values[places]


def _refuse_long(sizes: NDArray[Any], longest: int, first: int) -> None:
    if sizes.max(initial=0) <= longest:
        return
    place = int((sizes > longest).argmax())
    raise RowError(
        too_long(f"the key at position {first + place}", int(sizes[place])) + ", in a routing key as in an id"
    )


def refuse_nulls(keys: Any, first: int = 0) -> None:
    """Raise a RowError for a pyarrow Array with nulls. `first` is the position of its first value in the column."""
    if keys.null_count:
        raise null_error(first + int(keys.is_null().to_numpy(zero_copy_only=False).argmax()))


def _without_views(keys: Any) -> Any:
    kind = str(keys.type)
    try:
        return keys.cast("large_" + kind.removesuffix("_view"))
    except NotImplementedError:
        raise InputError(f"this pyarrow cannot read {kind}: cast to string or binary, or update it") from None


def _spans_of_arrow(keys: Any) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    kind = str(keys.type)
    if kind not in _ARROW_KINDS and not kind.startswith("fixed_size_binary"):
        raise InputError(f"an Arrow array of {kind} holds no keys: cast it to string or binary")
    if not len(keys):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    if kind.startswith("fixed_size_binary"):
        places = np.arange(keys.offset, keys.offset + len(keys) + 1, dtype=np.int64)
        return _bytes_in(keys.buffers()[1]), places * keys.type.byte_width
    if kind == "null":
        keys = keys.cast("string")
    if kind.endswith("_view"):
        keys = _without_views(keys)
    width = np.int64 if str(keys.type).startswith("large_") else np.int32
    _, offsets, data = keys.buffers()
    return _bytes_in(data), np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1]


def _bytes_in(buffer: Any) -> NDArray[np.uint8]:
    """Return the bytes of an Arrow buffer, which may be absent if all keys are empty."""
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


# -- phash2 of spans

_FEW_KEYS = 32  # below that, one key after the other is faster
_BLOCK = 12
_WINDOW = 16  # a block, and the four other bytes of a 16-byte load

# By number of bytes after the last whole block: the mask of the key's bytes in each of the three words.
_TAIL_MASKS = tuple(
    np.array([(1 << 8 * min(max(left - first, 0), 4)) - 1 for left in range(_BLOCK)], np.uint32)
    for first in (0, 4, 8)
)


def hash_spans(data: NDArray[np.uint8], offsets: NDArray[Any], initial: int = 0) -> Iterator[UInt32s]:
    """Yield the hashes of consecutive keys in chunks. `initial` is the hash of the part of the term before each key."""
    for start in range(0, len(offsets) - 1, CHUNK_KEYS):
        bounds = offsets[start : start + CHUNK_KEYS + 1].astype(np.int64)
        low = int(bounds[0])
        high = int(bounds[-1])
        chunk = data[low : high + _WINDOW]
        if len(chunk) < high - low + _WINDOW:
            chunk = np.concatenate((data[low:high], np.zeros(_WINDOW, np.uint8)))
        yield _hash_chunk(chunk, bounds[:-1] - low, np.diff(bounds), initial)


def _hash_chunk(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], initial: int
) -> UInt32s:
    """Return the hash of each key; `data` has at least 16 bytes from the start of each key's last block."""
    blocks = lengths // _BLOCK
    order = None
    if blocks.min() != blocks.max():
        # NumPy sorts 16-bit numbers by radix, several times as fast.
        order = np.argsort(blocks.astype(np.uint16) if blocks.max() <= 0xFFFF else blocks, kind="stable")
        starts = starts[order]
        lengths = lengths[order]
        blocks = blocks[order]
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
    """Hash keys sorted by their number of whole blocks."""
    size = len(starts)
    a = np.full(size, GOLDEN, np.uint32)
    b = np.full(size, GOLDEN, np.uint32)
    c = np.full(size, (HCONST_13 + initial) & MASK, np.uint32)
    spare = np.empty(size, np.uint32)
    # Adjacent keys of one length are at equal distances.
    stride = int(lengths[0]) if lengths.min() == lengths.max() else 0

    block = 0
    while True:
        done = int(np.searchsorted(blocks, block, side="right"))
        if size - done < _FEW_KEYS:
            break
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
    # The length is in the low byte of the last word, and overflows into the others.
    tail[2] = (tail[2] << np.uint32(8)) + lengths[:done].astype(np.uint32)
    mix_in(a[:done], b[:done], c[:done], tail, spare[:done])
    c[lengths == 0] = (HCONST_13 + initial) & MASK
    return c


def _words(data: NDArray[np.uint8], positions: NDArray[np.int64], stride: int) -> list[UInt32s]:
    """Return the three little-endian words at each position; a stride of 0 means varying distances."""
    if stride:
        begin = int(positions[0])
        return [np.ndarray((len(positions),), "<u4", data, begin + 4 * n, (stride,)) for n in range(3)]
    # One fancy index over overlapping 16-byte items fetches a whole block.
    windows = np.ndarray((len(data) - _WINDOW + 1,), f"V{_WINDOW}", data, 0, (1,))
    words = windows[positions].view("<u4").reshape(-1, _WINDOW // 4)
    return [words[:, n] for n in range(3)]


def mix_in(a: UInt32s, b: UInt32s, c: UInt32s, words: Sequence[UInt32s | np.uint32], spare: UInt32s) -> None:
    """Add a block to each state and mix, in place."""
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


# -- murmur3 of spans

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_WORD = 4
#: By number of bytes after the last whole word: the mask of the key's bytes in the next four.
_MURMUR_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur3_hashes(keys: Iterable[Any], seed: int) -> UInt32s:
    """Return the murmur3 x86-32 hash of each key; nulls are refused."""
    parts = [_murmur3_of_spans(data, offsets.astype(np.int64), seed) for data, offsets in spans(keys)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _murmur3_of_spans(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: int) -> UInt32s:
    low = int(offsets[0])
    high = int(offsets[-1])
    data = np.concatenate((data[low:high], np.zeros(_WORD, np.uint8)))

    # Overlapping items, so that one fancy index fetches a word at any place.
    at = np.ndarray((len(data) - _WORD + 1,), "<u4", data, 0, (1,))
    lengths = np.diff(offsets)

    # In this order the keys with a further word are the end of each array.
    order = np.argsort(lengths, kind="stable")
    starts = offsets[order] - low
    lengths = lengths[order]
    words = lengths // _WORD
    hashed = np.full(len(order), seed, np.uint32)

    for word in range(int(words[-1]) if len(words) else 0):
        first = int(np.searchsorted(words, word, side="right"))
        mixed = _rotate(hashed[first:] ^ _scramble(at[starts[first:] + _WORD * word]), 13)
        hashed[first:] = mixed * np.uint32(5) + np.uint32(0xE6546B64)

    hashed ^= _scramble(at[starts + _WORD * words] & _MURMUR_TAIL_MASKS[lengths % _WORD])
    hashed ^= lengths.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ hashed >> np.uint32(shift)) * np.uint32(factor)
    result = np.empty_like(hashed)
    result[order] = hashed
    return result


def _scramble(words: UInt32s) -> UInt32s:
    return _rotate(words * _C1, 15) * _C2


def _rotate(words: UInt32s, bits: int) -> UInt32s:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)

"""Many integers at once: their phash2, and their seeds as values of a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rabbit_chx.amqp.fields import INTEGER_RANGES, FieldType
from rabbit_chx.erlang import Atom, phash2
from rabbit_chx.erlang.hashing import GOLDEN, HCONST_10, HCONST_11, HCONST_13, MASK, SMALL_INTEGERS
from rabbit_chx.errors import RowError
from rabbit_chx.routing.arrays.binaries import CHUNK_KEYS, UInt32s, mix_in
from rabbit_chx.routing.arrays.keys import SeedOfNull, is_arrow, null_error, refuse_nulls

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SEED_BITS = np.uint64(0xFFFFFFFF)  # more than the 21 that count

Integers = np.int64 | np.uint64

_ZERO = np.uint32(0)


def integer_hashes(values: NDArray[Integers], initial: int) -> UInt32s:
    """Return the 32-bit hash of each integer of 64 bits.

    Args:
        values: int64 or uint64.
        initial: the hash of what precedes each integer inside a term.
    """
    hashed = np.empty(len(values), np.uint32)
    for start in range(0, len(values), CHUNK_KEYS):
        part = values[start : start + CHUNK_KEYS]
        hashed[start : start + CHUNK_KEYS] = _hash_chunk(part, initial)
    return hashed


def _hash_chunk(values: NDArray[Integers], initial: int) -> UInt32s:
    """Hash as ``make_hash2`` does: one word for what fits 28 bits, else the sign and two words of
    magnitude.
    """
    negative = values < 0
    unsigned = values.view(np.uint64)
    magnitude = np.where(negative, ~unsigned + np.uint64(1), unsigned)
    low, high = magnitude.astype(np.uint32), (magnitude >> np.uint64(32)).astype(np.uint32)
    hashes = np.full(len(values), initial, np.uint32)

    small = (values >= SMALL_INTEGERS.start) & (values < SMALL_INTEGERS.stop)
    both = small & negative
    hashes[both] = _step(low[both], _ZERO, GOLDEN, hashes[both])
    hashes[small] = _step(unsigned[small].astype(np.uint32), _ZERO, GOLDEN, hashes[small])
    for large, constant in ((~small & negative, HCONST_10), (~small & ~negative, HCONST_11)):
        hashes[large] = _step(low[large], high[large], constant, hashes[large])
    return hashes


def _step(x: UInt32s, y: UInt32s | np.uint32, constant: int, hashes: UInt32s) -> UInt32s:
    a, b = (np.full(len(hashes), constant, np.uint32) for _ in range(2))
    mix_in(a, b, hashes, (x, y, _ZERO), np.empty_like(hashes))
    return hashes


def integers_of(
    values: Any,  # noqa: ANN401
    seed_of_null: SeedOfNull,
) -> tuple[NDArray[Integers] | None, NDArray[np.bool_] | None]:
    """Return the integers as int64 or uint64, and which are null.

    The integers are None where they need more than 64 bits; the nulls are None where there is none.

    Args:
        values: a list, a NumPy array or a pyarrow array of integers.
        seed_of_null: finds the seed of a null; None refuses nulls.

    Raises:
        RowError: a value is null, and nulls are refused.
    """
    null = None
    if is_arrow(values):
        if seed_of_null is None:
            refuse_nulls(values)
        if values.null_count:
            null = values.is_null().to_numpy(zero_copy_only=False)
            values = values.fill_null(0)
        values = values.to_numpy()
    if isinstance(values, np.ma.MaskedArray):
        null = np.ma.getmaskarray(values)
        if seed_of_null is None and null.any():
            raise null_error(int(null.argmax()))
        values = values.filled(0)
    if isinstance(values, list) or values.dtype.kind == "O":
        try:
            return np.array(values, np.int64), null
        except OverflowError:
            return None, null
    unsigned = values.dtype.kind == "u" and values.dtype.itemsize == 8  # in either order of bytes
    return np.ascontiguousarray(values, np.uint64 if unsigned else np.int64), null


def integer_seeds(values: NDArray[Integers], types: tuple[FieldType, ...], *, typed: bool) -> UInt32s:
    """Return the seed of each integer in a header.

    Args:
        values: int64 or uint64.
        types: wire types; each value takes the first one that holds it, as a client chooses.
        typed: whether the wire type is hashed with the value, as before 3.13.

    Raises:
        RowError: no type holds a value.
    """
    seeds = np.empty(len(values), np.uint32)
    for first in range(0, len(values), CHUNK_KEYS):
        part = values[first : first + CHUNK_KEYS]
        seeds[first : first + CHUNK_KEYS] = _seeds_of_chunk(part, first, types, typed=typed)
    return seeds


def _seeds_of_chunk(
    values: NDArray[Integers], first: int, types: tuple[FieldType, ...], *, typed: bool
) -> UInt32s:
    seeds = np.empty(len(values), np.uint32)
    left = np.ones(len(values), np.bool_)
    limits = np.iinfo(values.dtype)
    for type_ in types:
        allowed = INTEGER_RANGES[type_]
        # Within the limits of the array's own type, so that no comparison goes through floats.
        lowest, highest = max(allowed[0], limits.min), min(allowed[-1], limits.max)
        here = left & (values >= lowest) & (values <= highest)
        if typed:
            seeds[here] = integer_hashes(values[here], hash_before_value(type_))
        else:
            factor = np.uint64(1000 if type_ == "timestamp" else 1)
            seeds[here] = (values[here].view(np.uint64) * factor & _SEED_BITS).astype(np.uint32)
        left &= ~here
    if left.any():
        place = int(left.argmax())
        raise RowError(
            f"the value at position {first + place}, {values[place]}, does not fit {' or '.join(types)}"
        )
    return seeds


def hash_before_value(type_: str) -> int:
    """Return the hash of ``{Type, Value}`` before the value; an empty binary only adds a constant to it."""
    return phash2((Atom(type_), b""), 1 << 32) - HCONST_13 & MASK

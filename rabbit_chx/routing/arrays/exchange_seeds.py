"""Columns of header values and of properties, to seeds.

Text, bytes and integers are hashed in arrays; whatever else a header can hold, one value after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rabbit_chx.amqp.client_fields import INTEGER_TYPES, field_for, field_of_type
from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField
from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.erlang import Atom, phash2
from rabbit_chx.erlang.hashing import HCONST_13, MASK
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing.arrays.binaries import CHUNK_KEYS
from rabbit_chx.routing.arrays.integers import integer_hashes
from rabbit_chx.routing.arrays.keys import hashes, is_arrow, is_null, null_error, pieces, refuse_nulls
from rabbit_chx.routing.jump import seed_of
from rabbit_chx.routing.message_091 import property_bytes, property_seconds, refuse_random_id
from rabbit_chx.routing.rules import HEADER_IS_TUPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from rabbit_chx.amqp.client_fields import Client
    from rabbit_chx.amqp.fields import FieldType
    from rabbit_chx.erlang import Term
    from rabbit_chx.routing.arrays.binaries import UInt32s
    from rabbit_chx.routing.arrays.integers import Integers
    from rabbit_chx.routing.arrays.keys import SeedOfNull
    from rabbit_chx.routing.release import Release

__all__ = ["amqp10_seeds", "header_seeds", "property_seeds"]

TEXT = {"string", "large_string", "string_view"}
BYTES = {"binary", "large_binary", "binary_view"}
SEED_BITS = np.uint64(0xFFFFFFFF)  # more than the 21 that count


def header_seeds(
    values: Iterable[Any],
    release: Release,
    client: Client,
    field_type: FieldType | None,
    seed_of_field: Callable[[AmqpField], int],
    *,
    seed_of_null: SeedOfNull = None,
) -> UInt32s:
    """The seed of each value of a header.

    Args:
        values: as :meth:`ConsistentHashExchange.indices` takes them.
        release: whose rules apply.
        client: whose encoding bare values take.
        field_type: the wire type of all bare values; None for that which the client gives each.
        seed_of_field: the seed of a single one.
        seed_of_null: finds that of a null; None refuses nulls.

    Raises:
        RowError: a value is null, or the client cannot send it as that type.
    """
    kind = _kind_of(values)
    typed = release.follows(HEADER_IS_TUPLE)
    if kind in ("text", "bytes"):
        type_ = field_type or ("longstr" if kind == "text" else _type_of_bytes(client))
        if type_ in ("longstr", "binary"):
            return hashes(values, _hash_before_value(type_) if typed else 0, seed_of_null=seed_of_null)
    if kind == "integers" and (field_type is None or field_type in INTEGER_RANGES):
        integers, null = _integers(values, seed_of_null)
        if integers is not None:
            types = INTEGER_TYPES[client] if field_type is None else (field_type,)
            seeds = _integer_seeds(integers, types, typed=typed)
            if null is not None and seed_of_null is not None:
                seeds[null] = seed_of_null()
            return seeds

    def seed(value: Any) -> int:  # noqa: ANN401
        return seed_of_field(field_of_type(value, field_type, client))

    return np.fromiter(_each(values, seed, seed_of_null), np.uint32)


def _type_of_bytes(client: Client) -> FieldType | None:
    """The wire type of bytes; None where the client cannot send them."""
    try:
        return field_for(b"", client).type
    except InputError:
        return None


def property_seeds(
    values: Iterable[Any], name: str, client: Client, *, seed_of_null: SeedOfNull = None
) -> UInt32s:
    """The seed of each value of a property: message_id, correlation_id or timestamp.

    Raises:
        RowError: a value is null, or the client cannot send it.
    """
    if name != "timestamp" and client == "pika" and _kind_of(values) in ("text", "bytes"):
        return hashes(values, seed_of_null=seed_of_null, longest=MAX_SHORTSTR)

    def seed(value: Any) -> int:  # noqa: ANN401
        if name == "timestamp":
            return phash2(str(property_seconds(value, client)))
        sent = property_bytes(name, value, client)
        refuse_random_id(name, sent, client)
        return phash2(sent)

    return np.fromiter(_each(values, seed, seed_of_null), np.uint32)


def amqp10_seeds(
    values: Iterable[Any], term_of: Callable[[Any], Term], *, text: bool, seed_of_null: SeedOfNull = None
) -> UInt32s:
    """The seed of each value that an AMQP 1.0 publisher sends.

    Args:
        values: application properties, ids or creation times.
        term_of: the term of a single one.
        text: whether text and bytes are hashed as they are.
        seed_of_null: finds that of a null; None refuses nulls.

    Raises:
        RowError: a value is null, or no client can send it.
    """
    if text and _kind_of(values) in ("text", "bytes"):
        return hashes(values, seed_of_null=seed_of_null)
    return np.fromiter(_each(values, lambda value: seed_of(term_of(value)), seed_of_null), np.uint32)


def _each(values: Iterable[Any], seed: Callable[[Any], int], seed_of_null: SeedOfNull) -> Iterable[int]:
    _refuse_numpy_without_values(values)
    for first, piece in pieces(values):
        for position, value in enumerate(piece, first):
            if is_null(value):
                if seed_of_null is None:
                    raise null_error(position)
                yield seed_of_null()
                continue
            try:
                yield seed(value)
            except InputError as error:
                raise RowError(f"the value at position {position}: {error}") from None


def _refuse_numpy_without_values(values: object) -> None:
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind in "mMVc"):
        raise InputError(
            f"a NumPy array of {values.ndim} dimensions and type {values.dtype} holds no header values: give one "
            "dimension of text, bytes, numbers or objects"
        )


def _kind_of(values: Any) -> str:  # noqa: ANN401
    """``text``, ``bytes``, ``integers``, or empty for anything else; None and pandas' NA do not count."""
    if getattr(values, "ndim", 1) != 1:
        return ""
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return {"U": "text", "T": "text", "S": "bytes", "i": "integers", "u": "integers"}.get(
            values.dtype.kind, ""
        )
    if is_arrow(values) and hasattr(values, "type"):
        return _kind_of_arrow(values.type)
    if isinstance(values, (list, np.ndarray)):
        kinds = set(map(type, values))
        if kinds & {str, bytes}:
            kinds = {kind for kind in kinds if kind.__name__ not in ("NoneType", "NAType")}
        return LIST_KINDS.get(kinds.pop(), "") if len(kinds) == 1 else ""
    return ""


def _kind_of_arrow(type_: Any) -> str:  # noqa: ANN401
    kind = str(type_.value_type if hasattr(type_, "index_type") else type_)
    if kind in TEXT:
        return "text"
    if kind in BYTES or kind.startswith("fixed_size_binary"):
        return "bytes"
    return "integers" if str(type_) in INTEGER_ARROWS else ""


INTEGER_ARROWS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
LIST_KINDS: dict[type, str] = {str: "text", bytes: "bytes", int: "integers"}


def _integers(
    values: Any,  # noqa: ANN401
    seed_of_null: SeedOfNull,
) -> tuple[NDArray[Integers] | None, NDArray[np.bool_] | None]:
    """The integers as int64 or uint64, None if they need more than 64 bits; and which are null, None if none is."""
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


def _integer_seeds(values: NDArray[Integers], types: tuple[FieldType, ...], *, typed: bool) -> UInt32s:
    """Each value goes by the first of the types that holds it, as a client chooses."""
    seeds = np.empty(len(values), np.uint32)
    for first in range(0, len(values), CHUNK_KEYS):
        part = values[first : first + CHUNK_KEYS]
        seeds[first : first + CHUNK_KEYS] = _integer_seeds_of_chunk(part, first, types, typed=typed)
    return seeds


def _integer_seeds_of_chunk(
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
            seeds[here] = integer_hashes(values[here], _hash_before_value(type_))
        else:
            factor = np.uint64(1000 if type_ == "timestamp" else 1)
            seeds[here] = (values[here].view(np.uint64) * factor & SEED_BITS).astype(np.uint32)
        left &= ~here
    if left.any():
        place = int(left.argmax())
        raise RowError(
            f"the value at position {first + place}, {values[place]}, does not fit {' or '.join(types)}"
        )
    return seeds


def _hash_before_value(type_: str) -> int:
    """The hash of ``{Type, Value}`` as it is before the value: an empty binary only adds a constant to it."""
    return phash2((Atom(type_), b""), 1 << 32) - HCONST_13 & MASK

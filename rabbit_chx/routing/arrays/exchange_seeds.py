"""The seeds of many messages of an ``x-consistent-hash`` exchange, and the hashes of the lists of ``x-modulus-hash``.

Text, bytes and integers are hashed as arrays; other header values one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rabbit_chx.amqp.fields import (
    INTEGER_RANGES,
    INTEGER_TYPES,
    PAMQP_NAME_BYTES,
    AmqpField,
    Client,
    FieldType,
    Sender,
    check_client,
    field_for,
    field_of_type,
)
from rabbit_chx.checks import MAX_SHORTSTR, short_string
from rabbit_chx.erlang import Atom, phash2
from rabbit_chx.erlang.hashing import (
    EMPTY_LIST_AT_START,
    GOLDEN,
    HCONST_2,
    HCONST_10,
    HCONST_11,
    HCONST_13,
    MASK,
    SMALL_INTEGERS,
    Term,
)
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing.arrays.keys import (
    CHUNK_KEYS,
    SeedOfNull,
    UInt32s,
    hashes,
    is_arrow,
    is_null,
    mix_in,
    null_error,
    pieces,
    refuse_nulls,
)
from rabbit_chx.routing.jump import seed_of
from rabbit_chx.routing.message import (
    AMQP_1_0,
    HashedOn,
    SentMessage,
    hashed_term,
    property_bytes,
    property_seconds,
    refuse_converted,
    refuse_random_id,
)
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import HEADER_IS_TUPLE

if TYPE_CHECKING:
    from numpy.typing import NDArray


_INTEGER_ARROWS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_LIST_KINDS: dict[type, str] = {str: "text", bytes: "bytes", int: "integers"}
_TEXT = {"string", "large_string", "string_view"}
_BYTES = {"binary", "large_binary", "binary_view"}
_SEED_BITS = np.uint64(0xFFFFFFFF)  # of which 21 are used
_ZERO = np.uint32(0)

Integers = np.int64 | np.uint64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSeeds:
    """Computes the seeds of many messages of one exchange.

    Attributes:
        hashed_on: the hashed part of a message.
        release: the release whose rules apply.
        field_type: the wire type of bare header values; None for the type that the client chooses.
        client: the client that sends the messages.
        seed_of_message: returns the seed of a single message.
        seed_of_field: returns the seed of a single header value.

    Raises:
        InputError: the client does not exist, or the hashed part has no field type.
        NotDeterminedError: the release supports AMQP 1.0 only through a plugin.
    """

    hashed_on: HashedOn
    release: Release
    field_type: FieldType | None
    client: Sender
    seed_of_message: Callable[[SentMessage], int]
    seed_of_field: Callable[[AmqpField], int]

    def __post_init__(self) -> None:
        if self.client == AMQP_1_0:
            refuse_converted(self.release)
            if self.field_type is not None:
                raise InputError("a field type is of AMQP 0-9-1: for AMQP 1.0 pass Amqp10Values")
        else:
            check_client(self.client)
        if self.field_type is not None and self.hashed_on.kind != "header":
            raise InputError(
                f"the exchange hashes the {self.hashed_on}: only a header's values have a field type"
            )

    @property
    def _name(self) -> str:
        return self.hashed_on.name.decode(errors="replace")

    def of_values(self, values: Iterable[Any], *, fill_null: Any, missing_nulls: bool) -> UInt32s:
        """Return the seed of each value; see :meth:`ConsistentHashExchange.indices`."""
        kind = self.hashed_on.kind
        client = self.client
        seed_of_null = self._seed_of_null(fill_null, missing=missing_nulls)
        if kind == "routing-key":
            return hashes(
                values, seed_of_null=seed_of_null, longest=None if client == AMQP_1_0 else MAX_SHORTSTR
            )
        if client == AMQP_1_0:
            text = kind == "header" or self._name != "timestamp"
            return _amqp10_seeds(values, self._amqp10_term, text=text, seed_of_null=seed_of_null)
        if kind == "property":
            return _property_seeds(values, self._name, client, seed_of_null=seed_of_null)
        if client == "aio-pika" and len(self.hashed_on.name) > PAMQP_NAME_BYTES:
            raise InputError(
                f"aio-pika cuts names to {PAMQP_NAME_BYTES} bytes, so it never sends the {self.hashed_on}: use "
                "a shorter name in hash-header"
            )

        return _header_seeds(
            values, self.release, client, self.field_type, self.seed_of_field, seed_of_null=seed_of_null
        )

    def _seed_of_null(self, fill: Any, *, missing: bool) -> SeedOfNull:
        """Return the function for the seed of a null; None if nulls are refused."""
        kind = self.hashed_on.kind
        if missing and fill is not None:
            raise InputError("nulls are both filled and missing: pass fill_null or missing_nulls")
        if missing and kind == "routing-key":
            raise InputError("the exchange hashes the routing key, which no message lacks: pass fill_null")
        if missing:
            return partial(self.seed_of_message, SentMessage())
        if fill is None:
            return None
        if kind == "routing-key":
            return partial(seed_of, short_string(fill, "fill_null"))
        if self.client == AMQP_1_0:
            return partial(seed_of, self._amqp10_term(fill))
        if kind == "property":
            seed = self.seed_of_message(SentMessage(properties={self._name: fill}, client=self.client))
            return lambda: seed
        return partial(self.seed_of_field, field_of_type(fill, self.field_type, self.client))

    def _amqp10_term(self, value: object) -> Term:
        return hashed_term(self.hashed_on.kind, self._name, value)


def _header_seeds(
    values: Iterable[Any],
    release: Release,
    client: Client,
    field_type: FieldType | None,
    seed_of_field: Callable[[AmqpField], int],
    *,
    seed_of_null: SeedOfNull = None,
) -> UInt32s:
    kind = _kind_of(values)
    typed = release.follows(HEADER_IS_TUPLE)
    if kind in ("text", "bytes"):
        type_ = field_type or ("longstr" if kind == "text" else _type_of_bytes(client))
        if type_ in ("longstr", "binary"):
            return hashes(values, hash_before_value(type_) if typed else 0, seed_of_null=seed_of_null)
    if kind == "integers" and (field_type is None or field_type in INTEGER_RANGES):
        integers, null = integers_of(values, seed_of_null)
        if integers is not None:
            types = INTEGER_TYPES[client] if field_type is None else (field_type,)
            seeds = integer_seeds(integers, types, typed=typed)
            if null is not None and seed_of_null is not None:
                seeds[null] = seed_of_null()
            return seeds

    def seed(value: Any) -> int:
        return seed_of_field(field_of_type(value, field_type, client))

    return np.fromiter(_each(values, seed, seed_of_null), np.uint32)


def _type_of_bytes(client: Client) -> FieldType | None:
    """Return the wire type of bytes; None if the client cannot send them."""
    try:
        return field_for(b"", client).type
    except InputError:
        return None


def _property_seeds(
    values: Iterable[Any], name: str, client: Client, *, seed_of_null: SeedOfNull = None
) -> UInt32s:
    if name != "timestamp" and client != "aio-pika" and _kind_of(values) in ("text", "bytes"):
        return hashes(values, seed_of_null=seed_of_null, longest=MAX_SHORTSTR)

    def seed(value: Any) -> int:
        if name == "timestamp":
            return phash2(str(property_seconds(value, client)))
        sent = property_bytes(name, value, client)
        refuse_random_id(name, sent, client)
        return phash2(sent)

    return np.fromiter(_each(values, seed, seed_of_null), np.uint32)


def _amqp10_seeds(
    values: Iterable[Any], term_of: Callable[[Any], Term], *, text: bool, seed_of_null: SeedOfNull = None
) -> UInt32s:
    if text and _kind_of(values) in ("text", "bytes"):
        return hashes(values, seed_of_null=seed_of_null)
    return np.fromiter(_each(values, lambda value: seed_of(term_of(value)), seed_of_null), np.uint32)


def _each(values: Iterable[Any], seed: Callable[[Any], int], seed_of_null: SeedOfNull) -> Iterable[int]:
    """Yield the seed of each value, computed one by one."""
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
            f"a NumPy array of {values.ndim} dimensions and type {values.dtype} holds no header values: pass one "
            "dimension of text, bytes, numbers or objects"
        )


def _kind_of(values: Any) -> str:
    """Return ``text``, ``bytes``, ``integers``, or "" for anything else; None and pandas' NA are ignored."""
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
        return _LIST_KINDS.get(kinds.pop(), "") if len(kinds) == 1 else ""
    return ""


def _kind_of_arrow(type_: Any) -> str:
    kind = str(type_.value_type if hasattr(type_, "index_type") else type_)
    if kind in _TEXT:
        return "text"
    if kind in _BYTES or kind.startswith("fixed_size_binary"):
        return "bytes"
    return "integers" if str(type_) in _INTEGER_ARROWS else ""


# -- integers, and lists of one key, as `make_hash2` hashes them


def integer_hashes(values: NDArray[Integers], initial: int) -> UInt32s:
    """Return the 32-bit hash of each 64-bit integer."""
    hashed = np.empty(len(values), np.uint32)
    for start in range(0, len(values), CHUNK_KEYS):
        part = values[start : start + CHUNK_KEYS]
        hashed[start : start + CHUNK_KEYS] = _hash_chunk(part, initial)
    return hashed


def _hash_chunk(values: NDArray[Integers], initial: int) -> UInt32s:
    """Hash as ``make_hash2``: one word for integers of 28 bits, otherwise the sign and two words of magnitude."""
    negative = values < 0
    unsigned = values.view(np.uint64)
    magnitude = np.where(negative, ~unsigned + np.uint64(1), unsigned)
    low = magnitude.astype(np.uint32)
    high = (magnitude >> np.uint64(32)).astype(np.uint32)
    hashes = np.full(len(values), initial, np.uint32)

    small = (values >= SMALL_INTEGERS.start) & (values < SMALL_INTEGERS.stop)
    both = small & negative
    hashes[both] = _step(low[both], _ZERO, GOLDEN, hashes[both])
    hashes[small] = _step(unsigned[small].astype(np.uint32), _ZERO, GOLDEN, hashes[small])
    for large, constant in ((~small & negative, HCONST_10), (~small & ~negative, HCONST_11)):
        hashes[large] = _step(low[large], high[large], constant, hashes[large])
    return hashes


def list_hashes(keys: Iterable[Any], longest: int) -> UInt32s:
    """Return the 32-bit phash2 of a list with each key as its only element; `longest` is the most bytes of a key."""
    hashed = hashes(keys, longest=longest)
    starts = hashed == 0  # the end of a list has another hash after a hash of 0
    hashed = _step(np.uint32(2), _ZERO, HCONST_2, hashed)
    hashed[starts] = EMPTY_LIST_AT_START
    return hashed


def _step(x: UInt32s | np.uint32, y: UInt32s | np.uint32, constant: int, hashes: UInt32s) -> UInt32s:
    a = np.full(len(hashes), constant, np.uint32)
    b = np.full(len(hashes), constant, np.uint32)
    mix_in(a, b, hashes, (x, y, _ZERO), np.empty_like(hashes))
    return hashes


def integers_of(
    values: Any,
    seed_of_null: SeedOfNull,
) -> tuple[NDArray[Integers] | None, NDArray[np.bool_] | None]:
    """Return the integers as int64 or uint64, and a mask of nulls; None for integers of more than 64 bits, or for a mask without nulls."""
    null = None
    if is_arrow(values):
        if seed_of_null is None:
            refuse_nulls(values)
        if values.null_count:
            null = values.is_null().to_numpy(zero_copy_only=False)
            values = values.fill_null(0)
        values = values.to_numpy()

    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        null = mask if mask.any() else None
        if seed_of_null is None and null is not None:
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
    """Return the seed of each int64 or uint64 in a header.

    Each value takes the first of `types` whose range includes it, as a client chooses; `typed` hashes the type, as before 3.13.
    """
    seeds = np.empty(len(values), np.uint32)
    for first in range(0, len(values), CHUNK_KEYS):
        part = values[first : first + CHUNK_KEYS]
        seeds[first : first + CHUNK_KEYS] = _seeds_of_chunk(part, first, types, typed=typed)
    return seeds


def _seeds_of_chunk(
    values: NDArray[Integers], first: int, types: tuple[FieldType, ...], *, typed: bool
) -> UInt32s:
    """Return the seeds of a chunk; `first` is the position of its first value, for errors."""
    seeds = np.empty(len(values), np.uint32)
    left = np.ones(len(values), np.bool_)
    limits = np.iinfo(values.dtype)
    for type_ in types:
        allowed = INTEGER_RANGES[type_]
        # Within the limits of the array's type, so that comparisons do not convert to float.
        lowest = max(allowed[0], limits.min)
        highest = min(allowed[-1], limits.max)
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
    """Return the hash of the part of ``{Type, Value}`` before the value; an empty binary only adds a constant to it."""
    return phash2((Atom(type_), b""), 1 << 32) - HCONST_13 & MASK

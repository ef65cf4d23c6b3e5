"""The hash ``erlang:phash2``, and the random number generator ``exs1024``, which the jump hash seeds with it.

`phash2` mirrors erlang/otp ``erts/emulator/beam/erl_term_hashing.c``, ``make_hash2`` and ``block_hash``, and ``erts/emulator/beam/atom.c``,
``atom_hash``. OTP guarantees the same results on every machine and release; results of OTP 25, 27 and 29 were compared.

The generator mirrors erlang/otp ``lib/stdlib/src/rand.erl``, ``exs1024_seed/1``, ``exs1024_next/1`` and ``uniform_s/1`` (OTP 25; later releases keep the
sequences of old algorithms). Unlike ``exs1024s``, the float uses all 64 bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.errors import InputError

# -- Erlang terms as Python values, and their text form
# ===========================  ======================================
# Python                       Erlang
# ===========================  ======================================
# ``bytes``, ``str`` (UTF-8)   binary
# ``int`` (any size)           integer
# ``float`` (finite)           float
# ``True``, ``False``          the atoms ``true``, ``false``
# ``None``                     the atom ``undefined``
# :class:`Atom`                atom
# ``tuple``, ``list``          tuple, proper list
# ``dict``, :class:`ErlangMap` map
# ===========================  ======================================
#
# Pids, ports, references, functions and bitstrings other than binaries never reach an exchange, so they are not supported.

_MAX_ATOM_CHARACTERS = 255


def utf8(text: str) -> bytes:
    """Encode text as UTF-8; raise an InputError if that is impossible."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{text[:40]!r} holds half of a surrogate pair and has no UTF-8: pass its bytes"
        ) from None


@dataclass(frozen=True, slots=True)
class Atom:
    """An Erlang atom.

    Attributes:
        name: up to 255 characters, as in Erlang.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"an atom's name is text, not {self.name!r}: pass a str")
        if len(self.name) > _MAX_ATOM_CHARACTERS:
            raise InputError(f"the atom {self.name[:20]!r}... has {len(self.name)} characters: at most 255")
        utf8(self.name)


@dataclass(frozen=True, slots=True)
class ErlangMap:
    """An Erlang map as pairs, for keys that a ``dict`` cannot contain or distinguish (1 and 1.0).

    Attributes:
        pairs: ``(key, value)`` pairs in any order, without duplicate keys.

    Raises:
        InputError: an element is not a pair, or a key occurs twice.
    """

    pairs: tuple[tuple[Any, Any], ...]

    def __init__(self, pairs: Iterable[tuple[Term, Term]]) -> None:
        object.__setattr__(self, "pairs", tuple(tuple(pair) for pair in pairs))
        for pair in self.pairs:
            if len(pair) != 2:
                raise InputError(f"a map is made of (key, value) pairs, not {pair!r}")
        refuse_same_key_twice(self)


#: A Python value for an Erlang term: True, False and None are atoms, and None is undefined.
Term: TypeAlias = (
    bytes | str | bool | int | float | Atom | ErlangMap | tuple[Any, ...] | list[Any] | dict[Any, Any] | None
)

ATOMS_OF_PYTHON = {True: Atom("true"), False: Atom("false"), None: Atom("undefined")}


def pairs_of(term: dict[Any, Any] | ErlangMap) -> tuple[tuple[Any, Any], ...]:
    """Return the pairs of a map."""
    return term.pairs if isinstance(term, ErlangMap) else tuple(term.items())


def refuse_same_key_twice(term: dict[Any, Any] | ErlangMap) -> None:
    """Raise an InputError for two keys that Erlang does not distinguish, unlike Python: ``"a"`` and ``b"a"``, or None and
    ``Atom("undefined")``.
    """
    seen = set()
    for key, _ in pairs_of(term):
        identity = _identity(key)
        if identity in seen:
            raise InputError(f"the map has the key {key!r} twice: an Erlang map has each key once")
        seen.add(identity)


def _identity(term: Term) -> Hashable:
    """Return a value that is equal for two terms if Erlang's ``=:=`` is true."""
    match term:
        case bytes() | Atom():
            return term
        case str():
            return utf8(term)
        case bool() | None:
            return ATOMS_OF_PYTHON[term]
        case tuple() | list():
            return (type(term).__name__, *map(_identity, term))
        case dict() | ErlangMap():
            return frozenset((_identity(key), _identity(value)) for key, value in pairs_of(term))
        case int() | float():
            return (type(term).__name__, term)
        case _:
            raise not_a_term(term)


def not_a_term(value: object) -> InputError:
    """Return the error for a Python value that is not an Erlang term."""
    return InputError(
        f"{value!r} ({type(value).__name__}) is not an Erlang term: pass bytes, str, int, float, bool, None, "
        "Atom, tuple, list, dict or ErlangMap"
    )


def erlang_text(term: Term) -> str:
    """Return a term in Erlang's syntax, such as ``{longstr,<<"a">>}``; a binary of printable text is shown as text."""
    if isinstance(term, bytes):
        return _binary(term)
    if isinstance(term, (tuple, list)):
        inside = ",".join(map(erlang_text, term))
        return f"[{inside}]" if isinstance(term, list) else f"{{{inside}}}"
    return _single(term)


def _single(term: Any) -> str:
    if isinstance(term, float):
        return _float_text(term)
    if isinstance(term, Atom):
        return term.name
    return ATOMS_OF_PYTHON[term].name if term is None or isinstance(term, bool) else str(term)


def _binary(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _bytes(data)
    if not text or not text.isprintable():
        return _bytes(data)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{escaped}"{"" if text.isascii() else "/utf8"}>>'


def _bytes(data: bytes) -> str:
    return f"<<{','.join(map(str, data))}>>"


def _float_text(number: float) -> str:
    """Write a float with a digit after the point, as Erlang requires: Python's 1e-05 is 1.0e-5."""
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"


MASK = 0xFFFFFFFF
GOLDEN = 0x9E3779B9


def _constant(k: int) -> int:
    return k * GOLDEN & MASK


HCONST_2 = _constant(2)
HCONST_3 = _constant(3)
HCONST_4 = _constant(4)
HCONST_9 = _constant(9)
HCONST_10 = _constant(10)
HCONST_11 = _constant(11)
HCONST_12 = _constant(12)
HCONST_13 = _constant(13)
HCONST_16 = _constant(16)
HCONST_19 = _constant(19)
EMPTY_LIST_AT_START = 3468870702
SMALL_INTEGERS = range(-(1 << 27), 1 << 27)

_blocks = struct.Struct("<III").iter_unpack


def phash2(term: Term, range_: int = 2**27) -> int:
    """Return the portable hash of a term.

    Args:
        term: an Erlang term, see :mod:`rabbit_chx.erlang.hashing`.
        range_: the number of possible values, 1 to 2^32.

    Returns:
        A number from 0 to ``range_ - 1``.

    Raises:
        InputError: the value is not an Erlang term, or the range is not from 1 to 2^32.
    """
    if isinstance(range_, bool) or not isinstance(range_, int) or not 1 <= range_ <= 1 << 32:
        raise InputError(f"the range {range_!r} of phash2 must be an integer from 1 to 2**32")
    if type(term) is bytes:
        return hash_binary(term) % range_
    return _hash(term) % range_


def hash_binary(data: bytes, initial: int = 0) -> int:
    """Return the 32-bit hash of a binary before its reduction to a range; `initial` is the hash of the preceding part of the term."""
    size = len(data)
    c = HCONST_13 + initial & MASK
    if not size:
        return c
    start_of_tail = size - size % 12
    end_of_words = start_of_tail + 8
    # The last block shifts its third word up by one byte to make room for the length.
    last_word = (int.from_bytes(data[end_of_words:], "little") << 8) + size & MASK
    padded = data[:end_of_words].ljust(end_of_words, b"\0") + last_word.to_bytes(4, "little")
    a = b = GOLDEN
    for x, y, z in _blocks(padded):
        a, b, c = _mix(a + x, b + y, c + z & MASK)
    return c


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Mix three words (Bob Jenkins' mix function); only `c` must be within 32 bits."""
    a = (a - b - c ^ (c >> 13)) & MASK
    b = (b - c - a ^ (a << 8)) & MASK
    c = (c - a - b ^ (b >> 13)) & MASK
    a = (a - b - c ^ (c >> 12)) & MASK
    b = (b - c - a ^ (a << 16)) & MASK
    c = (c - a - b ^ (b >> 5)) & MASK
    a = (a - b - c ^ (c >> 3)) & MASK
    b = (b - c - a ^ (a << 10)) & MASK
    return a, b, (c - a - b ^ (b >> 15)) & MASK


def _step(x: int, y: int, constant: int, hash_: int) -> int:
    return _mix(constant + x, constant + y, hash_)[2]


class _ListRest(NamedTuple):
    elements: Sequence[Any]
    start: int


class _MapFrame:
    """A map in progress. Each pair is hashed from 0, and XOR joins the pairs, so their order does not matter."""

    __slots__ = ("before", "joined")

    def __init__(self, before: int) -> None:
        self.before = before
        self.joined = 0


class _PairDone(NamedTuple):
    frame: _MapFrame


class _MapDone(NamedTuple):
    frame: _MapFrame


def _hash(term: Term) -> int:
    """Return the 32-bit hash of a term, depth first and left to right, with an explicit stack."""
    hash_ = 0
    pending: list[Any] = [term]
    while pending:
        part = pending.pop()
        match part:
            case _ListRest(elements, start):
                hash_ = _list_rest(elements, start, hash_, pending)
            case _PairDone(frame):
                frame.joined ^= hash_
                hash_ = 0
            case _MapDone(frame):
                hash_ = _step(frame.joined, 0, HCONST_19, frame.before)
            case list():
                pending.append(_ListRest(part, 0))
            case tuple():
                hash_ = _step(len(part), 0, HCONST_9, hash_)
                pending.extend(reversed(part))
            case dict() | ErlangMap():
                hash_ = _open_map(part, hash_, pending)
            case _:
                hash_ = _leaf(part, hash_)
    return hash_


def _leaf(term: Term, hash_: int) -> int:
    match term:
        case bytes():
            return hash_binary(term, hash_)
        case str():
            return hash_binary(utf8(term), hash_)
        case bool() | None:
            return _atom(ATOMS_OF_PYTHON[term], hash_)
        case Atom():
            return _atom(term, hash_)
        case int():
            return _integer(int(term), hash_)
        case float():
            return _float(term, hash_)
        case _:
            raise not_a_term(term)


def _atom(atom: Atom, hash_: int) -> int:
    value = 0
    for character in atom.name:
        # ERTS undoes the UTF-8 of latin1 characters, so that atoms kept their hash when they became UTF-8.
        for byte in (ord(character),) if character <= "\xff" else character.encode():
            value = (value << 4) + byte
            high = value & 0xF0000000
            value ^= high >> 24 ^ high
    return _step(value, 0, HCONST_3, hash_) if hash_ else value


def _integer(value: int, hash_: int) -> int:
    if value in SMALL_INTEGERS:
        if value < 0:
            hash_ = _step(-value, 0, GOLDEN, hash_)
        return _step(value & MASK, 0, GOLDEN, hash_)
    constant = HCONST_10 if value < 0 else HCONST_11
    magnitude = abs(value)
    digits = magnitude.to_bytes(-(-magnitude.bit_length() // 64) * 8, "little")
    for low, high in struct.iter_unpack("<II", digits):
        hash_ = _step(low, high, constant, hash_)
    return hash_


def _float(value: float, hash_: int) -> int:
    if not math.isfinite(value):
        raise InputError(f"{value!r} is not an Erlang float: Erlang has neither infinities nor NaN")
    # Adding 0.0 turns -0.0 into 0.0: both have the same hash.
    high, low = struct.unpack(">II", struct.pack(">d", value + 0.0))
    return _step(high, low, HCONST_12, hash_)


def _list_rest(elements: Sequence[Any], start: int, hash_: int, pending: list[Any]) -> int:
    """Hash the leading bytes of the rest of a list; push its first other element and the remainder onto `pending`."""
    end = start
    while end < len(elements) and _is_byte(elements[end]):
        end += 1
    for position in range(start, end, 4):
        word = int.from_bytes(bytes(elements[position : min(position + 4, end)]), "big")
        hash_ = _step(word, 0, HCONST_4, hash_)
    if end == len(elements):
        return _step(2, 0, HCONST_2, hash_) if hash_ else EMPTY_LIST_AT_START
    pending += (_ListRest(elements, end + 1), elements[end])
    return hash_


def _is_byte(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def _open_map(term: dict[Any, Any] | ErlangMap, hash_: int, pending: list[Any]) -> int:
    refuse_same_key_twice(term)
    pairs = pairs_of(term)
    hash_ = _step(len(pairs), 0, HCONST_16, hash_)
    if not pairs:
        return hash_
    frame = _MapFrame(hash_)
    pending.append(_MapDone(frame))
    for key, value in pairs:
        pending += (_PairDone(frame), value, key)
    return 0


# -- exs1024

_MASK_21 = (1 << 21) - 1
_MASK_64 = (1 << 64) - 1
PRIMES = (2097131, 2097133, 2097143)
SEED_MULTIPLIER = 2685821657736338717
OUTPUT_MULTIPLIER = 1181783497276652981
WORDS = 16


def exs1024_outputs(seed: tuple[int, int, int]) -> Iterator[int]:
    """Yield the 64-bit outputs after ``rand:seed_s(exs1024, Seed)``, without end; 21 bits of each integer of the seed count."""
    words = _seed_words(seed)
    position = 0
    while True:
        s0 = words[position]
        position = position + 1 & 15
        s1 = words[position]
        s1 ^= s1 << 31 & _MASK_64
        word = s0 ^ s0 >> 30 ^ s1 ^ s1 >> 11
        words[position] = word
        yield word * OUTPUT_MULTIPLIER & _MASK_64


def exs1024_uniform(seed: tuple[int, int, int]) -> Iterator[float]:
    """Return the endless sequence of floats from 0.0 to 1.0 of ``rand:uniform_s/1``."""
    return (output / 2.0**64 for output in exs1024_outputs(seed))


def _seed_words(seed: tuple[int, int, int]) -> list[int]:
    x, y, z = (
        ((element & _MASK_21) + 1) * prime & _MASK_21 for element, prime in zip(seed, PRIMES, strict=True)
    )
    word = x << 43 | y << 22 | z << 1 | 1
    words = []
    for _ in range(WORDS):
        word ^= word >> 12
        word ^= word << 25 & _MASK_64
        word ^= word >> 27
        words.append(word * SEED_MULTIPLIER & _MASK_64)
    words.reverse()
    return words

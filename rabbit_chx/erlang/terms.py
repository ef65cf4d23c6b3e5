"""Erlang terms as Python values, and their text form.

===========================  ======================================
Python                       Erlang
===========================  ======================================
``bytes``, ``str`` (UTF-8)   binary
``int`` (any size)           integer
``float`` (finite)           float
``True``, ``False``          the atoms ``true``, ``false``
``None``                     the atom ``undefined``
:class:`Atom`                atom
``tuple``, ``list``          tuple, proper list
``dict``, :class:`ErlangMap` map
===========================  ======================================

Pids, ports, references, functions and bitstrings other than binaries never reach an exchange, so they are not supported.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rabbit_chx.errors import InputError

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
        return _float(term)
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


def _float(number: float) -> str:
    """Write a float with a digit after the point, as Erlang requires: Python's 1e-05 is 1.0e-5."""
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"

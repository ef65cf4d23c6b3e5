"""The Erlang terms that an exchange hashes as Erlang writes them, for people to read."""

from __future__ import annotations

from typing import Any

from rabbit_chx.erlang import Atom, Term

_ATOMS = {True: "true", False: "false", None: "undefined"}


def erlang_text(term: Term) -> str:
    """Return a term in Erlang's syntax, as ``{longstr,<<"a">>}``; a binary of printable text is shown as text.

    Args:
        term: bytes, int, float, bool, None, an Atom with a name that needs no quotes, or a tuple or list of
            them.
    """
    if isinstance(term, bytes):
        return _binary(term)
    if isinstance(term, (tuple, list)):
        inside = ",".join(map(erlang_text, term))
        return f"[{inside}]" if isinstance(term, list) else f"{{{inside}}}"
    return _single(term)


def _single(term: Any) -> str:  # noqa: ANN401
    if isinstance(term, float):
        return _float(term)
    if isinstance(term, Atom):
        return term.name
    return _ATOMS[term] if term is None or isinstance(term, bool) else str(term)


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
    """Write a float with a digit behind the point, as Erlang needs it: Python's 1e-05 is 1.0e-5."""
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"

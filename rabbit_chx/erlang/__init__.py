"""Erlang terms, their text form, `phash2` and `exs1024`, as in the broker."""

from rabbit_chx.erlang.hashing import phash2
from rabbit_chx.erlang.terms import Atom, ErlangMap

__all__ = [
    "Atom",
    "ErlangMap",
    "phash2",
]

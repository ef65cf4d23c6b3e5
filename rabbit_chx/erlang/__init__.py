"""Erlang terms, their text form, `phash2` and `exs1024`, as in the broker."""

from rabbit_chx.erlang.hashing import Atom, ErlangMap, phash2

__all__ = [
    "Atom",
    "ErlangMap",
    "phash2",
]

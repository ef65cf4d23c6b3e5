"""Erlang terms, their text form, `phash2` and `exs1024`, identical to those of the broker."""

from rabbit_chx.erlang.exs1024 import exs1024_outputs, exs1024_uniform
from rabbit_chx.erlang.hashing import hash_binary, phash2
from rabbit_chx.erlang.terms import Atom, ErlangMap, Term

__all__ = ["Atom", "ErlangMap", "Term", "exs1024_outputs", "exs1024_uniform", "hash_binary", "phash2"]

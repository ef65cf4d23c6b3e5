"""Atoms and maps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rabbit_chx.erlang import Atom, ErlangMap
from rabbit_chx.errors import InputError


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", 1), (b"a", 2)],
        [(None, 1), (Atom("undefined"), 2)],
        [([("x",)], 1), ([(b"x",)], 2)],
        [({"k": True}, 1), (ErlangMap([(b"k", Atom("true"))]), 2)],
    ],
)
def test_a_key_is_listed_once(pairs: list[Any]) -> None:
    with pytest.raises(InputError, match="twice"):
        ErlangMap(pairs)


@pytest.mark.parametrize("name", ["a" * 256, 7, "\udfff"])
def test_an_invalid_atom_is_refused(name: Any) -> None:
    with pytest.raises(InputError):
        Atom(name)


def test_a_pair_has_two_sides() -> None:
    with pytest.raises(InputError, match="pairs"):
        ErlangMap([(1, 2, 3)])  # type: ignore[list-item]


@pytest.mark.parametrize("value", [Atom("true"), ErlangMap([([], 1)])])
def test_terms_can_be_pickled(value: Atom | ErlangMap) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301

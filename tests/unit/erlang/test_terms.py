"""Atoms and maps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rabbit_chx.erlang import Atom, ErlangMap
from rabbit_chx.errors import InputError


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("a", 1), (b"a", 2)], "twice"),
        ([(None, 1), (Atom("undefined"), 2)], "twice"),
        ([([("x",)], 1), ([(b"x",)], 2)], "twice"),
        ([({"k": True}, 1), (ErlangMap([(b"k", Atom("true"))]), 2)], "twice"),
        ([(1, 2, 3)], "pairs"),
    ],
)
def test_what_is_no_map_is_refused(pairs: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ErlangMap(pairs)


def test_an_atom_has_at_most_255_characters_and_terms_can_be_pickled() -> None:
    wrong: tuple[Any, ...] = ("a" * 256, 7, "\udfff")
    for name in wrong:
        with pytest.raises(InputError):
            Atom(name)
    for value in (Atom("true"), ErlangMap([([], 1)])):
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301

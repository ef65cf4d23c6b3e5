"""phash2: answers, maps, and what is no term."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.erlang import Atom, ErlangMap, phash2
from rabbit_chx.errors import InputError


# Answers of OTP 25; the file of test_erlang_vectors.py has the others.
@pytest.mark.parametrize(
    ("term", "expected"),
    [(b"", 13708901), ("é", 87215157), (None, 45914356), (True, 506293), (-0.0, 20875736), ([], 113427502)],
)
def test_phash2_answers_as_the_broker(term: Any, expected: int) -> None:
    assert phash2(term) == expected


def test_a_map_has_no_order_and_may_have_keys_that_python_cannot_hash_or_tell_apart() -> None:
    assert phash2({"a": 1, "b": 2}) == phash2({"b": 2, "a": 1}) == phash2(ErlangMap([("b", 2), ("a", 1)]))
    both = ErlangMap([(1, "x"), (1.0, "y"), (True, "z"), ([1], ErlangMap([([], [])]))])
    assert phash2(both) == phash2(ErlangMap(reversed(both.pairs)))
    assert phash2([True]) == phash2([Atom("true")]) != phash2([1])


def test_deep_terms_need_no_recursion() -> None:
    deep: Any = ()
    for depth in range(50_000):
        deep = (deep,) if depth % 2 else [deep]
    assert 0 <= phash2(deep) < 2**27


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), 1j, nan, inf, bytearray(b"a"), "\ud800", [object()], {"a": 1, b"a": 2}]
)
def test_an_invalid_term_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        phash2(value)


@pytest.mark.parametrize("range_", [0, -1, 2**32 + 1, True, 1.5])
def test_a_range_out_of_range_is_refused(range_: Any) -> None:
    with pytest.raises(InputError, match="range"):
        phash2(b"a", range_)


@given(st.text(), st.integers(1, 2**32))
def test_text_is_its_bytes_and_a_range_is_a_modulus(text: str, range_: int) -> None:
    assert phash2(text) == phash2(text.encode())
    assert phash2(text, range_) == phash2(text, 2**32) % range_

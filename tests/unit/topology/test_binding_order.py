"""Downstream first, also where bindings run in a circle."""

from __future__ import annotations

import itertools

from rabbit_chx.topology.plan import downstream_first


def test_each_exchange_comes_after_those_that_it_is_bound_to() -> None:
    assert downstream_first("abc", {"a": ["b", "c"], "b": ["c"]}) == ["c", "b", "a"]


def test_exchanges_between_that_are_not_asked_for_count() -> None:
    assert downstream_first("ac", {"a": ["b"], "b": ["c"]}) == ["c", "a"]


def test_a_circle_is_cut() -> None:
    assert downstream_first("ab", {"a": ["b"], "b": ["a"]}) == ["b", "a"]
    assert downstream_first("a", {"a": ["a"]}) == ["a"]


def test_a_long_chain_is_no_recursion() -> None:
    names = [f"x{n}" for n in range(5000)]

    found = downstream_first(names, {source: [target] for source, target in itertools.pairwise(names)})

    assert found == names[::-1]

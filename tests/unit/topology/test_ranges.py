"""Ranges stand for what they say, and what is folded into ranges is what was there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import names

from rabbit_chx.topology.ranges import MAX_RANGE, RangeError, escape, expand, fold

FIELDS = ("name", "key", "arguments")
entries = st.builds(
    lambda name, key, dead, size: {"name": name, "key": key, "arguments": {"dead": dead, "size": size}},
    names,
    names,
    names,
    st.integers(0, 2) | st.booleans(),
)


def expanded_names(name: str) -> list[str]:
    return [entry["name"] for entry in expand({"name": name}, ["name"])]


@pytest.mark.parametrize(
    ("name", "stands_for"),
    [
        ("q", ["q"]),
        ("q.{1..3}", ["q.1", "q.2", "q.3"]),
        ("{9..10}.q", ["9.q", "10.q"]),
        ("q{08..10}", ["q08", "q09", "q10"]),
        ("q{1..003}", ["q001", "q002", "q003"]),
        ("q{0..1}", ["q0", "q1"]),
        ("q{7..7}", ["q7"]),
        ("{1..2}-{1..2}", ["1-1", "2-2"]),
        ("{1..2}-{01..02}", ["1-01", "2-02"]),
        ("{{1..2}}", ["{1..2}"]),
        ("{{{1..2}}}", ["{{1..2}}"]),
        ("{{1..2}", ["{1", "{2"]),
        ("{1..2}}", ["1}", "2}"]),
        ("{{1-4}}{1}{-}{1-a}", ["{1-4}{1}{-}{1-a}"]),
        ("{uuid}-{}-{a.b}", ["{uuid}-{}-{a.b}"]),
        ("{{a..b}}{1..2}", ["{a..b}1", "{a..b}2"]),
    ],
)
def test_a_range_stands_for_its_names(name: str, stands_for: list[str]) -> None:
    assert expanded_names(name) == stands_for


@pytest.mark.parametrize(
    ("entry", "field", "says"),
    [
        ({"name": "a.{1..4}", "key": "k.{1..5}"}, "key", r"name has \{1\.\.4\}"),
        ({"name": "a.{1..4}{2..5}"}, "name", "expand together"),
        ({"name": "a", "arguments": {"x": "{1..2}{3..4}"}}, "arguments.x", "expand together"),
        ({"name": "a.{1...3}"}, "name", "not a range of integers"),
        ({"name": "a.{1..}"}, "name", "not a range of integers"),
        ({"name": "a.{-1..3}"}, "name", "not a range of integers"),
        ({"name": "a.{1-4}"}, "name", r"\{1-4\} is not a range of integers; write a range as \{1"),
        ({"name": "a.{1, 4}"}, "name", "not a range of integers"),
        (
            {"name": "billing.{mad,nce}"},
            "name",
            r"\{mad,nce\} is not a range .*; write .* each name of a list by itself",
        ),
        ({"name": f"a.{{1..{MAX_RANGE + 1}}}"}, "name", f"{MAX_RANGE + 1} names"),
        ({"name": f"a.{{1..{'9' * 5000}}}"}, "name", "too large"),
    ],
)
def test_a_wrong_range_reports_where_and_why(entry: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RangeError, match=says) as caught:
        expand(entry, FIELDS)
    assert caught.value.field == field
    assert len(expanded_names(f"a.{{1..{MAX_RANGE}}}")) == MAX_RANGE


@given(names)
def test_an_escaped_text_means_itself(text: str) -> None:
    assert expanded_names(escape(text)) == [text]


@given(st.lists(entries, max_size=8))
def test_folding_keeps_every_entry_and_their_order(some: list[dict[str, Any]]) -> None:
    unfolded = [entry for run in fold(some, FIELDS) for entry in expand(run, FIELDS)]
    assert repr(unfolded) == repr(some)


@given(st.text("ab.{}", max_size=4), st.integers(0, 120), st.integers(2, 40), st.integers(0, 4))
def test_a_run_folds_into_one_entry(prefix: str, first: int, count: int, width: int) -> None:
    run = [{"name": f"{prefix}{n:0{width}d}", "key": f"{prefix}{n}"} for n in range(first, first + count)]
    written = fold(run, FIELDS)
    assert [single for entry in written for single in expand(entry, FIELDS)] == run
    if ".." not in prefix:
        assert len(written) == 1


def test_what_differs_is_not_folded() -> None:
    for first, second in (
        ({"name": "q.1", "key": "k.1"}, {"name": "q.2", "key": "k.3"}),  # one counts by one, the other by two
        ({"name": "q.1", "key": "k.5"}, {"name": "q.2", "key": "k.6"}),  # ranges of other numbers
        ({"name": "q.2"}, {"name": "q.1"}),
        ({"name": "q.1"}, {"name": "q.1"}),
        ({"name": "q.1"}, {"name": "r.2"}),
        ({"name": "q.1", "n": 1}, {"name": "q.2", "n": True}),
        ({"name": "q.1", "arguments": {"a": "x"}}, {"name": "q.2", "arguments": {"b": "x"}}),
        ({"name": "q.09"}, {"name": "q.010"}),
    ):
        assert fold([first, second], FIELDS) == [first, second]


@pytest.mark.parametrize(
    ("run", "written"),
    [
        (["{1..5}", "{2..5}"], ["{{1..5}}", "{{2..5}}"]),  # numbers inside escaped braces
        (
            ["08", "09", "10", "011", "012", "9" * 20],
            ["{08..10}", "{011..012}", "9" * 20],
        ),  # where the padding ends
        (["shard.1.1", "shard.1.2", "shard.1.3"], ["shard.1.{1..3}"]),  # the number that does not count stays
    ],
)
def test_a_run_is_folded_where_its_numbers_count(run: list[str], written: list[str]) -> None:
    assert [entry["name"] for entry in fold([{"name": name} for name in run], FIELDS)] == written

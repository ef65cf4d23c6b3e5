"""A table of arguments is a value that tells types apart."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from topologies import arguments

from rabbit_chx.errors import InputError
from rabbit_chx.topology.argument_table import ArgumentTable


@pytest.mark.parametrize(
    ("value", "other"),
    [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": 1}, {"a": 1.0}), ("1", 1), (None, "")],
)
def test_values_of_other_types_differ(value: Any, other: Any) -> None:
    assert ArgumentTable({"a": value}) != ArgumentTable({"a": other})
    assert ArgumentTable({"a": value}) == ArgumentTable({"a": value})


@given(arguments)
def test_a_table_equals_its_contents_in_any_order(given_: dict[str, Any]) -> None:
    table = ArgumentTable(given_)
    backwards = ArgumentTable(dict(reversed(given_.items())))
    assert table == backwards == given_
    assert hash(table) == hash(backwards)
    assert table.plain() == given_
    assert ArgumentTable(table.plain()) == table
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301


def test_a_table_does_not_follow_the_dict_it_was_made_of() -> None:
    inner = [1]
    source = {"a": inner}
    table = ArgumentTable(source)
    inner.append(2)
    source["b"] = inner
    assert table == {"a": [1]}
    table.plain()["a"].append(3)
    assert table == {"a": [1]}
    assert table["a"] == (1,)
    assert (list(table), len(table)) == (["a"], 1)
    assert table != 5
    assert (table == 5) is False
    assert table != {"a": object()}


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"a": datetime.now(UTC)}, "'a' is .*datetime.*use a string, a number"),
        ({"a": [{"b": b"x"}]}, "'b' is b'x'"),
        ({"a": 1 << 63}, "more than 64 bits"),
        ({"a": float("nan")}, "'a' is nan: pass a finite number"),
        ({5: "a"}, "5 is not a string"),
    ],
)
def test_an_impossible_argument_is_refused(given_: dict[Any, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ArgumentTable(given_)

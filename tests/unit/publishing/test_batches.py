"""Rows in batches: every row once, in order, with all that is its own, whatever form they come in."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import batches as module
from rabbit_chx.publishing.batches import BATCH_BYTES, RowBuilder, batches, name_columns
from rabbit_chx.publishing.encoder import Properties, Rows


@example(sizes=[BATCH_BYTES // 4] * 20, rows=20)
@example(sizes=[1] * 12, rows=6)
@example(sizes=[BATCH_BYTES + 1] * 2, rows=10)  # each goes alone
@given(sizes=st.lists(st.integers(0, 40_000), max_size=60), rows=st.integers(1, 20))
def test_every_row_is_read_once_and_in_order_for_any_sizes(sizes: list[int], rows: int) -> None:
    bodies = [b"x" * size for size in sizes]
    chunked = pa.chunked_array([bodies[:3], bodies[3:]], pa.binary())
    for values in (
        bodies,
        tuple(bodies),
        deque(bodies),
        pa.array(bodies, pa.binary()),
        chunked,
        iter(bodies),
    ):
        with pytest.MonkeyPatch.context() as patch:  # a slow machine ends a batch early
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
            found = list(batches({"keys": list(range(len(sizes))), "bodies": values}, rows))
        assert [key for keys, _ in found for key in keys] == list(range(len(sizes)))
        assert [len(body) for _, some in found for body in some] == sizes
        if sum(sizes) < BATCH_BYTES // 2:
            assert all(len(keys) == rows for keys, _ in found[:-1]), "only the last has fewer rows"
        for keys, some in found:
            assert 1 <= len(keys) <= rows
            assert len(some) == 1 or sum(map(len, some)) < BATCH_BYTES + max(sizes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bodies": ["a"]}, "pass one body for each key"),
        ({"bodies": ["a", "b", "c"]}, "pass one body for each key"),
        ({"message_id": ["a"]}, "entries of message_id: pass one for each key"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "form", [list, tuple, pa.array, lambda values: pa.chunked_array([values]), iter, deque]
)
def test_columns_of_unequal_length_are_refused(form: Any, change: dict[str, list[str]], message: str) -> None:
    columns = {"keys": ["a", "b"], "bodies": ["a", "b"], **change}
    with pytest.raises(InputError, match=message):
        list(batches({name: form(values) for name, values in columns.items()}, 10))


def test_columns_without_an_end_are_read_in_batches_and_an_early_end_is_an_error() -> None:
    coming = batches({"keys": map(str, count()), "bodies": map(str, count())}, 3)
    assert [next(coming)[0] for _ in range(2)] == [("0", "1", "2"), ("3", "4", "5")]
    coming = batches({"keys": iter("abc"), "bodies": iter("xy")}, 10)
    assert next(coming) == (("a", "b"), ("x", "y"))
    with pytest.raises(InputError, match="more keys than bodies"):
        next(coming)


async def later() -> AsyncIterator[str]:
    yield "k"


@pytest.mark.parametrize(
    "column",
    ["text", b"bytes", bytearray(b"x"), {"a": 1}, 5, None, later()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("name", ["keys", "bodies", "message_id"])
def test_a_single_value_is_not_a_column(name: str, column: object) -> None:
    columns = {"keys": ["a"], "bodies": ["b"], "message_id": ["m"], name: column}
    with pytest.raises(InputError, match=f"{name} is a single {type(column).__name__}: pass a list of them"):
        list(batches(columns, 10))


def test_columns_become_rows_with_what_the_publisher_gives_the_others() -> None:
    defaults = RowBuilder("orders", Properties({"app_id": "a"}), 2)
    given = name_columns(["k", "l", "m"], [b"b", "c", "d"], {"type": ["t", None, "v"]}, [None, "x", None])
    first, second = defaults.batches_of(given, 0)
    assert (first.keys, first.bodies, first.exchanges) == ([b"k", b"l"], [b"b", b"c"], [b"orders", b"x"])
    assert (second.keys, second.bodies, second.exchanges) == ([b"m"], [b"d"], [b"orders"])
    assert [first.properties, second.properties] == [
        defaults.properties.of_rows({"type": values}, 0) for values in (["t", None], ["v"])
    ]
    (plain,) = defaults.batches_of(name_columns(["k"], ["b"], None, None), 0)
    assert plain == Rows([b"k"], [b"b"], None, None)


def test_the_columns_of_properties_have_the_names_of_properties() -> None:
    with pytest.raises(InputError, match="no message property 'mesage_id': did you mean 'message_id'"):
        name_columns(["k"], ["b"], {"mesage_id": ["m"]}, None)


def test_a_slow_iterator_does_not_hold_back_what_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slow(values: Iterable[str]) -> Iterator[str]:
        nonlocal now
        for value in values:
            now += 0.04
            yield value

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    found = list(batches({"keys": slow("abcdefgh"), "bodies": iter("abcdefgh")}, 100))
    assert [len(keys) for keys, _ in found] == [4, 4], "0.1 s after its first row, a batch goes with the next"


def test_the_order_is_not_promised_for_messages_with_priorities() -> None:
    priorities = {"priority": [9, None]}
    with pytest.raises(InputError, match="keep_order is set, and messages have a priority"):
        name_columns(["k", "k"], ["a", "b"], priorities, None, keep_order=True)
    assert name_columns(["k", "k"], ["a", "b"], priorities, None)["priority"] == [9, None]

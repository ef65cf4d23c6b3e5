"""What a ring does with input that cannot be: one line with the remedy, and no surprise later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx import routing
from rabbit_chx.errors import InputError

HashRing: Any = routing.HashRing  # wrong input has no types
RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


def test_a_mapping_is_pairs_in_its_order() -> None:
    pairs = {"b": 2, "a": "1"}
    assert HashRing.from_bindings(pairs) == HashRing.from_bindings(pairs.items())
    assert HashRing.from_bindings(pairs).buckets == ("b", "b", "a")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HashRing.from_bindings([], release="4.3.6"), r"pass a Release, such as Release\('4.3.6'\)"),
        (lambda: HashRing.from_buckets(["a"], release="4.3.6"), "pass a Release"),
        (lambda: RING.with_release(None), "pass a Release"),
        (lambda: HashRing.from_bindings(None), r"None is not a list: pass \(destination, weight\) pairs"),
        (lambda: HashRing.from_bindings([5]), "5 is not a binding"),
        (
            lambda: HashRing.from_bindings(["a1", "b2"]),
            r"'a1' is not a binding: pass \(destination, weight\)",
        ),
        (lambda: HashRing.from_bindings([("q1", 1, 1)]), r"pass \(destination, weight\) pairs"),
        (lambda: HashRing.from_bindings(["q1", ("q2", 1)]), r"pass \(destination, weight\) pairs"),
        (lambda: HashRing.from_bindings([b"a1"]), r"b'a1' is not a binding"),
        (lambda: HashRing.from_bindings({("a", 1)}), "has no order, and a ring has one"),
        (lambda: HashRing.from_bindings([("a", 10**5000)]), "hundreds of digits"),
        (lambda: HashRing.from_buckets(5), "pass one destination for each bucket"),
        (lambda: HashRing.from_buckets("abc"), "pass one destination for each bucket"),
        (lambda: RING.share_moved("x"), "'x' is not a ring: pass a HashRing"),
    ],
)
def test_what_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_column_of_nulls_is_filled() -> None:
    (index,) = RING.indices(["nobody"]).tolist()
    for keys in (
        pa.nulls(3, pa.string()),
        pa.nulls(3),
        pa.nulls(3, pa.string()).dictionary_encode(),
        [None] * 3,
    ):
        assert RING.indices(keys, fill_null="nobody").tolist() == [index] * 3

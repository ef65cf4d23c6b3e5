"""What is left to bind of a ring that is wanted, and what is refused: values only, no broker."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology.live.declaring import find_rest_by_bindings, find_rest_by_ring, make_wanted_ring

OLD, NEW = Release("3.8.9"), Release("4.3.6")
WANTED = make_wanted_ring([("a", 1), ("b", 2), (ExchangeRef("c"), 1)], NEW)
BINDINGS = (("a", "1"), ("b", "2"), (ExchangeRef("c"), "1"))


@pytest.mark.parametrize(
    ("buckets", "left"),
    [([], 3), (["a"], 2), (["a", "b", "b"], 1), (["a", "b", "b", ExchangeRef("c")], 0)],
)
def test_a_ring_that_begins_so_gets_the_rest(buckets: list[Any], left: int) -> None:
    assert find_rest_by_ring("x", WANTED, HashRing.from_buckets(buckets, NEW)) == BINDINGS[3 - left :]


@pytest.mark.parametrize(
    ("buckets", "first"),
    [
        (["b", "b", "a", ExchangeRef("c")], 0),
        (["a", "b", "b", "c"], 3),
        (["a", "b"], 2),
        (["a", "a", "b", "b"], 1),
        (["a", None, "b", "b", ExchangeRef("c")], 1),
        (["a", "b", "b", ExchangeRef("c"), "d"], 4),
        (["a", None], 1),
    ],
    ids=["order", "kind", "less weight", "more weight", "hole", "more destinations", "hole at the end"],
)
def test_another_ring_is_refused_with_both_named(buckets: list[Any], first: int) -> None:
    with pytest.raises(MismatchError) as caught:
        find_rest_by_ring("x", WANTED, HashRing.from_buckets(buckets, NEW))

    said = str(caught.value)
    assert "has the ring <HashRing read, 4.3.6 (khepri), " in said
    assert "not <HashRing replayed, 4.3.6 (khepri), 4 buckets: a x1, b x2, exchange c x1>" in said
    assert f"bucket {first} is the first that differs: nothing was changed" in said
    assert caught.value.exchange == "x"


@pytest.mark.parametrize("size", range(4))
def test_bindings_are_compared_without_their_order(size: int) -> None:
    assert find_rest_by_bindings("x", WANTED, BINDINGS[:size][::-1]) == BINDINGS[size:]


@pytest.mark.parametrize(
    "live",
    [
        [("b", "2")],
        [("a", "2")],
        [("a", "01")],
        [("a", "1"), ("a", "2")],
        [("a", "1"), ("a", "1")],
        [*BINDINGS, ("d", "1")],
        [("a", "1"), ("b", "2"), ("c", "1")],
    ],
)
def test_other_bindings_are_refused_with_both_named(live: list[Any]) -> None:
    with pytest.raises(
        MismatchError, match=r"has the bindings .*=.*, not a=1, b=2, exchange c=1: nothing was changed"
    ):
        find_rest_by_bindings("x", WANTED, live)


def test_a_destination_has_one_weight() -> None:
    assert make_wanted_ring([("a", 1), ("a", "1")], NEW).bindings == (("a", "1"),)
    for other in (2, "01"):
        with pytest.raises(InputError, match="'a' is bound twice, with the weights 1 and"):
            make_wanted_ring([("a", 1), ("b", 1), ("a", other)], OLD)

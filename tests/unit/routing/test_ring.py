"""Rings: building, changing, asking, saving."""

from __future__ import annotations

from typing import Any

import pytest
from edge_releases import edge_releases
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.release import NEWEST_COMPARED

FIRST_WINS = Release("4.3.6")
APPENDS = Release("3.9.20")
KEYS = [f"key-{n}" for n in range(200)]

queues = st.sampled_from(["q1", "q2", "q3", "q4", "é", ExchangeRef("q1"), ExchangeRef("x")])
weights = st.one_of(st.integers(1, 12), st.sampled_from(["1", "007", "+5", "3"]))
bindings = st.lists(st.tuples(queues, weights), max_size=12)
releases = st.sampled_from(edge_releases())


def test_buckets_stand_in_bind_order() -> None:
    ring = HashRing.from_bindings([("q3", 2), ("q1", "3"), (ExchangeRef("q1"), "+1")])
    assert ring.buckets == ("q3", "q3", "q1", "q1", "q1", ExchangeRef("q1"))
    assert ring.destinations == ("q3", "q1", ExchangeRef("q1"))
    assert ring.bindings == (("q3", "2"), ("q1", "3"), (ExchangeRef("q1"), "+1"))
    assert (ring.release, ring.provenance) == (NEWEST_COMPARED, "replayed")


def test_a_ring_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(InputError, match="divide all weights"):
        HashRing.from_bindings([("q", 10**12)], Release("4.0.5"))


# ---- answers


def test_holes_and_the_count_of_buckets_that_exist() -> None:
    ring = HashRing.from_buckets(["a", None, "b", "c"])
    three = HashRing.from_buckets(["a", "hole", "b"])
    expected = [three.destination_for(key) for key in KEYS]
    assert [ring.destination_for(key) for key in KEYS] == [None if d == "hole" else d for d in expected]
    assert ring.shares() == {
        "a": three.shares()["a"],
        "b": three.shares()["b"],
        "c": 0.0,
        None: three.shares()["hole"],
    }


@pytest.mark.parametrize("ring", [HashRing.from_buckets([]), HashRing.from_buckets([None, None])])
def test_an_empty_ring_has_no_answers(ring: HashRing) -> None:
    with pytest.raises(EmptyRingError, match="no buckets"):
        ring.destination_for("k")
    with pytest.raises(EmptyRingError):
        ring.destination_for_term(5)
    assert ring.shares() == {}
    assert ring.share_moved(HashRing.from_buckets(["a"])) == 1.0
    assert ring.share_moved(HashRing.from_buckets([])) == 0.0


# ---- values


def test_equality_is_by_buckets_and_release() -> None:
    read, replayed = HashRing.from_buckets(["a", "b"]), HashRing.from_bindings([("a", 1), ("b", 1)])
    assert read == replayed
    assert hash(read) == hash(replayed)
    assert read != HashRing.from_buckets(["a", "b"], APPENDS)
    assert read != HashRing.from_buckets(["b", "a"])
    assert read != HashRing.from_buckets(["a", ExchangeRef("b")])
    assert read != ("a", "b")


def test_a_ring_shows_itself_briefly() -> None:
    ring = HashRing.from_buckets([f"q{n}" for n in range(1000)])
    assert len(repr(ring)) < 200
    assert repr(HashRing.from_buckets(["a", "a", None, ExchangeRef("x")])) == (
        "<HashRing read, 4.3.6 (khepri), 4 buckets: a x2, None x1, exchange x x1>"
    )
    assert repr(HashRing.from_buckets(["a"])) == "<HashRing read, 4.3.6 (khepri), 1 bucket: a x1>"


# ---- laws


@settings(deadline=None)
@given(bindings, queues, st.integers(1, 5))
def test_a_new_destination_takes_keys_and_gives_none(pairs: list[Any], name: Any, weight: int) -> None:
    before = HashRing.from_bindings(pairs).unbind(name, missing_ok=True)
    after = before.bind(name, weight)
    for key in KEYS if before.buckets else ():
        assert after.destination_for(key) in (before.destination_for(key), name)


@given(bindings, queues)
def test_unbinding_where_the_first_binding_wins_is_as_if_it_had_never_been(
    pairs: list[Any],
    name: Any,
) -> None:
    ring = HashRing.from_bindings(pairs, FIRST_WINS)
    never = HashRing.from_bindings([pair for pair in pairs if pair[0] != name], FIRST_WINS)
    left = ring.unbind(name, missing_ok=True)
    assert (left, left.bindings) == (never, never.bindings)


@given(bindings, releases, queues)
def test_bind_one_by_one_is_from_bindings(pairs: list[Any], release: Release, name: Any) -> None:
    ring = HashRing.from_bindings([], release)
    for pair in pairs:
        ring = ring.bind(*pair)
    assert ring == HashRing.from_bindings(pairs, release)
    assert name not in ring.unbind(name, missing_ok=True).destinations

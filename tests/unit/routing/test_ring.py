"""Rings: building, changing, asking, saving."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from edge_releases import edge_releases
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, OrderKnowledge, Release
from rabbit_chx.routing.bindings import PROVENANCES
from rabbit_chx.routing.release import NEWEST_COMPARED

FIRST_WINS = Release("4.3.6")
APPENDS = Release("3.10.5")
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


@pytest.mark.parametrize("ring", [HashRing.from_buckets([]), HashRing.from_buckets([None, None])])
def test_an_empty_ring_has_no_answers(ring: HashRing) -> None:
    with pytest.raises(EmptyRingError, match="no buckets"):
        ring.destination_for("k")
    for ask in (lambda: ring.destination_for_term(5), lambda: ring.indices(["a"])):
        with pytest.raises(EmptyRingError):
            ask()
    assert ring.shares() == {}
    assert ring.share_moved(HashRing.from_buckets(["a"])) == 1.0
    assert ring.share_moved(HashRing.from_buckets([])) == 0.0


def test_equality_is_by_buckets_and_release() -> None:
    read, replayed = HashRing.from_buckets(["a", "b"]), HashRing.from_bindings([("a", 1), ("b", 1)])
    assert read == replayed
    assert hash(read) == hash(replayed)
    assert read != HashRing.from_buckets(["a", "b"], APPENDS)
    assert read != HashRing.from_buckets(["b", "a"])
    assert read != HashRing.from_buckets(["a", ExchangeRef("b")])
    others: list[object] = [("a", "b"), ModulusHashExchange("x", [("a", 1), ("b", 1)])]
    assert read not in others


def test_a_ring_shows_itself_briefly() -> None:
    ring = HashRing.from_buckets([f"q{n}" for n in range(1000)])
    assert len(repr(ring)) < 200
    assert repr(HashRing.from_buckets(["a", "a", None, ExchangeRef("x")])) == (
        "<HashRing read, 4.3.6 (khepri), 4 buckets: a x2, None x1, exchange x x1>"
    )
    assert repr(HashRing.from_buckets(["a"])) == "<HashRing read, 4.3.6 (khepri), 1 bucket: a x1>"


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


grounds = st.one_of(
    st.builds(OrderKnowledge, st.sampled_from(PROVENANCES)),
    st.builds(OrderKnowledge, st.none(), st.text(max_size=9)),
)


def test_json_has_the_documented_shape() -> None:
    ring = HashRing.from_buckets(["q1", ExchangeRef("slot-7"), None], Release("4.0.5"))
    assert json.loads(ring.to_json()) == {
        "format": "rabbit-chx/ring",
        "format_version": 1,
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "read",
        "condition": None,
        "buckets": ["q1", {"exchange": "slot-7"}, None],
        "bindings": None,
    }
    guess = replace(ring, order=OrderKnowledge(None, "two orders fit"))
    whole = json.loads(guess.to_json())
    assert (whole["provenance"], whole["doubt"]) == (None, "two orders fit")
    assert guess.summary()["doubt"] == "two orders fit"


@settings(deadline=None)
@given(bindings, releases, grounds)
def test_json_and_pickle_keep_a_ring_whole(pairs: list[Any], release: Release, order: OrderKnowledge) -> None:
    if order.is_known:
        ring = replace(HashRing.from_bindings(pairs, release), order=order)
    else:
        ring = HashRing.unordered(pairs, release, order.doubt)
    written = HashRing.from_json(ring.to_json())
    pickled = pickle.loads(pickle.dumps(ring))  # noqa: S301
    assert sorted(map(str, written.bindings or ())) == sorted(map(str, ring.bindings or ()))
    # An order that is not known is not written.
    for copy in (written, pickled) if order.is_known else (pickled,):
        assert copy == ring
        assert copy.bindings == ring.bindings
    for copy in (written, pickled):
        assert copy.order == ring.order
        assert copy.release == ring.release
        assert copy.release.store_known == ring.release.store_known


def test_a_ring_of_unknown_order_does_not_show_the_order_in_which_its_bindings_are_listed() -> None:
    listed: list[tuple[Any, int]] = [("b", 2), ("a", 1), (ExchangeRef("a"), 1), ("c", 3)]
    rings = [HashRing.unordered(order) for order in permutations(listed)]
    assert all(ring == rings[0] and ring.bindings == rings[0].bindings for ring in rings)
    assert rings[0].bind("0").buckets[-1] == "0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a ring"),
        ({"format_version": 2}, "format version 2"),
        ({"provenance": "heard"}, "heard"),
        ({"doubt": "two orders fit"}, "is replayed and has a doubt"),
        ({"doubt": 5}, "pass text"),
        ({"buckets": "abc"}, "not a list"),
        ({"buckets": [5]}, "not a destination"),
        ({"buckets": [{"queue": "q"}]}, "damaged"),
        ({"release": "4.3.6"}, "damaged"),
        ({"release": {"version": "4.3.6", "store": "mnesia", "store_known": True}}, "cannot have"),
        ({"bindings": [["q"]]}, "damaged"),
        ({"bindings": [["q", 5]]}, "text"),
        ({"bindings": [["q", "0"]]}, "at least 1"),
    ],
)
def test_json_that_is_not_a_ring_is_refused(change: dict[str, Any], message: str) -> None:
    whole = json.loads(HashRing.from_bindings([("q", 1)]).to_json())
    with pytest.raises(InputError, match=message):
        HashRing.from_json(json.dumps(whole | change))
    del whole[next(iter(change.keys() - {"doubt"}), "format")]
    with pytest.raises(InputError):
        HashRing.from_json(json.dumps(whole))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", b"\xff", None, "[" * 100_000], ids=lambda text: repr(text)[:9]
)
def test_text_that_is_not_a_ring_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match=r"this (JSON )?is not a ring"):
        HashRing.from_json(text)


# ---- the end of a ring: old releases leave holes there, which not every reading tells


OLD = Release("3.10.5")


#: After bind a 1, b 1, c 1, b 2, unbind b 1, unbind c 1: {0: a}, and 2 as the number of the next bucket.
REPLAYED = HashRing.from_bindings([("a", 1), ("b", 1), ("c", 1), ("b", 2)], OLD).unbind("b", 1).unbind("c")
READ = HashRing.from_buckets(["a"], OLD, next_bucket=2)
READ_IN_PART = HashRing.from_buckets(["a"], OLD)


def test_holes_at_the_end_count_for_the_next_bucket() -> None:
    assert READ == REPLAYED
    after = READ.bind("c", 2)
    assert after == REPLAYED.bind("c", 2)
    assert after.buckets == ("a", None, "c", "c")
    assert after.provenance == "replayed"


def test_a_bind_is_assumed_where_holes_at_the_end_may_be_missing() -> None:
    after = READ_IN_PART.bind("c", 2)
    assert (after.buckets, after.provenance) == (("a", "c", "c"), None)
    assert READ_IN_PART.unbind("a", 1).provenance == "replayed"  # its answers need no end
    assert READ_IN_PART.unbind("a", 1).bind("c", 2).provenance is None
    assert READ_IN_PART.delete_exchange().bind("c", 2).provenance == "replayed"
    without_holes = HashRing.from_buckets(["a"], FIRST_WINS).bind("c", 2)
    assert (without_holes.provenance, without_holes.bindings) == ("replayed", None)


@pytest.mark.parametrize("ring", [REPLAYED, READ, READ_IN_PART, READ_IN_PART.unbind("a", 1)])
def test_json_and_pickle_keep_what_is_known_of_the_end(ring: HashRing) -> None:
    for copy in (HashRing.from_json(ring.to_json()), pickle.loads(pickle.dumps(ring))):  # noqa: S301
        assert (copy, copy.provenance, copy.end_known) == (ring, ring.provenance, ring.end_known)
        assert copy.bind("c", 2).provenance == ring.bind("c", 2).provenance


def test_json_has_the_number_of_the_next_bucket_where_it_was_read() -> None:
    assert json.loads(READ.to_json())["next_bucket"] == 2
    assert "next_bucket" not in json.loads(READ_IN_PART.to_json())
    assert "next_bucket" not in json.loads(REPLAYED.to_json())


@pytest.mark.parametrize("number", [0, 1, 3, "2", True])
def test_json_that_contradicts_itself_is_refused(number: object) -> None:
    with pytest.raises(InputError, match="the ring has 2 buckets, and its next bucket is"):
        HashRing.from_json(json.dumps(json.loads(READ.to_json()) | {"next_bucket": number}))


@pytest.mark.parametrize("number", [0, -1, 10_000_001])
def test_a_next_bucket_that_cannot_be_is_refused(number: Any) -> None:
    with pytest.raises(InputError, match="the next bucket of a ring of 1 buckets is"):
        HashRing.from_buckets(["a"], OLD, next_bucket=number)

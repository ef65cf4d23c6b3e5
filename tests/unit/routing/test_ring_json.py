"""Rings as JSON text."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from edge_releases import edge_releases
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, Ground, HashRing, Release
from rabbit_chx.routing.ground import PROVENANCES

queues = st.sampled_from(["q1", "q2", "q3", "q4", "é", ExchangeRef("q1"), ExchangeRef("x")])


weights = st.one_of(st.integers(1, 12), st.sampled_from(["1", "007", "+5", "3"]))


bindings = st.lists(st.tuples(queues, weights), max_size=12)


releases = st.sampled_from(edge_releases())

grounds = st.one_of(
    st.builds(Ground, st.sampled_from(PROVENANCES)),
    st.builds(Ground, st.just("assumed"), st.text(max_size=9)),
)


def test_json_has_the_documented_shape() -> None:
    ring = HashRing.from_buckets(["q1", ExchangeRef("slot-7"), None], Release("4.0.5"))
    assert json.loads(ring.to_json()) == {
        "format": "rabbit-chx/ring",
        "format_version": 1,
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "read",
        "buckets": ["q1", {"exchange": "slot-7"}, None],
        "bindings": None,
    }
    guess = replace(ring, ground=Ground("assumed", "two orders fit"))
    whole = json.loads(guess.to_json())
    assert (whole["provenance"], whole["doubt"]) == ("assumed", "two orders fit")
    assert guess.summary()["doubt"] == "two orders fit"


@settings(deadline=None)
@given(bindings, releases, grounds)
def test_json_and_pickle_keep_a_ring_whole(pairs: list[Any], release: Release, ground: Ground) -> None:
    ring = replace(HashRing.from_bindings(pairs, release), ground=ground)
    for copy in (HashRing.from_json(ring.to_json()), pickle.loads(pickle.dumps(ring))):  # noqa: S301
        assert copy == ring
        assert (copy.bindings, copy.ground) == (ring.bindings, ring.ground)
        assert copy.release.store_known == ring.release.store_known


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


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff"])
def test_text_that_is_not_a_ring_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match="not a ring"):
        HashRing.from_json(text)

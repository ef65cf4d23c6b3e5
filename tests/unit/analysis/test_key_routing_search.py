"""Keys that land on a wanted destination."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.analysis import keys_for
from rabbit_chx.analysis.key_routing import Hashing, NoKeyFoundError
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, Release

RING = HashRing.from_bindings([("q1", 1), ("q2", 10), (ExchangeRef("slot"), 3)])


@settings(max_examples=40, deadline=None)
@given(destination=st.sampled_from(RING.destinations), count=st.integers(1, 30), start=st.integers(0, 10**9))
def test_the_keys_found_land_there_and_none_is_left_out(
    destination: str | ExchangeRef, count: int, start: int
) -> None:
    found = list(islice(keys_for(RING, destination, "k{n}-x", start=start), count))
    last = int(found[-1].removeprefix("k").removesuffix("-x"))
    candidates = [f"k{n}-x" for n in range(start, last + 1)]
    assert found == [key for key in candidates if RING.destination_for(key) == destination]


def test_the_search_goes_on_over_batches() -> None:
    found = list(islice(keys_for(RING, "q1"), 5000))
    assert len(set(found)) == 5000
    assert {RING.destination_for(key) for key in found} == {"q1"}


def test_the_search_is_bounded() -> None:
    rare = HashRing.from_bindings([("common", 1000), ("rare", 1)])
    with pytest.raises(NoKeyFoundError, match=r"20 keys in a row, up to 'canary-19', do not land on rare"):
        next(keys_for(rare, "rare", tries=20))


def test_a_destination_that_no_key_reaches_is_reported_at_once() -> None:
    ring = HashRing.from_buckets([None, None, None, "q3", "q3"], Release("3.10.5"))
    with pytest.raises(NoKeyFoundError, match="no key lands on q3: its exact share is 0") as caught:
        keys_for(ring, "q3", tries=1_000_000_000)
    assert "first 2 alone" in str(caught.value)
    assert ring.shares()["q3"] == 0


def test_misses_are_counted_again_after_each_find() -> None:
    gaps = [0, *(int(key.removeprefix("canary-")) + 1 for key in islice(keys_for(RING, "q1"), 50))]
    longest = max(later - earlier for earlier, later in pairwise(gaps))
    assert len(list(islice(keys_for(RING, "q1", tries=longest), 50))) == 50
    with pytest.raises(NoKeyFoundError):
        list(islice(keys_for(RING, "q1", tries=longest - 1), 50))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"destination": "q9"}, "q9 has no bucket in the ring; the ring has q1, q2, exchange slot"),
        ({"destination": "slot"}, "slot has no bucket"),
        ({"pattern": "canary"}, "makes one key only"),
        ({"pattern": None}, "the pattern is None"),
        ({"pattern": "\ud800{n}"}, "half of a surrogate pair"),
        ({"pattern": "é" * 127 + "{n}"}, "more than 255 bytes"),
        ({"tries": 0}, "1 or more"),
        ({"tries": 1.5}, "tries is 1.5"),
        ({"start": -1}, "0 or more"),
        ({"start": "a"}, "start is 'a'"),
        ({"ring": None}, "None is not a ring"),
    ],
)
def test_what_cannot_be_searched(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        next(keys_for(**{"ring": RING, "destination": "q1", **given}))


def test_a_header_may_be_longer_than_a_routing_key() -> None:
    ring = RING.with_release(Release("4.3.6"))
    key = next(keys_for(ring, "q1", "é" * 300 + "{n}", hashing=Hashing(hash_header="h")))
    exchange = ConsistentHashExchange("x", ring, {"hash-header": "h"})
    assert exchange.route(headers={"h": key}) == "q1"

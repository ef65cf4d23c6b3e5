"""Names and counts of many keys: what indices are mostly wanted for, without their -1."""

from __future__ import annotations

from array import array
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from rabbit_chx.errors import EmptyRingError, RowError
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, Release
from rabbit_chx.routing.arrays import seeds
from rabbit_chx.routing.jump import SEEDS

KEYS = [f"k{n}" for n in range(40_000)]  # more than one chunk
RING = HashRing.from_buckets(["q1", None, ExchangeRef("q1"), "q1", "q2"])
#: Most keys fall into a hole.
HOLES = HashRing.from_buckets([None, None, None, "q3"], Release("3.10.5"))


@pytest.mark.parametrize("ring", [RING, HOLES])
def test_names_and_counts_are_those_of_single_keys(ring: HashRing) -> None:
    single = [ring.destination_for(key) for key in KEYS]
    assert None in single
    names = ring.destinations_for(KEYS)
    assert names.dtype == np.object_
    assert names.tolist() == single
    counts = ring.counts(pa.array(KEYS))
    assert list(counts) == [*ring.destinations, None]
    assert counts == dict.fromkeys(ring.destinations, 0) | Counter(single)


def test_destinations_without_keys_count_and_holes_without_keys_do_not() -> None:
    assert HashRing.from_bindings([("a", 1), ("b", 1)]).counts([]) == {"a": 0, "b": 0}
    assert HashRing.from_buckets(["a", None]).counts(["x", "y"]) == {"a": 2}


def test_nulls_and_an_empty_ring_are_as_in_indices() -> None:
    assert sum(RING.counts(["a", None], fill_null="b").values()) == 2
    assert RING.destinations_for([None], fill_null="b").tolist() == [RING.destination_for("b")]
    with pytest.raises(RowError, match="position 1"):
        RING.counts(["a", None])
    with pytest.raises(EmptyRingError):
        HashRing.from_bindings([]).destinations_for([])
    with pytest.raises(EmptyRingError):
        HashRing.from_bindings([]).counts([])


def test_an_exchange_answers_by_what_it_hashes() -> None:
    x = ConsistentHashExchange("x", RING, {"hash-header": "h"})
    expected = [x.route(headers={"h": n}) for n in range(100)]

    assert x.destinations_for(range(100)).tolist() == expected
    assert Counter(x.counts(np.arange(100))) == Counter(expected)
    missing = x.route()
    assert x.destinations_for([None], missing_nulls=True).tolist() == [missing]
    counts = x.counts([5, None], fill_null=5, client="aio-pika", field_type="long")
    assert counts[x.route(headers={"h": 5})] == sum(counts.values()) == 2


@pytest.mark.parametrize("cores", [2, 3])
def test_many_keys_on_several_cores_go_where_they_go_on_one(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(7)])
    texts: list[str | None] = [f"key-{n}" for n in range(101)]
    keys = pa.chunked_array([texts[:40], texts[40:]])
    one = ring.indices(texts)
    monkeypatch.setattr(seeds, "THREADED_KEYS", 64)
    monkeypatch.setattr(seeds, "_cores", lambda: cores)
    started: list[int] = []

    def pool(count: int) -> ThreadPoolExecutor:
        started.append(count)
        return ThreadPoolExecutor(count)

    monkeypatch.setattr(seeds, "ThreadPoolExecutor", pool)

    assert ring.indices(keys).tolist() == one.tolist()
    assert ring.indices(pa.array(texts)).tolist() == one.tolist()
    assert started == [cores] * 2
    texts[90] = None
    with pytest.raises(RowError, match="the value at position 90 is null"):
        ring.indices(pa.array(texts))
    assert ring.indices(pa.array(texts[:63])).tolist() == one[:63].tolist()
    assert len(started) == 3


@pytest.mark.parametrize("few", [pytest.param(0, marks=pytest.mark.extended), 1_000])
def test_shares_of_many_rings_are_counted_from_the_stays(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(seeds, "_FEW_COUNTS", few)
    seeds._seeds_by_bucket.cache_clear()
    for count in (1, 2, 3, 64, 65, 1_000, 1_025):
        names = [f"q{number}" for number in range(count)]
        reached = seeds.indices_of_all_seeds(array("i", range(count)))
        assert HashRing.from_buckets(names).shares() == {
            name: number / SEEDS for name, number in zip(names, np.bincount(reached), strict=True)
        }
    seeds._seeds_by_bucket.cache_clear()


def test_all_keys_of_an_arrow_array_are_hashed_whatever_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "THREADED_KEYS", 2)
    monkeypatch.setattr(seeds, "_cores", lambda: 4)
    for count in range(2, 30):
        found = RING.indices(pa.array(KEYS[:count]))
        assert found.tolist() == RING.indices(KEYS[:count]).tolist()

"""The ring inferred from observations, and observations held against a ring."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rabbit_chx.analysis.traffic import MORE_BUCKETS, Observation, Reach, compare_traffic, infer_ring
from rabbit_chx.errors import RingSourceError
from rabbit_chx.routing import NEWEST, Destination, ExchangeRef, HashRing, bucket_of_seed

SLOT, OTHER, MORE = ExchangeRef("slot"), ExchangeRef("other"), ExchangeRef("more")
#: `slot` leads to q8 alone, `other` to q9, and over `more` to q8.
BINDINGS: list[tuple[str, Destination]] = [
    ("slot", "q8"), ("other", "q9"), ("other", MORE), ("more", "q8"), ("more", OTHER),
]  # fmt: skip
#: What was walked once is remembered, so a first run takes longer than the next.
WALKS = settings(deadline=None)
PLACES = st.sampled_from(["q1", "q2", "q3", None])


def observed(buckets: Sequence[Destination | None], seeds: Sequence[int]) -> list[Observation]:
    """What a broker with these buckets makes of the seeds, where all destinations are queues or `slot`."""
    ways: dict[Destination | None, frozenset[str]] = {None: frozenset(), SLOT: frozenset({"q8"})}
    places = [buckets[bucket_of_seed(seed, len(buckets))] for seed in seeds]
    return [
        Observation(str(seed), seed, ways.get(place, frozenset({str(place)})))
        for seed, place in zip(seeds, places, strict=True)
    ]


def reach_of(buckets: Sequence[Destination | None], alternate: str | None = None) -> Reach:
    return Reach(
        [place for place in buckets if place is not None], BINDINGS, alternate, fanouts=["slot", "more"]
    )


@WALKS
@given(
    st.lists(st.sampled_from(["q1", "q2", "q3", None, SLOT]), min_size=1, max_size=30),
    st.lists(st.integers(0, (1 << 21) - 1), max_size=200),
)
def test_what_is_proven_is_true_and_what_was_not_seen_is_unknown(
    buckets: list[Destination | None], seeds: list[int]
) -> None:
    found = infer_ring(observed(buckets, seeds), len(buckets), reach_of(buckets))
    hit = {bucket_of_seed(seed, len(buckets)) for seed in seeds}
    assert found.contradicted == ()
    assert found.proven == {bucket: buckets[bucket] for bucket in hit}
    assert set(found.unknown) == set(range(len(buckets))) - hit
    if found.complete:
        ring = found.ring(NEWEST)
        assert (ring.buckets, ring.provenance) == (tuple(buckets), "read")
    else:
        with pytest.raises(RingSourceError, match=f"proves {len(hit)} of {len(buckets)} buckets"):
            found.ring(NEWEST)


@WALKS
@given(
    st.lists(st.sampled_from(["q1", "q2", "q3", SLOT]), min_size=2, max_size=30),
    st.lists(st.integers(0, (1 << 21) - 1), min_size=1, max_size=100),
)
def test_a_broker_that_routes_by_the_ring_is_right_and_one_that_does_not_is_wrong(
    buckets: list[Destination], seeds: list[int]
) -> None:
    observations, reach = observed(buckets, seeds), reach_of(buckets)
    assert compare_traffic(observations, HashRing.from_buckets(buckets), reach) == []
    turned = buckets[1:] + buckets[:1]
    wrong = compare_traffic(observations, HashRing.from_buckets(turned), reach)
    places = {seed: bucket_of_seed(seed, len(buckets)) for seed in seeds}
    assert [misrouted.observation.seed for misrouted in wrong] == [
        seed for seed in seeds if buckets[places[seed]] != turned[places[seed]]
    ]
    assert all(misrouted.predicted == turned[places[misrouted.observation.seed or 0]] for misrouted in wrong)


@settings(WALKS, max_examples=30)
@given(st.integers(1, 20), st.data())
def test_buckets_of_what_is_long_gone_are_counted(gone: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 1 << 20))
    buckets = ["q1"] * 7 + ["q2"] * 5 + [None] * gone + ["q3"] * 4
    observations = observed(buckets, range(start, start + 2000))
    found = infer_ring(observations, 16, reach_of(["q1", "q2", "q3"]))
    assert found.counts[0] == len(buckets)
    assert found.proven == dict(enumerate(buckets))


@pytest.mark.parametrize(("gone", "counts"), [(MORE_BUCKETS, (MORE_BUCKETS + 2,)), (MORE_BUCKETS + 1, ())])
def test_so_many_buckets_more_are_tried_and_no_more(gone: int, counts: tuple[int, ...]) -> None:
    buckets = ["q1"] + ["gone"] * gone + ["q2"]
    found = infer_ring(observed(buckets, range(20_000)), 2, reach_of(["q1", "q2", "gone"]))
    assert found.counts == counts
    assert (found.proven == dict(enumerate(buckets))) == bool(counts)


def test_a_ring_that_changed_meanwhile_is_a_contradiction() -> None:
    seeds = range(500)
    observations = observed(["q1", "q2", "q3"], seeds) + observed(["q2", "q3", "q1"], seeds)
    found = infer_ring(observations, 3, reach_of(["q1", "q2", "q3"]))
    assert (found.counts, found.contradicted) == ((), (0, 1, 2))
    with pytest.raises(RingSourceError, match="3 contradicted"):
        found.ring(NEWEST)


@given(st.sets(st.sampled_from(["q8", "q9"])))
def test_behind_an_exchange_any_of_its_queues_may_get_the_message(queues: set[str]) -> None:
    reach = reach_of(["q1", SLOT, OTHER])
    assert reach.explains(OTHER, frozenset(queues))
    assert reach.explains(SLOT, frozenset(queues)) == (queues == {"q8"})  # a fanout gives to all
    assert not reach.explains("q1", frozenset(queues))


def test_several_destinations_that_lead_to_one_queue_are_not_told_apart() -> None:
    reach = reach_of(["q8", SLOT])
    found = infer_ring([Observation("k", 0, frozenset({"q8"}))], 1, reach)
    assert found.candidates == (frozenset({"q8", SLOT}),)
    assert (found.proven, found.unknown) == ({}, (0,))


def test_an_alternate_exchange_takes_what_falls_into_a_hole() -> None:
    assert not reach_of(["q1"]).explains(None, frozenset({"q9"}))
    reach = reach_of(["q1"], alternate="other")
    assert reach.places(frozenset({"q9"})) == {None}
    assert reach.explains(None, frozenset())
    assert reach.places(frozenset({"q1"})) == {"q1"}


def test_a_queue_that_no_binding_names_is_a_destination_of_its_own() -> None:
    found = infer_ring([Observation("k", 0, frozenset({"unlisted"}))], 1, reach_of(["q1"]))
    assert found.proven == {0: "unlisted"}
    assert reach_of(["q1"]).places(frozenset({"x", "y"})) == frozenset()


@given(st.lists(PLACES, min_size=1, max_size=5))
def test_a_message_that_the_mirror_would_see_refused_is_wrong_wherever_it_is(
    buckets: list[Destination | None],
) -> None:
    assume(any(buckets))
    observation = Observation("k", None, frozenset({"q1"}))
    reach = reach_of(buckets)
    assert [
        wrong.observation for wrong in compare_traffic([observation], HashRing.from_buckets(buckets), reach)
    ] == [observation]
    assert infer_ring([observation], len(buckets), reach).proven == {}


def test_an_empty_ring_routes_nothing() -> None:
    reach = Reach([])
    unroutable, routed = Observation("k", 1, frozenset()), Observation("l", 1, frozenset({"q"}))
    wrong = compare_traffic([unroutable, routed], HashRing.from_buckets([]), reach)
    assert [misrouted.observation for misrouted in wrong] == [routed]

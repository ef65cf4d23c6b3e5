"""The figures of rings are what `HashRing.share_moved` counts; and the best way from one ring to another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing, Place
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.ring_figures import RingFigures, best_walk
from rabbit_chx.topology.ring_steps import ring_walks

_BUCKETS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=12)


@settings(max_examples=25, deadline=None)
@given(_BUCKETS, st.lists(_BUCKETS, min_size=1, max_size=4), st.booleans())
def test_a_figure_is_share_moved(before: list[Place], others: list[list[Place]], prepared: bool) -> None:  # noqa: FBT001
    ring = HashRing.from_buckets(before)
    figures = RingFigures(ring)
    if prepared:
        figures.prepare(others)

    for other in others:
        after = HashRing.from_buckets(other)
        moved, lost = figures.moved_and_lost(after.buckets)
        assert moved == ring.share_moved(after) == figures.moved(after.buckets)
        assert lost == (after.shares().get(None, 0.0) if after.bucket_count else 1.0)


@pytest.mark.all_seeds
@pytest.mark.parametrize("counts", [(900, 1000, 1100), (500, 700), (1500, 3000), (1,)])
def test_large_rings_are_counted_alike(counts: tuple[int, ...]) -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(1000)])
    others = [
        HashRing.from_buckets([f"q{n * 7 % 1003}" if n % 3 else f"q{n}" for n in range(count)])
        for count in counts
    ]
    figures = RingFigures(before)
    figures.prepare([other.buckets for other in others])

    assert [figures.moved(other.buckets) for other in others] == [
        before.share_moved(other) for other in others
    ]


def test_what_has_one_name_is_one_place() -> None:
    before, after = HashRing.from_buckets(["s1", "s2", "s3"]), HashRing.from_buckets(["s1", "s2", "s3", "s4"])
    names: dict[Place, Place] = {"s1": "q1", "s2": "q2", "s3": "q1"}
    names_after: dict[Place, Place] = {"s1": "q1", "s2": "q1", "s3": "q2", "s4": "q3"}

    figures = RingFigures(before, names, names_after)

    expected = HashRing.from_buckets(["q1", "q2", "q1"]).share_moved(
        HashRing.from_buckets(["q1", "q1", "q2", "q3"])
    )
    assert figures.moved(after.buckets) == expected


def _best(there: str, wanted: str) -> tuple[list[str], tuple[float, float, float]]:
    live = HashRing.from_buckets([*there])
    best = best_walk(live, [*map(RingMember, there)], [*map(RingMember, wanted)], (), RingFigures(live))
    assert best is not None
    walk, figures = best
    return [f"{step.action} {step.member.destination}" for step in walk.steps], figures


def test_a_ring_is_not_emptied_where_that_can_be_avoided() -> None:
    assert _best("a", "b") == (["bind b", "unbind a"], (1.0, 1.0, 0.0))


def test_the_only_member_cannot_be_bound_again_without_a_gap() -> None:
    live = HashRing.from_buckets(["a"])
    best = best_walk(live, [RingMember("a")], [RingMember("a", "2")], (), RingFigures(live))

    assert best is not None
    assert best[1] == (0.0, 1.0, 1.0)


def test_of_several_ways_the_one_that_moves_least_is_taken() -> None:
    there, wanted = [*map(RingMember, "abcd")], [*map(RingMember, "axyd")]
    live = HashRing.from_buckets([*"abcd"])
    figures = RingFigures(live)

    best = best_walk(live, there, wanted, (), figures)

    assert best is not None
    walks = ring_walks(live, there, wanted)
    assert len(walks) == 3
    assert best[1][1] == min(figures.of_walk(walk).moved_at_worst for walk in walks)


def test_the_worst_moment_is_the_one_that_moves_most() -> None:
    live = HashRing.from_buckets([*"abcdefghij"])
    figures = RingFigures(live)
    there = [*map(RingMember, "abcdefghij")]

    for wanted in ("abc", "abcdefghijklmn", "cab", "jihgfedcba", "klm", "abcxyz"):
        for walk in ring_walks(live, there, [*map(RingMember, wanted)]):
            moved = [live.share_moved(HashRing(*ring)) for ring in walk.rings]
            assert figures.of_walk(walk)[:2] == (moved[-1], max(moved))

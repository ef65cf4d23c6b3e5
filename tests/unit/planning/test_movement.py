"""The figures of rings are what `HashRing.share_moved` counts; and the best way from one ring to another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.planning.ring_plan import Moment, MovementCounter, bucket_count, find_best_steps
from rabbit_chx.records.live_rings import LiveRing
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import RingMember

_BUCKETS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=12)


@settings(max_examples=25, deadline=None)
@given(_BUCKETS, st.lists(_BUCKETS, min_size=1, max_size=4), st.booleans())
def test_a_figure_is_share_moved(before: list[Place], others: list[list[Place]], prepared: bool) -> None:  # noqa: FBT001
    ring = HashRing.from_buckets(before)
    figures = MovementCounter(ring.buckets)
    if prepared:
        figures.prepare(map(bucket_count, others))

    for other in others:
        after = HashRing.from_buckets(other)
        moved, lost = figures.count(figures.number_destinations(after.buckets))
        assert moved == ring.share_moved(after)
        assert lost == (after.shares().get(None, 0.0) if after.bucket_count else 1.0)


@pytest.mark.extended
@pytest.mark.all_seeds
@pytest.mark.parametrize("counts", [(900, 1000, 1100), (1, 1500)])
def test_large_rings_are_counted_alike(counts: tuple[int, ...]) -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(1000)])
    others = [
        HashRing.from_buckets([f"q{n * 7 % 1003}" if n % 3 else f"q{n}" for n in range(count)])
        for count in counts
    ]
    figures = MovementCounter(before.buckets)
    figures.prepare([other.bucket_count for other in others])

    assert [figures.count(figures.number_destinations(other.buckets)).moved for other in others] == [
        before.share_moved(other) for other in others
    ]


@pytest.mark.parametrize("release", ["3.10.5", "3.10.6", "4.3.6"])
def test_the_numbers_follow_each_change(release: str) -> None:
    ring = HashRing.from_bindings([("a", 2), ("b", 1), ("c", 3)], Release(release)).bind("b", 2)
    figures = MovementCounter(ring.buckets)
    numbers = figures.number_destinations(ring.buckets)

    for change, place in [("unbind", "b"), ("bind", "d"), ("bind", "b"), ("unbind", "a"), ("unbind", "c")]:
        ring = ring.bind(place, 4) if change == "bind" else ring.unbind(place)
        numbers = figures.update_numbers(numbers, place, len(ring.buckets))
        assert numbers.tolist() == figures.number_destinations(ring.buckets).tolist()


def test_the_figures_of_a_large_ring_are_those_of_share_moved_at_every_moment() -> None:
    members = [RingMember(f"q{n}", str(1 + n % 2)) for n in range(60)]
    wanted = [members[(59 - 7 * n) % 60] for n in range(60)]
    wanted[30] = RingMember("new", wanted[30].key)
    ring = HashRing.from_bindings([member.binding for member in members])
    there = LiveRing("x", HashRing.from_buckets(ring.buckets), tuple(members))

    best = find_best_steps(there, wanted, (), MovementCounter(there.ring.buckets))

    assert best is not None
    ring, moments = there.ring, {}
    for step in best.steps:
        change = ring.bind if step.action == "bind" else ring.unbind
        ring = change(step.binding.destination, step.binding.routing_key)
        moments[ring.buckets] = ring
    assert len(moments) > 100
    assert len({ring.bucket_count for ring in moments.values()}) < 10  # so that their tables are kept
    worst = max(map(there.ring.share_moved, moments.values()))
    moved = there.ring.share_moved(best.after)
    assert (best.movement.end.moved, best.movement.peak) == (moved, Moment(worst, 0.0))

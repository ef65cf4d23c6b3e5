"""The best way from one ring to another, and its figures."""

from __future__ import annotations

from rabbit_chx.routing import HashRing
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.ring_figures import Movement, best_walk, figures_of
from rabbit_chx.topology.ring_steps import ring_walks


def _best(there: str, wanted: str) -> tuple[list[str], tuple[float, float, float]]:
    live = HashRing.from_buckets([*there])
    best = best_walk(live, [*map(RingMember, there)], [*map(RingMember, wanted)], (), Movement(live))
    assert best is not None
    walk, figures = best
    return [f"{step.action} {step.member.destination}" for step in walk.steps], figures


def test_a_ring_is_not_emptied_where_that_can_be_avoided() -> None:
    assert _best("a", "b") == (["bind b", "unbind a"], (1.0, 1.0, 0.0))


def test_the_only_member_cannot_be_bound_again_without_a_gap() -> None:
    live = HashRing.from_buckets(["a"])
    best = best_walk(live, [RingMember("a")], [RingMember("a", "2")], (), Movement(live))

    assert best is not None
    assert best[1] == (0.0, 1.0, 1.0)


def test_of_several_ways_the_one_that_moves_least_is_taken() -> None:
    there, wanted = [*map(RingMember, "abcd")], [*map(RingMember, "axyd")]
    live = HashRing.from_buckets([*"abcd"])
    movement = Movement(live)

    best = best_walk(live, there, wanted, (), movement)

    assert best is not None
    walks = ring_walks(live, there, wanted)
    assert len(walks) == 3
    assert best[1][1] == min(figures_of(walk, live, movement)[1] for walk in walks)


def test_moments_that_are_not_counted_are_not_the_worst() -> None:
    live = HashRing.from_buckets([*"abcdefghij"])
    movement = Movement(live)
    there = [*map(RingMember, "abcdefghij")]

    for wanted in ("abc", "abcdefghijklmn", "cab", "jihgfedcba", "klm", "abcxyz"):
        for walk in ring_walks(live, there, [*map(RingMember, wanted)]):
            _, worst, _ = figures_of(walk, live, movement)
            assert worst == max(movement.moved(ring.buckets) for ring in walk.rings)


def test_many_moments_of_different_sizes_are_counted_exactly() -> None:
    names = [f"q{n}" for n in range(30)]
    live = HashRing.from_buckets(names)
    there = [*map(RingMember, names)]
    wanted = [RingMember(name) for n in range(30) for name in (f"q{n}", f"new{n}")]
    one_by_one = Movement(live)

    for walk in ring_walks(live, there, wanted):
        end, worst, _ = figures_of(walk, live, Movement(live))
        by_size = sorted(walk.rings, key=lambda ring: -len(ring.buckets))  # tables are cheap in this order
        moved = {ring.buckets: one_by_one.moved_and_lost(ring.buckets, once=True)[0] for ring in by_size}
        assert (end, worst) == (moved[walk.rings[-1].buckets], max(moved.values()))

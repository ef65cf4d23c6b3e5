"""Seeds that stay, counted by their stays, are those that `HashRing.share_moved` counts by tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing
from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.ring_figures import Movement

if TYPE_CHECKING:
    from rabbit_chx.topology.ring_figures import StayingSeeds

_rings = st.lists(st.sampled_from([f"q{n}" for n in range(12)]), min_size=1, max_size=60)


def _held(before: HashRing, others: list[HashRing]) -> tuple[Movement, StayingSeeds]:
    movement = Movement(before)
    sizes = [other.bucket_count for other in others]
    return movement, movement.staying_seeds(min(sizes), max(sizes))


@settings(max_examples=10, deadline=None)
@given(_rings, st.lists(_rings, min_size=1, max_size=4))
def test_what_stays_is_what_share_moved_leaves(before: list[str], others: list[list[str]]) -> None:
    ring, rings = HashRing.from_buckets(before), [*map(HashRing.from_buckets, others)]

    movement, seeds = _held(ring, rings)

    for other in rings:
        numbers = movement.numbered(other.buckets)
        staying = SEEDS - round(ring.share_moved(other) * SEEDS)
        assert seeds.staying(numbers) == staying
        assert seeds.least_staying(numbers) <= staying


@pytest.mark.parametrize("counts", [(900, 1000, 1100), (500, 700), (1500, 3000), (1,)])
def test_large_rings_are_counted_alike(counts: tuple[int, ...]) -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(1000)])
    others = [
        HashRing.from_buckets([f"q{n * 7 % 1003}" if n % 3 else f"q{n}" for n in range(count)])
        for count in counts
    ]

    movement, seeds = _held(before, others)

    moved = [1 - seeds.staying(movement.numbered(other.buckets)) / SEEDS for other in others]
    assert moved == [before.share_moved(other) for other in others]


def test_the_count_stops_when_it_has_enough() -> None:
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(2000)])
    movement, seeds = _held(ring, [ring])

    assert SEEDS // 4 <= seeds.staying(movement.numbered(ring.buckets), SEEDS // 4) < SEEDS


def test_seeds_are_sorted_again_only_for_another_range() -> None:
    movement = Movement(HashRing.from_buckets(["a", "b", "c"]))
    seeds = movement.staying_seeds(2, 5)

    assert movement.staying_seeds(3, 4) is seeds
    assert movement.staying_seeds(3, 6) is not seeds

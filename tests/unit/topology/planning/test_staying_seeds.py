"""Seeds that stay, counted by their stays, are those that `HashRing.share_moved` counts by tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing
from rabbit_chx.topology.planning.ring_movement import Movement

_rings = st.lists(st.sampled_from([f"q{n}" for n in range(12)]), min_size=1, max_size=60)


@settings(max_examples=10, deadline=None)
@given(_rings, st.lists(_rings, min_size=1, max_size=4))
def test_the_most_that_moves_is_the_most_of_share_moved(before: list[str], others: list[list[str]]) -> None:
    ring = HashRing.from_buckets(before)

    found = Movement(ring).most_moved([tuple(other) for other in others], 0.0)

    assert found == max(ring.share_moved(HashRing.from_buckets(other)) for other in others)


@pytest.mark.parametrize("counts", [(900, 1000, 1100), (500, 700), (1500, 3000), (1,)])
def test_large_rings_are_counted_alike(counts: tuple[int, ...]) -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(1000)])
    others = [
        HashRing.from_buckets([f"q{n * 7 % 1003}" if n % 3 else f"q{n}" for n in range(count)])
        for count in counts
    ]

    found = Movement(before).most_moved([other.buckets for other in others], 0.0)

    assert found == max(before.share_moved(other) for other in others)


def test_what_is_known_already_is_the_least_answer() -> None:
    ring = HashRing.from_buckets(["a", "b", "c"])

    assert Movement(ring).most_moved([("a", "b", "c"), ("a", "b")], 0.75) == 0.75

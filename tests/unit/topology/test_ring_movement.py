"""Movement counted by pairs of buckets is what `HashRing.share_moved` counts by seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing
from rabbit_chx.topology.ring_figures import Movement

if TYPE_CHECKING:
    from rabbit_chx.routing import Place

_places = st.sampled_from(["a", "b", "c", "d", None])
_buckets = st.lists(_places, max_size=12)


@settings(max_examples=25, deadline=None)
@given(_buckets, st.lists(_buckets, min_size=1, max_size=4))
def test_it_is_share_moved(before: list[Place], others: list[list[Place]]) -> None:
    ring = HashRing.from_buckets(before)
    movement = Movement(ring)
    movement.prepare(len(other) - other.count(None) for other in others)

    for other in others:
        after = HashRing.from_buckets(other)
        moved, lost = movement.moved_and_lost(after.buckets)
        assert moved == ring.share_moved(after) == movement.moved(after.buckets)
        assert lost == (after.shares().get(None, 0.0) if after.bucket_count else 1.0)
        assert movement.least_staying(movement.numbered(after.buckets)) <= 1 - moved


def test_many_bucket_counts_are_counted_again() -> None:
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
    movement = Movement(ring)
    cuts = [HashRing.from_bindings([(f"q{n}", 1) for n in range(count)]) for count in (9, 8, 7, 6, 5, 9)]

    assert [movement.moved(cut.buckets) for cut in cuts] == [ring.share_moved(cut) for cut in cuts]

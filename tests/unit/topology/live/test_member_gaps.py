"""How long members are without a bucket, by the clock around changes that go together."""

from __future__ import annotations

from one_hash_exchange import hashing, with_buckets

from rabbit_chx.topology import plan
from rabbit_chx.topology.live.member_gaps import MemberGap, MemberGaps

WANTED = hashing(*"abc")


def gaps(*buckets: str) -> MemberGaps:
    live = with_buckets(WANTED, *buckets)
    return MemberGaps(plan(WANTED, live), "orders")


def test_the_time_of_a_gap_is_from_before_the_unbinding_to_after_the_binding() -> None:
    found = gaps("b", "a", "c")  # unbind b, bind b, unbind c, bind c
    assert found.gaps == (MemberGap("b", 0, 1), MemberGap("c", 2, 3))
    assert found.longest is not None
    assert found.longest.operations == 1
    measured = []
    for done, now in enumerate((10.0, 10.5, 11.5, 12.0, 15.0)):
        found.seen(done, now)
        measured.append(found.longest_s())
    assert measured == [None, None, 1.5, 1.5, 3.5], "what was not done was not measured"


def test_changes_that_go_together_count_as_a_whole() -> None:
    found = gaps("c", "b", "a")
    assert found.gaps
    for done in range(len(found._bounds) + 1):
        found.seen(done, float(done))
    longest = found.longest_s()
    assert longest is not None
    assert longest >= max(gap.operations for gap in found.gaps)


def test_who_keeps_its_place_or_had_no_bucket_has_no_gap() -> None:
    found = gaps("a", "b", "c")
    assert (found.gaps, found.longest, found.longest_s()) == ((), None, None)
    assert [gap.member for gap in gaps("a", "c").gaps] == ["c"]

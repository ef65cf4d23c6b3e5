"""What is wrong with a ring, by itself and beside its bindings."""

from __future__ import annotations

from rabbit_chx.analysis import ring_findings
from rabbit_chx.routing import ExchangeRef, HashRing, Release

OLD = Release("3.8.9")
SLOT = ExchangeRef("slot")


def test_a_ring_that_its_bindings_explain_has_no_findings() -> None:
    ring = HashRing.from_buckets(["q1", SLOT, SLOT])
    assert ring_findings(ring, [(SLOT, "2"), ("q1", "1")]) == []
    assert ring_findings(ring) == []


def test_holes_are_found_with_the_share_of_keys_that_reach_them() -> None:
    ring = HashRing.from_buckets(["q1", None, "q2"], OLD)
    (hole,) = ring_findings(ring)
    assert (hole.kind, hole.destination, hole.share) == ("hole", None, ring.shares()[None])
    assert hole.message == f"1 of 3 buckets without a destination: {hole.share:.3%} of all keys go nowhere"
    (hole, silent) = ring_findings(ring, [("q1", "1"), ("q2", "1")], alternate="rest")
    assert hole.message.endswith("of all keys go to the alternate exchange 'rest'")
    assert (silent.kind, silent.destination) == ("silent-binding", "q2")


def test_three_holes_before_two_buckets_take_every_key() -> None:
    ring = HashRing.from_buckets([None, None, None, "q3", "q3"], OLD)
    hole, silent = ring_findings(ring, [("q3", "2")])
    assert (hole.kind, hole.share) == ("hole", 1.0)
    assert hole.message == "3 of 5 buckets without a destination: 100.000% of all keys go nowhere"
    assert (silent.kind, silent.destination, silent.share) == ("silent-binding", "q3", 0.0)
    assert silent.message == (
        "q3 is bound and has 2 buckets, but after those that the broker counts: no message reaches it"
    )


def test_a_hole_that_no_key_reaches_is_ignored() -> None:
    assert ring_findings(HashRing.from_buckets(["q1", None])) == []


def test_an_empty_ring_routes_nothing() -> None:
    empty = HashRing.from_buckets([])
    (found,) = ring_findings(empty, [])
    assert (found.kind, found.share, found.message) == (
        "hole",
        1.0,
        "nothing is bound: every message is unroutable",
    )
    assert ring_findings(empty, [], "rest")[0].message == (
        "nothing is bound: every message goes to the alternate exchange 'rest'"
    )
    found, silent = ring_findings(empty, [("q1", "3")])
    assert (
        found.message
        == "the ring has no buckets, though the broker lists 1 binding: every message is unroutable"
    )
    assert (silent.kind, silent.destination) == ("silent-binding", "q1")


def test_buckets_without_a_binding_are_ghosts() -> None:
    ring = HashRing.from_buckets(["q1", "gone", "gone", "q1"])
    first, second = ring_findings(ring, [("q1", "2")]), ring_findings(ring, [("q1", "2"), ("gone", "2")])
    assert [(finding.kind, finding.destination, finding.share) for finding in first] == [
        ("ghost-bucket", "gone", ring.shares()["gone"])
    ]
    assert "gone has 2 buckets and no binding: 50." in first[0].message
    assert second == []


def test_a_queue_and_an_exchange_of_one_name_are_two() -> None:
    kinds = [finding.kind for finding in ring_findings(HashRing.from_buckets(["slot"]), [(SLOT, "1")])]
    assert kinds == ["ghost-bucket", "silent-binding"]


def test_a_binding_without_buckets_is_silent() -> None:
    (found,) = ring_findings(HashRing.from_buckets(["q1"]), [("q1", "1"), ("q2", "3")])
    assert (found.kind, found.destination, found.share) == ("silent-binding", "q2", 0.0)
    assert found.message == "q2 is bound with weight 3 and has no bucket: no message reaches it"


def test_a_second_binding_is_found_on_every_release() -> None:
    ring = HashRing.from_buckets(["q1", "q2", "q2"])
    (found,) = ring_findings(ring, [("q1", "1"), ("q2", "3"), ("q2", "2")])
    assert (found.kind, found.destination) == ("second-binding", "q2")
    assert found.message == (
        "q2 is bound 2 times, with weights 3 and 2, and has 2 buckets: the first unbind takes them all"
    )


def test_another_number_of_buckets_than_the_weight_differs() -> None:
    (found,) = ring_findings(HashRing.from_buckets(["q1", "q2"]), [("q1", "2"), ("q2", "1")])
    assert (found.kind, found.destination) == ("different", "q1")
    assert found.message == "q1 is bound with weight 2 and has 1 bucket"

"""What is wrong with a ring, by itself and beside its bindings."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.analysis import ring_findings
from rabbit_chx.routing import ExchangeRef, HashRing, Release

OLD = Release("3.8.9")
SLOT = ExchangeRef("slot")
#: Buckets, bindings or None, the alternate exchange or None; and of each finding the kind, the destination and the message.
CASES: list[tuple[list[Any], list[tuple[Any, str]] | None, str | None, list[tuple[str, Any, str]]]] = [
    (["q1", SLOT, SLOT], [(SLOT, "2"), ("q1", "1")], None, []),
    (["q1", SLOT, SLOT], None, None, []),
    (["q1", None], None, None, []),  # no key reaches the hole
    (["q1", None, "q2"], None, None, [("hole", None, "1 of 3 buckets without a destination: 49.991% of all keys go nowhere")]),
    (["q1", None, "q2"], [("q1", "1"), ("q2", "1")], "rest", [
        ("hole", None, "1 of 3 buckets without a destination: 49.991% of all keys go to the alternate exchange 'rest'"),
        ("silent-binding", "q2", "q2 is bound and has 1 bucket, but after those that the broker counts: no message reaches it"),
    ]),
    ([None, None, None, "q3", "q3"], [("q3", "2")], None, [
        ("hole", None, "3 of 5 buckets without a destination: 100.000% of all keys go nowhere"),
        ("silent-binding", "q3", "q3 is bound and has 2 buckets, but after those that the broker counts: no message reaches it"),
    ]),
    ([], [], None, [("hole", None, "nothing is bound: every message is unroutable")]),
    ([], [], "rest", [("hole", None, "nothing is bound: every message goes to the alternate exchange 'rest'")]),
    ([], [("q1", "3")], None, [
        ("hole", None, "the ring has no buckets, though the broker lists 1 binding: every message is unroutable"),
        ("silent-binding", "q1", "q1 is bound with weight 3 and has no bucket: no message reaches it"),
    ]),
    (["q1", "gone", "gone", "q1"], [("q1", "2")], None, [
        ("ghost-bucket", "gone", "gone has 2 buckets and no binding: 50.010% of all keys go there, and are lost if it does not exist any more"),
    ]),
    (["q1", "gone", "gone", "q1"], [("q1", "2"), ("gone", "2")], None, []),
    (["slot"], [(SLOT, "1")], None, [  # a queue and an exchange of one name
        ("ghost-bucket", "slot", "slot has 1 bucket and no binding: 100.000% of all keys go there, and are lost if it does not exist any more"),
        ("silent-binding", SLOT, "exchange slot is bound with weight 1 and has no bucket: no message reaches it"),
    ]),
    (["q1", "q2", "q2"], [("q1", "1"), ("q2", "3"), ("q2", "2")], None, [
        ("second-binding", "q2", "q2 is bound 2 times, with weights 3 and 2, and has 2 buckets: the first unbind takes them all"),
    ]),
    (["q1", "q2"], [("q1", "2"), ("q2", "1")], None, [("different", "q1", "q1 is bound with weight 2 and has 1 bucket")]),
]  # fmt: skip


@pytest.mark.parametrize(("buckets", "bindings", "alternate", "expected"), CASES)
def test_findings_of_a_ring_have_their_share_of_the_keys(
    buckets: list[Any], bindings: Any, alternate: str | None, expected: list[tuple[str, Any, str]]
) -> None:
    ring = HashRing.from_buckets(buckets, OLD)
    found = ring_findings(ring, bindings, alternate)
    assert [(finding.kind, finding.destination, finding.message) for finding in found] == expected
    shares = ring.shares() or {None: 1.0}
    assert [finding.share for finding in found] == [shares.get(place, 0.0) for _, place, _ in expected]

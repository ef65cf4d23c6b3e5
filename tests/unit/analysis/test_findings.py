"""What is wrong with a ring without its bindings, and what no stored check shows of a ring with them."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.analysis import ring_findings
from rabbit_chx.routing import ExchangeRef, HashRing, Release

OLD = Release("3.10.5")
SLOT = ExchangeRef("slot")
#: Buckets, bindings or None, the alternate exchange or None; and of each finding the kind, the destination and the message.
CASES: list[tuple[list[Any], list[tuple[Any, str]] | None, str | None, list[tuple[str, Any, str]]]] = [
    (["q1", SLOT, SLOT], None, None, []),
    (["q1", None], None, None, []),  # no key reaches the hole
    (["q1", None, "q2"], None, None, [("hole", None, "1 of 3 buckets without a destination: 49.991% of all keys go nowhere")]),
    ([], [], "rest", [("hole", None, "nothing is bound: every message goes to the alternate exchange 'rest'")]),
    (["slot"], [(SLOT, "1")], None, [  # a queue and an exchange of one name
        ("ghost-bucket", "slot", "slot has 1 bucket and no binding: 100.000% of all keys go there, and are lost if it does not exist any more"),
        ("silent-binding", SLOT, "exchange slot is bound with weight 1 and has no bucket: no message reaches it"),
    ]),
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


def test_no_number_of_buckets_is_told_of_a_ring_whose_order_is_not_known() -> None:
    bindings = [("q1", "3"), ("q1", "2")]
    known, guess = (HashRing.from_bindings(bindings), HashRing.unordered(bindings))
    for ring, has in ((known, True), (guess, False)):
        (found,) = [each for each in ring_findings(ring, bindings) if each.kind == "second-binding"]
        assert ("and has" in found.message) == has

"""Plans as values: what they change, what they leave, and what stops them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from one_hash_exchange import RELEASE, hashing, with_buckets
from sides import as_live

from rabbit_chx.routing import HashRing
from rabbit_chx.topology import plan
from rabbit_chx.topology.planning.plan import order_downstream_first

LIVE = with_buckets(hashing(*"abcdefgh"), *"abcdefgh")
WANTED = hashing("h", *"bcdefg")


def test_a_plan_that_moves_too_much_at_its_worst_moment_is_refused() -> None:
    planned = plan(replace(WANTED, max_share_moved=0.5), LIVE)
    assert planned.rings["orders"].moved < 0.5 < planned.rings["orders"].moved_at_worst < 0.88
    (refusal,) = planned.refusals
    assert planned.refused(allow_moved=0.5) == (refusal,)
    assert planned.refused(allow_moved=0.88) == ()
    assert plan(replace(WANTED, max_share_moved=0.88), LIVE).refusals == ()


@pytest.mark.parametrize("provenance", ["replayed", "assumed"])
def test_a_ring_that_was_not_read_is_not_changed(provenance: str) -> None:
    ring = HashRing.from_bindings([("a", 1)], RELEASE, provenance)  # type: ignore[arg-type]
    live = as_live(hashing("a"), rings={"orders": ring})

    (refusal,) = plan(hashing("a", "b"), live).refusals
    assert refusal.allow_with is None
    assert "ring_source=PREFIX" in refusal.text
    assert provenance in refusal.text
    assert plan(hashing("a"), live).refusals == ()


def test_a_chain_begins_at_its_end_and_a_circle_is_cut() -> None:
    assert order_downstream_first("ac", {"a": ["b"], "b": ["c"]}) == ["c", "a"]
    assert order_downstream_first("ab", {"a": ["b"], "b": ["a"]}) == ["b", "a"]
    assert order_downstream_first("a", {"a": ["a"]}) == ["a"]
    long = [f"x{n}" for n in range(5000)]
    onward = {source: [target] for source, target in itertools.pairwise(long)}
    assert order_downstream_first(long, onward) == long[::-1], "without recursion"


def test_only_a_proposal_with_a_better_worst_moment_is_advised() -> None:
    planned = plan(replace(WANTED, max_share_moved=0.1), LIVE)
    (worse,) = (it for it in planned.rings["orders"].proposals if it.strategy == "fewest-steps")
    assert worse.moved_at_worst > planned.rings["orders"].moved_at_worst
    assert ["proposal" in refusal.text for refusal in planned.refusals] == [False]

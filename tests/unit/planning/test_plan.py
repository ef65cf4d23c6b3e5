"""Plans as values: what they change, what they leave, and what stops them."""

from __future__ import annotations

import itertools
from dataclasses import replace

from one_hash_exchange import RELEASE, hashing, with_buckets
from sides import as_live

from rabbit_chx.planning.plan import order_downstream_first
from rabbit_chx.planning.plan_value import no_change
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import diff, plan

LIVE = with_buckets(hashing(*"abcdefgh"), *"abcdefgh")
WANTED = hashing("h", *"bcdefg")


def test_a_plan_that_moves_too_much_at_its_worst_moment_is_refused() -> None:
    planned = plan(replace(WANTED, max_share_moved=0.5), LIVE)
    assert planned.rings["orders"].moved < 0.5 < planned.rings["orders"].moved_at_worst < 0.88
    (refusal,) = planned.refusals
    assert planned.refused(allow_moved=0.5) == (refusal,)
    assert planned.refused(allow_moved=0.88) == ()
    assert plan(replace(WANTED, max_share_moved=0.88), LIVE).refusals == ()


def test_a_ring_whose_order_is_not_known_is_changed_only_if_all_keys_may_move() -> None:
    ring = HashRing.unordered([("a", 1)], RELEASE)
    live = as_live(hashing("a"), rings={"orders": ring})

    made = plan(hashing("a", "b"), live)
    (refusal,) = made.refusals
    assert refusal.allow_with == "--allow moved=1"
    assert "ring_source=PREFIX" in refusal.text
    assert "the order of orders is unknown" in refusal.text
    assert made.refused(allow_moved=1.0) == ()
    assert made.rings["orders"].matrix() is None
    assert plan(hashing("a"), live).refusals


def test_an_order_that_is_not_known_is_a_difference_only_where_the_file_has_one_and_the_exchange_is_ours() -> (
    None
):
    ring = HashRing.unordered([("a", 1), ("b", 1)], RELEASE)
    live, file = as_live(hashing("a", "b"), rings={"orders": ring}), hashing("a", "b")
    external = replace(file, exchanges=tuple(replace(one, owner="external") for one in file.exchanges))
    for wanted, differences in ((file, 1), (external, 0), (live.as_wanted(), 0)):
        assert len(diff(wanted, live)) == differences
        assert len(plan(wanted, live).refusals) == differences
        planned = plan(wanted, live)
        assert bool(planned.changes) == bool(differences)
        # No change is needed, and whether the order is the wanted one is not known: plan and apply exit with 3.
        assert [*planned.unknown_orders] == ([] if wanted is file else ["orders"])
        assert no_change(planned) == (
            "the broker matches the topology" if wanted is file else "the bindings match the topology"
        )


def test_a_member_with_a_name_of_the_broker_is_not_unbound() -> None:
    """Its binding is not read, so that it would stay."""
    ring = HashRing.unordered([("a", 1), ("b", 1)], RELEASE)
    live = as_live(hashing("a", "b"), rings={"orders": ring}, sources_left_out=frozenset({"orders"}))
    assert [refusal.allow_with for refusal in plan(hashing("b", "a"), live).refusals] == [None]


def test_a_chain_begins_at_its_end_and_a_circle_is_cut() -> None:
    assert order_downstream_first("ac", {"a": ["b"], "b": ["c"]}) == ["c", "a"]
    assert order_downstream_first("ab", {"a": ["b"], "b": ["a"]}) == ["b", "a"]
    assert order_downstream_first("a", {"a": ["a"]}) == ["a"]
    long = [f"x{n}" for n in range(5000)]
    onward = {source: [target] for source, target in itertools.pairwise(long)}
    assert order_downstream_first(long, onward) == long[::-1], "without recursion"

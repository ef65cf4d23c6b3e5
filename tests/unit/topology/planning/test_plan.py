"""Plans as values: what they change, what they leave, and what stops them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace

import pytest
from one_hash_exchange import RELEASE, hashing, steps, with_buckets
from sides import as_live

from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)
from rabbit_chx.topology.planning.plan import order_downstream_first

_CHX = "x-consistent-hash"


def test_a_plan_that_moves_too_much_at_its_worst_moment_is_refused() -> None:
    wanted, live = hashing("h", *"bcdefg"), with_buckets(hashing(*"abcdefgh"), *"abcdefgh")

    planned = plan(replace(wanted, max_share_moved=0.5), live)
    assert planned.rings["orders"].moved < 0.5 < planned.rings["orders"].moved_at_worst < 0.88
    (refusal,) = planned.refusals
    assert planned.refused(allow_moved=0.5) == (refusal,)
    assert (
        planned.refused(allow_moved=0.88) == plan(replace(wanted, max_share_moved=0.88), live).refusals == ()
    )


@pytest.mark.all_seeds
def test_a_lifted_refusal_is_not_listed() -> None:
    planned = plan(hashing("b", max_share_moved=0.1), with_buckets(hashing("a", "b"), "a", "b"))

    (refusal,) = planned.refusals
    assert refusal.allow_with == "--allow-moved 0.5001"
    assert planned.refused(allow_moved=0.5) == planned.refused(allow_delete=True) == (refusal,)
    assert planned.refused(allow_moved=0.5001) == ()


def test_a_first_ring_is_not_limited() -> None:
    planned = plan(hashing("a", max_share_moved=0.0), LiveTopology())

    assert planned.refusals == ()
    assert planned.rings["orders"].moved == 1.0


@pytest.mark.parametrize("provenance", ["replayed", "assumed"])
def test_a_ring_that_was_not_read_is_not_changed(provenance: str) -> None:
    ring = HashRing.from_bindings([("a", 1)], RELEASE, provenance)  # type: ignore[arg-type]
    live = as_live(hashing("a"), rings={"orders": ring})

    (refusal,) = plan(hashing("a", "b"), live).refusals
    assert refusal.allow_with is None
    assert "ring_source=PREFIX" in refusal.text
    assert provenance in refusal.text
    assert plan(hashing("a"), live).refusals == ()


def test_an_unknown_cluster_is_refused_only_where_something_changes() -> None:
    wanted = replace(hashing("a"), cluster="rabbit@prod")

    assert plan(wanted, as_live(hashing("a"))).refusals == ()
    assert [refusal.allow_with for refusal in plan(wanted, LiveTopology()).refusals] == [None]
    assert plan(wanted, as_live(replace(hashing("a"), cluster="rabbit@test"))).refusals != ()


def test_a_queue_in_two_rings_is_unbound_from_both_before_it_is_replaced() -> None:
    rings = tuple(ExchangeDefinition(name, _CHX, ring=(RingMember("a"),)) for name in ("one", "two"))
    live = Topology(rings, (QueueDefinition("a"),))

    assert steps(replace(live, queues=(QueueDefinition("a", "quorum"),)), as_live(live)) == [
        "unbind one -> a (key 1)",
        "unbind two -> a (key 1)",
        "replace a",
        "bind one -> a (key 1)",
        "bind two -> a (key 1)",
    ]


def test_a_policy_is_created_first_and_deleted_last() -> None:
    policy = PolicyDefinition("p", ".*", definition={"max-length": 1})
    queue = QueueDefinition("q")

    assert steps(Topology((), (queue,), (), (policy,)), LiveTopology()) == ["create p", "create q"]
    assert steps(Topology(owns=("*",)), LiveTopology((), (queue,), (), (policy,))) == [
        "delete q",
        "delete p",
    ]


def test_an_exchange_is_bound_before_what_is_bound_to_it() -> None:
    exchanges = tuple(ExchangeDefinition(name, "fanout") for name in "xyz")
    bindings = (
        BindingDefinition("x", ExchangeRef("y")),
        BindingDefinition("y", ExchangeRef("z")),
        BindingDefinition("z", "q"),
    )

    listed = steps(Topology(exchanges, (QueueDefinition("q"),), bindings), LiveTopology())

    assert [step for step in listed if step.startswith("bind")] == [
        "bind z -> q",
        "bind y -> exchange z",
        "bind x -> exchange y",
    ]


def test_a_circle_of_bindings_is_cut() -> None:
    assert order_downstream_first("ab", {"a": ["b"], "b": ["a"]}) == ["b", "a"]
    assert order_downstream_first("a", {"a": ["a"]}) == ["a"]


def test_a_long_chain_of_bindings_does_not_recurse() -> None:
    names = [f"x{n}" for n in range(5000)]

    found = order_downstream_first(names, {source: [target] for source, target in itertools.pairwise(names)})

    assert found == names[::-1]
    assert order_downstream_first("ac", {"a": ["b"], "b": ["c"]}) == ["c", "a"]


def test_a_plan_of_no_movement_loads_no_numpy() -> None:
    code = (
        "import sys\nfrom rabbit_chx.topology import *\nfrom rabbit_chx.topology import plan\n"
        "t = Topology((ExchangeDefinition('x', 'x-consistent-hash', ring=(RingMember('q'),)),), (QueueDefinition('q'),))\n"
        "plan(t, LiveTopology.of_file(t))\nassert plan(t, LiveTopology()).changes\nassert 'numpy' not in sys.modules\n"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_a_proposal_with_a_better_worst_moment_is_advised() -> None:
    live = with_buckets(hashing(*"abcdefgh"), *"abcdefgh")
    planned = plan(hashing("h", *"bcdefg", max_share_moved=0.1), live)

    worse = next(
        proposal for proposal in planned.rings["orders"].proposals if proposal.strategy == "fewest-steps"
    )
    assert worse.moved_at_worst > planned.rings["orders"].moved_at_worst
    assert ["proposal" in refusal.text for refusal in planned.refusals] == [False]

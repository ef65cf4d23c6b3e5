"""Queues that the plugin rabbitmq_sharding made: no plan deletes them, no check calls them unexpected, no file says them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sides import as_live

from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.plugin_objects import find_kept_shards, without_shards
from rabbit_chx.topology.shards import shard_names

SHARDS = shard_names("images", ["rabbit@a", "rabbit@b"], 2)
IMAGES = ExchangeDefinition("images", "x-modulus-hash")
POLICY = PolicyDefinition("shards", "^images$", "exchanges", {"shards-per-node": 2})
FILE = Topology((IMAGES,), policies=(POLICY,), owns=("*",))
LIVE = LiveTopology(
    (IMAGES,),
    tuple(map(QueueDefinition, SHARDS)),
    tuple(BindingDefinition("images", shard) for shard in SHARDS),
    (POLICY,),
)


def test_shards_are_left_to_the_plugin_even_where_all_is_owned() -> None:
    made = plan(FILE, LIVE)
    assert made.changes == ()
    assert made.unmanaged == ()
    assert check(LIVE, FILE).sound


def test_another_queue_that_is_owned_is_still_deleted() -> None:
    live = replace(
        LIVE,
        queues=(*LIVE.queues, QueueDefinition("old")),
        bindings=(*LIVE.bindings, BindingDefinition("images", "old"), BindingDefinition("other", SHARDS[0])),
        exchanges=(*LIVE.exchanges, ExchangeDefinition("other")),
    )
    gone = {(change.action, change.name) for change in plan(FILE, as_live(live)).changes}
    assert ("delete", "old") in gone
    assert not any(name in SHARDS for _, name in gone)
    assert {
        finding.destination for finding in check(as_live(live), FILE).findings if finding.kind == "unexpected"
    } >= {"old"}


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        (
            replace(FILE, policies=(replace(POLICY, definition={"shards-per-node": 1}),)),
            {("update", "shards")},
        ),
        (replace(FILE, policies=()), {("delete", name) for name in ("shards", *SHARDS)}),
        (Topology(owns=("*",)), {("delete", name) for name in ("images", "shards", *SHARDS)}),
        (Topology(owns=("sharding: *",)), set()),
    ],
    ids=["lowered", "without the policy", "without the exchange", "of what others declared"],
)
def test_shards_are_deleted_only_without_their_exchange_or_policy(
    wanted: Topology, changed: set[tuple[str, str]]
) -> None:
    made = plan(wanted, LIVE).changes
    assert {(change.action, change.name) for change in made if change.action != "unbind"} == changed


def test_a_policy_of_a_larger_priority_ends_the_sharding() -> None:
    other = PolicyDefinition("other", "^im", definition={"alternate-exchange": "x"}, priority=1)
    assert find_kept_shards(as_live(replace(LIVE, policies=(POLICY, other)))) == frozenset()
    assert find_kept_shards(LIVE) == frozenset(SHARDS)


def test_a_file_reports_the_policy_and_not_the_shards() -> None:
    written = without_shards(LIVE)
    assert written.objects == Topology((IMAGES,), policies=(POLICY,))
    assert written.facts.left_out == ("4 shards of images: the plugin rabbitmq_sharding makes them",)
    assert plan(written.objects, LIVE).changes == ()
    assert without_shards(written) is written


def test_a_ring_of_shards_is_the_plugins() -> None:
    hashing = ExchangeDefinition("images", "x-consistent-hash")
    live = replace(
        LIVE,
        exchanges=(replace(hashing, ring=tuple(RingMember(shard, "3") for shard in SHARDS)),),
        bindings=(),
    ).with_rings({})
    written = without_shards(live)
    assert written.exchanges == (hashing,)
    assert plan(written.objects, live).changes == ()


@pytest.mark.parametrize("type_", ["x-modulus-hash", "x-consistent-hash"])
def test_a_policy_that_shards_is_created_after_the_exchange(type_: str) -> None:
    """Under it 4.3.6 cannot declare an exchange of type x-consistent-hash."""
    other = PolicyDefinition("other", "^x", definition={"alternate-exchange": "y"})
    wanted = Topology((ExchangeDefinition("images", type_),), policies=(POLICY, other))
    assert [change.name for change in plan(wanted, LiveTopology()).changes] == ["other", "images", "shards"]


def test_an_exchange_that_is_declared_again_keeps_the_bindings_of_its_shards() -> None:
    wanted = replace(FILE, exchanges=(replace(IMAGES, durable=False),))
    changes = plan(wanted, LIVE).changes
    bound = {change.wanted.destination for change in changes if isinstance(change.wanted, BindingDefinition)}
    assert bound == set(SHARDS)
    assert ExchangeRef("images") not in bound


HASHED = ExchangeDefinition("images", "x-consistent-hash")
WEIGHED = replace(POLICY, definition={"shards-per-node": 2, "routing-key": "1"})


def test_a_hash_exchange_is_not_declared_under_the_policy_that_shards_it() -> None:
    live = LiveTopology(policies=(WEIGHED,), release=Release("4.3.6"))
    (refusal,) = plan(Topology((HASHED,), policies=(WEIGHED,)), live).refusals
    assert refusal.text == (
        "exchange images cannot be declared while the policy shards shards it: the broker would close the connection (541) and "
        "leave an exchange that routes nothing; remove the policy (rabbitmqctl clear_policy shards), declare the exchange, and then "
        "set the policy again; apply does that in this order if the topology has the policy, too"
    )
    assert refusal.allow_with is None
    (missing,) = check(live, Topology((HASHED,))).findings
    assert missing.fix.startswith(
        "remove the policy shards, under which it cannot be declared (rabbitmqctl clear_policy shards); run: plan(wanted, live), and then: Broker.apply(plan); and set"
    )


def _other_policy(**definition: object) -> PolicyDefinition:
    return replace(WEIGHED, definition={**WEIGHED.definition, **definition})


@pytest.mark.parametrize(
    ("policies", "release", "exchange"),
    [
        ((), Release("4.3.6"), HASHED),
        ((WEIGHED,), Release("4.0.5", store="mnesia"), HASHED),
        ((WEIGHED,), Release("4.3.6"), IMAGES),
        ((POLICY,), Release("4.3.6"), HASHED),
        ((_other_policy(**{"routing-key": "x"}),), Release("4.3.6"), HASHED),
        ((_other_policy(**{"shards-per-node": 0}),), Release("4.3.6"), HASHED),
        ((WEIGHED, PolicyDefinition("above", ".", definition={"max-length": 1}, priority=1)), Release("4.3.6"), HASHED),
        ((replace(WEIGHED, pattern="^image$"),), Release("4.3.6"), HASHED),
    ],
)  # fmt: skip
def test_other_exchanges_and_policies_are_not_in_the_way(
    policies: tuple[PolicyDefinition, ...], release: Release, exchange: ExchangeDefinition
) -> None:
    live = LiveTopology(policies=policies, release=release)
    assert plan(Topology((exchange,), policies=(WEIGHED,)), live).refusals == ()


def test_what_counts_is_the_policy_at_the_moment_of_the_declaration() -> None:
    """A policy that shards is made after new exchanges and before replaced ones. One that no longer shards comes before both."""
    release = Release("4.3.6")
    there = LiveTopology(policies=(WEIGHED,), release=release)
    plain = PolicyDefinition("shards", "^images$", "exchanges", {"alternate-exchange": "x"})
    assert plan(Topology((HASHED,), policies=(plain,)), there).refusals == ()
    transient = replace(HASHED, durable=False)
    live = LiveTopology((transient,), release=release)
    made = plan(Topology((HASHED,), policies=(WEIGHED,)), live)
    assert [(change.action, change.name) for change in made.changes] == [
        ("create", "shards"),
        ("replace", "images"),
    ]
    assert "the policy shards shards it" in made.refusals[-1].text

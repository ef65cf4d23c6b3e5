"""Queues that the plugin rabbitmq_sharding made: no plan deletes them, no check calls them unexpected, no file says them."""

from __future__ import annotations

from dataclasses import replace

from sides import as_live

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
from rabbit_chx.topology.plugin_objects import find_kept_shards, without_shards
from rabbit_chx.topology.shards import shard_names

SHARDS = shard_names("images", ["rabbit@a", "rabbit@b"], 2)
IMAGES = ExchangeDefinition("images", "x-modulus-hash")
POLICY = PolicyDefinition("shards", "^images$", "exchanges", {"shards-per-node": 2})
LIVE = LiveTopology(
    (IMAGES,),
    tuple(map(QueueDefinition, SHARDS)),
    tuple(BindingDefinition("images", shard) for shard in SHARDS),
    (POLICY,),
)


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

"""What is said of shards, since the plugin does not do it."""

from __future__ import annotations

from dataclasses import replace

from rabbit_chx.analysis.finding_kinds import SHARD_KINDS
from rabbit_chx.routing import Release
from rabbit_chx.topology.plugin_objects import ShardName
from rabbit_chx.topology.shards import Shard, ShardedExchange, shard_names


def shard(name: str, *, keys: tuple[str, ...] = ("",), consumers: int | None = 1) -> Shard:
    parsed = ShardName.parse(name)
    assert parsed is not None
    return Shard(name, parsed.node, parsed.number, keys=keys, messages=0, consumers=consumers)


NODES = ("rabbit@a", "rabbit@b")
NAMES = shard_names("images", NODES, 2)
SOUND = ShardedExchange(
    "images", "x-modulus-hash", "p", 2, "", tuple(map(shard, NAMES)), NODES, Release("4.3.6")
)


def kinds(exchange: ShardedExchange) -> dict[str, tuple[str, ...]]:
    found = {finding.kind: finding.names for finding in exchange.findings}
    assert set(found) <= set(SHARD_KINDS)
    return found


def test_sound_objects_have_no_finding() -> None:
    assert SOUND.findings == ()
    assert SOUND.missing == ()
    assert [node.name for node in SOUND.local("rabbit@b")] == list(NAMES[2:])


def test_what_is_not_there_is_missing_on_running_nodes_alone() -> None:
    fewer = replace(SOUND, shards=SOUND.shards[:2])
    assert kinds(fewer) == {"missing": NAMES[2:]}
    assert kinds(replace(fewer, nodes=("rabbit@a",))) == {}
    assert kinds(replace(fewer, nodes=None)) == {}


def test_lowering_leaves_shards_that_get_messages() -> None:
    lowered = replace(SOUND, shards_per_node=1)
    assert kinds(lowered) == {"surplus": (NAMES[1], NAMES[3])}
    assert "lowering shards-per-node removes nothing" in lowered.findings[0].message
    assert f"{NAMES[1]}; {NAMES[3]}" in lowered.findings[0].message


def test_without_a_policy_all_are_left_over() -> None:
    left = replace(SOUND, policy=None, shards_per_node=0, shards=(SOUND.shards[0], shard(NAMES[1], keys=())))
    assert kinds(left) == {"surplus": NAMES[:1], "unbound": NAMES[1:2]}
    assert "no policy shards the exchange" in left.findings[0].message


def test_shards_of_a_node_that_is_away() -> None:
    away = replace(SOUND, nodes=("rabbit@b",))
    assert kinds(away) == {"node-away": NAMES[:2]}
    assert [shard.name for shard in away.reachable] == list(NAMES[2:])
    assert replace(away, nodes=None).reachable == SOUND.shards
    replicated = tuple(replace(shard, type="quorum") for shard in SOUND.shards)
    assert replace(away, shards=replicated).reachable == replicated


def test_a_shard_without_a_consumer_is_found() -> None:
    idle = replace(SOUND, shards=(shard(NAMES[0], consumers=0), shard(NAMES[1], consumers=None)), nodes=None)
    assert kinds(idle) == {"unconsumed": NAMES[:1]}
    assert idle.findings[0].message.startswith("1 of 2 shards has no consumer")


def test_an_order_that_nobody_can_know() -> None:
    unordered = replace(SOUND, release=Release("4.0.5", store="khepri"))
    assert kinds(unordered) == {"unordered": ()}
    assert kinds(replace(unordered, type="x-consistent-hash")) == {}


def test_a_long_list_is_cut() -> None:
    many = replace(SOUND, shards=(), shards_per_node=4)
    assert many.findings[0].message.endswith("; and 5 more")

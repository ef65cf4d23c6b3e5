"""The names of shards, and what is said of shards, since the plugin does not do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rabbit_chx.analysis.findings import SHARD_KINDS
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release
from rabbit_chx.topology.plugin_objects import Shard, ShardedExchange, ShardName, shard_names


def shard(name: str, *, keys: tuple[str, ...] = ("",), consumers: int | None = 1) -> Shard:
    parsed = ShardName.parse(name)
    assert parsed is not None
    return Shard(name, parsed.node, parsed.number, keys=keys, messages=0, consumers=consumers)


NODES = ("rabbit@a", "rabbit@b")
NAMES = shard_names("images", NODES, 2)
SOUND = ShardedExchange(
    "images", "x-modulus-hash", "p", 2, "", tuple(map(shard, NAMES)), NODES, Release("4.3.6")
)


LEFT_OVER = replace(SOUND, policy=None, shards_per_node=0, shards=(SOUND.shards[0], shard(NAMES[1], keys=())))
IDLE = (shard(NAMES[0], consumers=0), shard(NAMES[1], consumers=None))
KHEPRI = Release("4.0.5", store="khepri")


@pytest.mark.parametrize(
    ("exchange", "expected", "says"),
    [
        (SOUND, {}, ""),
        (replace(SOUND, shards=SOUND.shards[:2]), {"missing": NAMES[2:]}, ""),
        (replace(SOUND, shards=SOUND.shards[:2], nodes=("rabbit@a",)), {}, ""),
        (replace(SOUND, shards=SOUND.shards[:2], nodes=None), {}, ""),
        (replace(SOUND, shards=(), shards_per_node=4), {"missing": shard_names("images", NODES, 4)}, "; and 5 more"),
        (replace(SOUND, shards_per_node=1), {"surplus": (NAMES[1], NAMES[3])}, "lowering shards-per-node removes nothing"),
        (replace(SOUND, shards_per_node=1), {"surplus": (NAMES[1], NAMES[3])}, f"{NAMES[1]}; {NAMES[3]}"),
        (LEFT_OVER, {"surplus": NAMES[:1], "unbound": NAMES[1:2]}, "no policy shards the exchange"),
        (replace(SOUND, nodes=("rabbit@b",)), {"node-away": NAMES[:2]}, ""),
        (replace(SOUND, shards=IDLE, nodes=None), {"unconsumed": NAMES[:1]}, "1 of 2 shards has no consumer"),
        (replace(SOUND, release=KHEPRI), {"unordered": ()}, ""),
        (replace(SOUND, release=KHEPRI, type="x-consistent-hash"), {}, ""),
    ],
)  # fmt: skip
def test_shards_that_differ_from_the_policy_have_a_finding(
    exchange: ShardedExchange, expected: dict[str, tuple[str, ...]], says: str
) -> None:
    found = {finding.kind: finding.names for finding in exchange.findings}
    assert set(found) <= set(SHARD_KINDS)
    assert found == expected
    assert not says or says in exchange.findings[0].message


def test_shards_of_a_node_that_is_away_are_reachable_if_they_are_replicated() -> None:
    assert SOUND.missing == ()
    assert [shard.name for shard in SOUND.local("rabbit@b")] == list(NAMES[2:])
    away = replace(SOUND, nodes=("rabbit@b",))
    assert [shard.name for shard in away.reachable] == list(NAMES[2:])
    assert replace(away, nodes=None).reachable == SOUND.shards
    replicated = tuple(replace(shard, type="quorum") for shard in SOUND.shards)
    assert replace(away, shards=replicated).reachable == replicated


@pytest.mark.parametrize(
    ("exchange", "nodes", "count"),
    [
        ("x", ["n"], -1),
        ("x", ["n"], "2"),
        ("x", ["n"], True),
        ("x", "n", 2),
        ("x" * 255, ["n"], 1),
        ("x", None, 2),
        ("x", [None], 2),
        (None, ["n"], 2),
    ],
)
def test_a_policy_without_shards_is_refused(exchange: Any, nodes: Any, count: Any) -> None:
    with pytest.raises(InputError):
        shard_names(exchange, nodes, count)


def test_shards_stand_by_node_and_then_by_number_as_text() -> None:
    names = shard_names("images", ["rabbit@b", "rabbit@a"], 12)
    assert names[:5] == tuple(f"sharding: images - rabbit@a - {n}" for n in (0, 1, 10, 11, 2))
    assert (len(names), names[12]) == (24, "sharding: images - rabbit@b - 0")
    assert shard_names("images", ["rabbit@a"], 0) == ()


@pytest.mark.parametrize("exchange", ["images", "a - b@c - 1", "sharding: x - n@h - 0", "日本"])
def test_the_name_of_a_shard_contains_its_exchange(exchange: str) -> None:
    for text in shard_names(exchange, ["rabbit@a.example", "other@b"], 11):
        name = ShardName.parse(text)
        assert name is not None
        assert (str(name), name.exchange) == (text, exchange)
    assert ShardName.parse("sharding: x - rabbit@a - 10") == ShardName("x", "rabbit@a", 10)
    for queue in (
        "x",
        "sharding: x - rabbit@a",
        "sharding: x - a - 0",
        "sharding: x - r@a - 01",
        "sharding: x - r@a - 1 ",
    ):
        assert ShardName.parse(queue) is None

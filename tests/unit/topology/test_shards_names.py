"""The names of shards."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.topology.plugin_objects import ShardName
from rabbit_chx.topology.shards import shard_names


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
    assert names[:5] == (
        "sharding: images - rabbit@a - 0",
        "sharding: images - rabbit@a - 1",
        "sharding: images - rabbit@a - 10",
        "sharding: images - rabbit@a - 11",
        "sharding: images - rabbit@a - 2",
    )
    assert len(names) == 24
    assert names[12] == "sharding: images - rabbit@b - 0"
    assert shard_names("images", ["rabbit@a"], 0) == ()


@pytest.mark.parametrize("exchange", ["images", "a - b@c - 1", "sharding: x - n@h - 0", "日本"])
def test_the_name_of_a_shard_contains_its_exchange(exchange: str) -> None:
    for text in shard_names(exchange, ["rabbit@a.example", "other@b"], 11):
        name = ShardName.parse(text)
        assert name is not None
        assert str(name) == text
        assert name.exchange == exchange
    assert ShardName.parse("sharding: x - rabbit@a - 10") == ShardName("x", "rabbit@a", 10)


@pytest.mark.parametrize(
    "queue",
    [
        "x",
        "sharding: x - rabbit@a",
        "sharding: x - a - 0",
        "sharding: x - r@a - 01",
        "sharding: x - r@a - 1 ",
    ],
)
def test_other_queues_are_not_shards(queue: str) -> None:
    assert ShardName.parse(queue) is None

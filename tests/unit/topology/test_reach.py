"""What the messages of an exchange reach."""

from __future__ import annotations

import pytest
from sides import as_live

from rabbit_chx import Topology
from rabbit_chx.errors import InputError
from rabbit_chx.topology.reach import select_reached

TOPOLOGY = Topology.from_toml("""
cluster = "rabbit@prod"
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { alternate-exchange = "unroutable" }
ring = [{ queue = "orders.{1..2}" }, { exchange = "audit" }]
[[exchanges]]
name = "audit"
type = "topic"
[[exchanges]]
name = "unroutable"
type = "fanout"
[[exchanges]]
name = "dead"
type = "fanout"
[[exchanges]]
name = "late"
type = "fanout"
[[exchanges]]
name = "other"
[[queues]]
name = "orders.1"
[[queues]]
name = "orders.2"
arguments = { x-dead-letter-exchange = "dead" }
[[queues]]
name = "audit.all"
[[queues]]
name = "dead.all"
[[queues]]
name = "others"
[[bindings]]
source = "dead"
queue = "dead.all"
[[bindings]]
source = "audit"
queue = "audit.all"
routing_key = "#"
[[bindings]]
source = "other"
queue = "others"
[[policies]]
name = "dead letters"
pattern = "^audit"
apply_to = "queues"
definition = { dead-letter-exchange = "late" }
[[policies]]
name = "elsewhere"
pattern = "^others$"
definition = { max-length = 5 }
[[policies]]
name = "of exchanges"
pattern = "^orders"
apply_to = "exchanges"
definition = { alternate-exchange = "unroutable" }
""")


def test_an_exchange_includes_everything_that_its_messages_reach() -> None:
    found = select_reached(as_live(TOPOLOGY), ["orders"])
    assert [exchange.name for exchange in found.exchanges] == [
        "audit",
        "dead",
        "late",
        "orders",
        "unroutable",
    ]
    assert [queue.name for queue in found.queues] == ["audit.all", "dead.all", "orders.1", "orders.2"]
    assert {binding.source for binding in found.bindings} == {"audit", "dead"}
    assert [policy.name for policy in found.policies] == ["dead letters", "of exchanges"]
    assert found.cluster == "rabbit@prod"


def test_several_exchanges_come_together() -> None:
    found = select_reached(as_live(TOPOLOGY), ["other", "dead"])
    assert [exchange.name for exchange in found.exchanges] == ["dead", "other"]
    assert [queue.name for queue in found.queues] == ["dead.all", "others"]


def test_a_circle_ends_and_a_policy_whose_pattern_python_cannot_read_counts() -> None:
    circle = '[[exchanges]]\nname = "{0}"\n[[bindings]]\nsource = "{0}"\nexchange = "{1}"\n'
    policy = '[[policies]]\nname = "p"\npattern = "(?<n"\ndefinition = { max-length = 5 }\n'
    topology = Topology.from_toml(circle.format("a", "b") + circle.format("b", "a") + policy)
    assert select_reached(as_live(topology), ["a"]).objects == topology


def test_an_unknown_exchange_is_named() -> None:
    with pytest.raises(InputError, match=r"there is no exchange order: did you mean orders\?"):
        select_reached(as_live(TOPOLOGY), ["order"])

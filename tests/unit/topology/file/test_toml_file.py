"""A file becomes objects."""

from __future__ import annotations

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.file.fields import read_document
from rabbit_chx.topology.file.toml_file import parse

WHOLE = """
cluster = "rabbit@prod"
max_share_moved = 0.2
owns = ["orders.*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
durable = false
auto_delete = true
internal = true
arguments = { hash-header = "tenant" }
max_share_moved = 0.05
ring = [{ queue = "orders.{1..2}", weight = 3 }, { exchange = "audit" }, { queue = "q", weight = "007", arguments = { a = 1 } }]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 64
members = [{ queue = "events.{1..2}", weight = 2 }]
[[queues]]
name = "orders.{01..02}"
type = "quorum"
arguments = { x-delivery-limit = 5, x-dead-letter-exchange = "dead.{1..2}" }
owner = "external"
[[queues]]
name = "mine"
durable = false
exclusive = true
auto_delete = true
[[bindings]]
source = "audit"
queue = "a.{1..2}"
routing_key = "k.{1..2}"
arguments = { x = [1, { y = 2 }] }
owner = "external"
[[bindings]]
source = "audit"
exchange = "other"
[[policies]]
name = "shards"
pattern = "^images{1..2}$"
apply_to = "exchanges"
definition = { shards-per-node = 4 }
priority = -1
owner = "external"
"""


def test_each_field_is_read() -> None:
    topology = Topology.from_toml(WHOLE)
    assert (topology.cluster, topology.max_share_moved, topology.owns) == ("rabbit@prod", 0.2, ("orders.*",))
    members = (RingMember("events.1", "2"), RingMember("events.2", "2"))
    ring = (
        RingMember("orders.1", "3"), RingMember("orders.2", "3"), RingMember(ExchangeRef("audit"), "1"),
        RingMember("q", "007", {"a": 1}),
    )  # fmt: skip
    assert topology.exchanges == (
        ExchangeDefinition("events", "x-consistent-hash", slots=64, members=members),
        ExchangeDefinition(
            "orders", "x-consistent-hash", False, True, True, {"hash-header": "tenant"}, ring, max_share_moved=0.05
        ),
    )  # fmt: skip
    assert topology.queues[0] == QueueDefinition("mine", durable=False, exclusive=True, auto_delete=True)
    assert topology.queues[2] == QueueDefinition(
        "orders.02", "quorum", arguments={"x-delivery-limit": 5, "x-dead-letter-exchange": "dead.2"}, owner="external"
    )  # fmt: skip
    assert topology.bindings == (
        BindingDefinition("audit", "a.1", "k.1", {"x": [1, {"y": 2}]}, "external"),
        BindingDefinition("audit", "a.2", "k.2", {"x": [1, {"y": 2}]}, "external"),
        BindingDefinition("audit", ExchangeRef("other")),
    )
    assert topology.policies == (
        PolicyDefinition("shards", "^images{1..2}$", "exchanges", {"shards-per-node": 4}, -1, "external"),
    )


def test_a_file_without_anything_is_an_empty_topology() -> None:
    assert Topology.from_toml("") == Topology()
    assert Topology.from_toml('[[queues]]\nname = "q"') == Topology(queues=(QueueDefinition("q"),))


def test_entries_know_their_place_and_their_wrong_fields() -> None:
    objects = read_document(parse('[[queues]]\nname = "q.{1..2}"\ndurable = 5'))
    assert [(queue.path, queue.bad, queue.value.name, queue.value.durable) for queue in objects.queues] == [
        ("queues[0]", frozenset({"durable"}), "q.1", True),
        ("queues[0]", frozenset({"durable"}), "q.2", True),
    ]

"""A super stream of a file is short for its exchange, its streams and their bindings."""

from __future__ import annotations

from rabbit_chx import Topology
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.file.toml_file import rearrange

ORDERS = '[[super_streams]]\nname = "orders"\n'
IN_FULL = """
[[exchanges]]
name = "orders"
arguments = { x-super-stream = true }

[[queues]]
name = "orders-{0..1}"
type = "stream"
arguments = { x-queue-leader-locator = "balanced" }

[[bindings]]
source = "orders"
queue = "orders-0"
routing_key = "0"
arguments = { x-stream-partition-order = 0 }

[[bindings]]
source = "orders"
queue = "orders-1"
routing_key = "1"
arguments = { x-stream-partition-order = 1 }
"""


def test_it_is_short_for_its_objects() -> None:
    topology = Topology.from_toml(f"{ORDERS}partitions = 2")
    assert topology == Topology.from_toml(IN_FULL)
    assert Topology.from_toml(topology.to_toml()) == topology
    assert topology.file.untyped_queues == frozenset()


def test_partitions_are_in_the_order_of_their_binding_keys() -> None:
    text = f'{ORDERS}binding_keys = ["west", "east", "{{9..11}}"]\narguments = {{ x-max-age = "7D" }}\nowner = "external"'
    topology = Topology.from_toml(text)
    keys = ["west", "east", "9", "10", "11"]
    assert topology.exchanges == (
        ExchangeDefinition("orders", arguments={"x-super-stream": True}, owner="external"),
    )
    arguments = {"x-max-age": "7D", "x-queue-leader-locator": "balanced"}
    streams = {QueueDefinition(f"orders-{key}", "stream", arguments=arguments, owner="external") for key in keys}  # fmt: skip
    assert set(topology.queues) == streams
    assert sorted(topology.bindings, key=lambda binding: binding.arguments["x-stream-partition-order"]) == [
        BindingDefinition("orders", f"orders-{key}", key, {"x-stream-partition-order": number}, "external")
        for number, key in enumerate(keys)
    ]


def test_another_leader_locator_replaces_that_of_the_command() -> None:
    text = f'{ORDERS}partitions = 1\narguments = {{ x-queue-leader-locator = "client-local" }}'
    (stream,) = Topology.from_toml(text).queues
    assert stream.arguments == {"x-queue-leader-locator": "client-local"}


def test_variables_and_ranges_are_replaced_first() -> None:
    text = """
[variables]
count = 2
team = "shop"

[[super_streams]]
name = "${team}.{1..2}"
partitions = "${count}"
arguments = { x-max-length-bytes = "${count}" }
"""
    topology = Topology.from_toml(text, variables={"count": 3})
    assert [stream.name for stream in topology.queues] == [
        "shop.1-0", "shop.1-1", "shop.1-2", "shop.2-0", "shop.2-1", "shop.2-2",
    ]  # fmt: skip
    assert {stream.arguments["x-max-length-bytes"] for stream in topology.queues} == {3}
    assert rearrange(text, {}).text == text

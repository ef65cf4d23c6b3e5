"""A super stream of a file is short for its exchange, its streams and their bindings."""

from __future__ import annotations

import pytest
from topologies import problems_in

from rabbit_chx import Release, Topology, TopologyError
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.file.toml_file import rearrange

ORDERS = '[[super_streams]]\nname = "orders"\n'
EITHER = "a super stream has either a number of partitions or a list of their binding keys"
NAME_OF_255 = "n" * 255
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[super_streams]]\npartitions = 3", "super_streams[0].name: a super stream needs `name`; write name = ..."),
        (ORDERS, f"super_streams[0].partitions: {EITHER}; write partitions = 3, or `binding_keys`"),
        (f'{ORDERS}partitions = 1\nbinding_keys = ["a"]', f"super_streams[0].binding_keys: {EITHER}; write only one of `partitions` and `binding_keys`"),
        (f"{ORDERS}partition = 3", "super_streams[0].partition: a super stream has no field `partition`; did you mean `partitions`?"),
        (f"{ORDERS}partitions = 0", "super_streams[0].partitions: the value must be an integer from 1 to 10000; write 1 or more"),
        (f'{ORDERS}partitions = "3"', "super_streams[0].partitions: the value must be an integer from 1 to 10000; write it without quotes"),
        (f"{ORDERS}binding_keys = []", 'super_streams[0].binding_keys: the value must be a list of binding keys; write it as ["amer", "emea"]'),
        (f"{ORDERS}binding_keys = [1]", 'super_streams[0].binding_keys: the value must be a list of binding keys; write it as ["amer", "emea"]'),
        (f'{ORDERS}binding_keys = ["a", "a"]', "super_streams[0].binding_keys: binding key a is listed twice; write each binding key once"),
        (f'{ORDERS}binding_keys = ["{{3..1}}"]', "super_streams[0].binding_keys: {3..1} counts down; write {1..3}, or an entry for each"),
        (f'{ORDERS}binding_keys = ["a\\nb"]', "super_streams[0].binding_keys: RabbitMQ removes line breaks from names, so the name would differ; write it on one line"),
        ('[[super_streams]]\nname = ""\npartitions = 1', "super_streams[0].name: a name must be a non-empty string; write a name"),
        ('[[super_streams]]\nname = "amq.orders"\npartitions = 2', 'super_streams[0].name: names that begin with amq. are reserved for the broker; write another name, or owner = "external" if it exists'),
        (f'[[super_streams]]\nname = "{NAME_OF_255}"\npartitions = 11', "super_streams[0].name: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'{ORDERS}partitions = 1\narguments = {{ x-max-age = "7 days" }}', 'super_streams[0].arguments.x-max-age: the value must be a number with a unit: Y, M, D, h, m or s; write it as "7D"'),
        (f"{ORDERS}partitions = 1\narguments = {{ x-message-ttl = 5 }}", "super_streams[0].arguments.x-message-ttl: a queue of type stream does not support x-message-ttl; remove it"),
        (f'{ORDERS}partitions = 1\narguments = {{ x-queue-type = "quroum" }}', "super_streams[0].arguments.x-queue-type: the type of the queue is stream; remove x-queue-type"),
        (f'[[exchanges]]\nname = "orders"\n{ORDERS}partitions = 1', "super_streams[0].name: the file declares this exchange already, as exchanges[0]; write each one once"),
        (f'[[queues]]\nname = "orders-0"\n{ORDERS}partitions = 1', "super_streams[0].name: the file declares this queue already, as queues[0]; write each one once"),
        (f"{ORDERS}partitions = 1\n{ORDERS}partitions = 2", "super_streams[1].name: the file declares this exchange already, as super_streams[0]; write each one once"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_problem(text: str, problem: str) -> None:
    assert problems_in(text, NEWEST_COMPARED) == [problem]


def test_a_release_without_streams_is_a_problem_of_its_line() -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(f"\n\n{ORDERS}partitions = 3", release=Release("3.8.9"))
    (problem,) = caught.value.problems
    assert (problem.line, problem.message) == (3, "RabbitMQ 3.8.9 does not have streams")


def test_a_mistake_has_its_line() -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(f"# a comment\n{ORDERS}partitions = 3\narguments = {{ x-max-age = 7 }}")
    assert [problem.line for problem in caught.value.problems] == [5]

"""A definitions file of a topology says the same, and what it cannot keep."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from topologies import topologies

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)

TYPE = "x-consistent-hash"
ORDERS = Topology(
    (ExchangeDefinition("orders", TYPE, ring=(RingMember("q.2", "3"), RingMember("q.1"))),),
    (QueueDefinition("q.1"), QueueDefinition("q.2", "quorum")),
)


def ours(topology: Topology) -> Topology:
    """Return a topology of objects that a definitions file can say: ours, without slots, with listed queues."""
    exchanges = tuple(
        replace(exchange, owner="ours", slots=None, members=None, ring=exchange.ring or () if exchange.type == TYPE else None, max_share_moved=None)
        for exchange in topology.exchanges
    )  # fmt: skip
    queues = {queue.name: replace(queue, owner="ours", exclusive=False) for queue in topology.queues}
    for binding in topology.bindings:
        if isinstance(binding.destination, str):
            queues.setdefault(binding.destination, QueueDefinition(binding.destination))
    bindings = tuple(replace(binding, owner="ours") for binding in topology.bindings)
    policies = tuple(replace(policy, owner="ours") for policy in topology.policies)
    return Topology(exchanges, tuple(queues.values()), bindings, policies)


@given(topologies())
def test_a_topology_is_what_its_definitions_say(topology: Topology) -> None:
    said = ours(topology)
    for vhost in ("/", None):
        text = said.to_definitions(vhost=vhost)
        assert Topology.from_definitions(text) == said
        text.encode()


def test_the_file_says_that_an_import_loses_the_ring_order() -> None:
    document = json.loads(ORDERS.to_definitions())
    assert "the ring order of orders is lost" in document["explanation"]
    assert [binding["destination"] for binding in document["bindings"]] == ["q.2", "q.1"]
    assert document["bindings"][0] == {
        "source": "orders", "vhost": "/", "destination": "q.2", "destination_type": "queue", "routing_key": "3", "arguments": {},
    }  # fmt: skip


def test_the_cure_is_a_file_without_the_bindings_of_hash_exchanges() -> None:
    document = json.loads(ORDERS.to_definitions(rings=False))
    assert document["bindings"] == []
    assert (
        "without the bindings of orders: after the import, bind their members in ring order"
        in document["explanation"]
    )
    plain = json.loads(Topology(queues=ORDERS.queues).to_definitions())
    assert plain["explanation"] == "Written by rabbit_chx."


def test_the_type_of_each_queue_is_written() -> None:
    queues: list[dict[str, Any]] = json.loads(ORDERS.to_definitions(vhost=None))["queues"]
    assert [queue["arguments"] for queue in queues] == [
        {"x-queue-type": "classic"},
        {"x-queue-type": "quorum"},
    ]
    assert all("vhost" not in queue for queue in queues)


def test_what_is_external_is_not_written() -> None:
    external = replace(
        ORDERS,
        exchanges=tuple(replace(exchange, owner="external") for exchange in ORDERS.exchanges),
        queues=(replace(ORDERS.queues[0], owner="external"), ORDERS.queues[1]),
        bindings=(BindingDefinition("audit", "q.2", owner="external"),),
        policies=(PolicyDefinition("p", "", owner="external"),),
    )
    document = json.loads(external.to_definitions())
    assert (document["exchanges"], document["bindings"], document["policies"]) == ([], [], [])
    assert [queue["name"] for queue in document["queues"]] == ["q.2"]
    assert document["explanation"] == "Written by rabbit_chx."


def test_what_definitions_cannot_say_is_refused_all_at_once() -> None:
    topology = Topology(
        (ExchangeDefinition("x", TYPE, slots=4, members=(RingMember("q"),)),),
        (
            QueueDefinition("mine", exclusive=True),
            QueueDefinition("theirs", exclusive=True, owner="external"),
        ),
    )
    with pytest.raises(TopologyError, match="do not know which queue has which slot") as caught:
        topology.to_definitions()
    assert [problem.path for problem in caught.value.problems] == ["exchange x", "queue mine"]

"""Definitions files between this package and a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from definitions_file import definitions_file

from rabbit_chx import Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "q.{40..40}", weight = 3 }, { queue = "q.{1..39}" }, { exchange = "audit", weight = "007" }]
[[exchanges]]
name = "audit"
type = "topic"
arguments = { alternate-exchange = "amq.fanout" }
[[exchanges]]
name = "brief"
auto_delete = true
[[queues]]
name = "q.{1..39}"
[[queues]]
name = "q.40"
type = "quorum"
arguments = { x-max-length = 1000 }
[[queues]]
name = "typed"
arguments = { x-message-ttl = 60000, x-dead-letter-exchange = "audit", x-single-active-consumer = true }
[[bindings]]
source = "audit"
queue = "q.{1..3}"
routing_key = "k.{1..3}"
[[bindings]]
source = "amq.headers"
queue = "typed"
arguments = { x-match = "all", size = 5, region = "eu" }
[[policies]]
name = "limit"
pattern = "^q\\\\."
apply_to = "queues"
definition = { max-length = 5000 }
priority = 2
"""
TOPOLOGY = Topology.from_toml(FILE)


@pytest.fixture
def management(broker: RunningBroker) -> Management:
    assert broker.management_url
    return Management(broker.management_url)


def imported(management: Management, vhost: str, text: str) -> Topology:
    """Return what the broker exports of a vhost after it has imported a file."""
    management.request("POST", "definitions", vhost, body=json.loads(text))
    return Topology.from_definitions(json.dumps(management.request("GET", "definitions", vhost)), vhost)


def members(topology: Topology) -> set[tuple[Any, str]]:
    (orders,) = (exchange for exchange in topology.exchanges if exchange.name == "orders")
    return {member.binding for member in orders.ring or ()}


def test_a_broker_has_the_objects_of_a_file_except_for_the_order_of_the_ring(
    management: Management, vhost_url: str
) -> None:
    vhost = ConnectionSettings.from_uri(vhost_url).vhost
    there = imported(management, vhost, definitions_file(TOPOLOGY, None))
    assert members(there) == members(TOPOLOGY)
    assert there.queues == TOPOLOGY.queues
    assert there.bindings == TOPOLOGY.bindings
    assert there.policies == TOPOLOGY.policies
    assert [
        (exchange.name, exchange.type, exchange.arguments, exchange.auto_delete)
        for exchange in there.exchanges
    ] == [
        (exchange.name, exchange.type, exchange.arguments, exchange.auto_delete)
        for exchange in TOPOLOGY.exchanges
    ]
    assert there.rings["orders"].provenance == "assumed"
    assert there.left_out == ()
    assert Topology.from_toml(there.to_toml()) == there

"""Definitions files between this package and a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from definitions_file import definitions_file

from rabbit_chx import Broker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import Imported, check, plan

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


def imported(management: Management, vhost: str, text: str) -> Imported:
    """Return what the broker exports of a vhost after it has imported a file."""
    management.request("POST", "definitions", vhost, body=json.loads(text))
    return Imported.from_definitions(json.dumps(management.request("GET", "definitions", vhost)), vhost)


def members(topology: Topology) -> set[tuple[Any, str]]:
    (orders,) = (exchange for exchange in topology.exchanges if exchange.name == "orders")
    return {member.binding for member in orders.ring or ()}


def test_a_broker_has_the_objects_of_a_file_except_for_the_order_of_the_ring(
    management: Management, vhost_url: str
) -> None:
    vhost = ConnectionSettings.from_uri(vhost_url).vhost
    exported = imported(management, vhost, definitions_file(TOPOLOGY, None))
    there = exported.topology
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
    assert there.ring("orders").provenance == "assumed"
    assert exported.left_out == ()
    assert Topology.from_toml(there.to_toml()) == there


LONG = "n" * 256
#: What RabbitMQ 4.3 imports and no client can name, next to what one can.
ODD: dict[str, list[dict[str, Any]]] = {
    "exchanges": [
        {"name": "x", "type": "direct"},
        {"name": "ring", "type": "x-consistent-hash"},
        {"name": "sound", "type": "x-consistent-hash"},
        {"name": "null", "type": "fanout", "durable": None},
        {"name": LONG, "type": "topic"},
    ],
    "queues": [{"name": name} for name in ("", LONG, "a\nb", "ok")]
    + [{"name": "big", "arguments": {"k": 1 << 70}}, {"name": "float", "arguments": {"k": 1.5}}],
    "bindings": [
        {"source": source, "destination": place, "destination_type": "queue", "routing_key": key}
        for source, place, key in (
            ("x", "ok", None),
            ("x", LONG, ""),
            ("x", "ok", "k" * 256),
            ("x", "ok", "k"),
            ("ring", "ok", "1"),
            ("ring", LONG, "1"),
            ("sound", "ok", "1"),
        )
    ],
    "policies": [{"name": name, "pattern": "", "definition": {"max-length": 5}} for name in (None, "", "p")],
}


def test_odd_objects_are_left_out_and_do_not_block_the_vhost(
    broker: RunningBroker, management: Management, vhost_url: str
) -> None:
    if not broker.version.startswith("4.3"):
        pytest.skip("other releases refuse the file")
    vhost = ConnectionSettings.from_uri(vhost_url).vhost
    management.request("POST", "definitions", vhost, body=ODD)
    with Broker(vhost_url, broker.management_url, broker.ring_via) as connected:
        live = connected.topology()
    assert [exchange.name for exchange in live.exchanges] == ["ring", "sound", "x"]
    assert [queue.name for queue in live.queues] == ["float", "ok"]
    assert [binding.routing_key for binding in live.bindings] == ["k"]
    assert [policy.name for policy in live.policies] == ["p"]
    assert len(live.facts.oddities) == 12
    assert live.rings.keys() == {"sound"}
    found = check(live)
    assert found.unroutable.keys() == {"sound"}
    assert [finding.exchange for finding in found.findings if "no client can name" in finding.message] == [
        "ring"
    ]
    file = Topology.from_definitions(json.dumps(ODD))
    assert not plan(file, live).changes
    wanted = Topology.from_toml('[[queues]]\nname = "new"')
    assert [str(change) for change in plan(wanted, live).changes] == ["create queue new"]

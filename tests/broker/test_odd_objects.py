"""A vhost with objects that RabbitMQ 4.3 imports from a definitions file and no client can name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rabbit_chx import Broker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import NotDeterminedError, UnknownOrderError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import check, plan

pytestmark = pytest.mark.broker

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


@pytest.mark.chx_broker(">=4.3", "an import of odd objects")
def test_odd_objects_are_left_out_and_do_not_block_the_vhost(vhost: RunningBroker) -> None:
    name = ConnectionSettings.from_uri(vhost.url).vhost
    Management(str(vhost.management_url)).request("POST", "definitions", name, body=ODD)
    with Broker(vhost.url, vhost.management_url, vhost.ring_via) as connected:
        live = connected.topology()
    assert [exchange.name for exchange in live.exchanges] == ["null", "ring", "sound", "x"]
    assert [queue.name for queue in live.queues] == ["float", "ok"]
    assert [binding.routing_key for binding in live.bindings] == ["k"]
    assert [policy.name for policy in live.policies] == ["p"]
    with Broker(vhost.url, vhost.management_url) as connected:
        with pytest.raises(UnknownOrderError, match="sound"):
            connected.ring("sound")
        with pytest.raises(NotDeterminedError, match="'ring' has bindings that no client can name"):
            connected.ring("ring")
    (odd,) = live.facts.oddities
    assert odd.message.startswith("12 objects that no client can declare or name: ")
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

"""`assert_parity` on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx import Topology
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker, assert_parity, parity

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

#: Everything that a file may have and a vhost for a test not: another cluster, owners, limits of queues, exchanges behind rings.
SHOP = """
cluster = "rabbit@prod"
owns = ["*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
owner = "external"
arguments = { alternate-exchange = "lost" }
ring = [
  { queue = "orders.{1..2}", weight = 1 }, { exchange = "audit", weight = 1 }, { exchange = "events", weight = 2 },
]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 16
members = [{ queue = "events.{1..3}", weight = 1 }]
[[exchanges]]
name = "tenants"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "orders.{1..2}", weight = 3 }]
[[exchanges]]
name = "bills"
type = "x-modulus-hash"
queues = ["bills.{1..8}"]
[[exchanges]]
name = "audit"
type = "topic"
[[queues]]
name = "orders.{1..2}"
type = "quorum"
owner = "external"
arguments = { x-max-length = 1, x-message-ttl = 1 }
[[queues]]
name = "events.{1..3}"
[[queues]]
name = "bills.{1..8}"
[[queues]]
name = "audit.all"
[[bindings]]
source = "audit"
queue = "audit.all"
routing_key = "#"
[[policies]]
name = "short"
pattern = ".*"
definition = { max-length = 1 }
"""
KEYS = [f"customer-{number}" for number in range(500)]


def test_all_that_hashes_is_compared_and_nothing_remains(broker: RunningBroker) -> None:
    before = _vhosts(broker)
    assert_parity(Topology.from_toml(SHOP), KEYS, broker=broker)
    assert _vhosts(broker) == before


def test_a_failure_names_the_key_and_both_queues(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror swaps two queues."""
    before, right = _vhosts(broker), Topology.key_map

    def swapped(topology: Topology, *arguments: Any) -> Any:
        ring: Any = right(topology, *arguments)
        return type(ring).from_buckets(ring.buckets[::-1], release=ring.release)

    monkeypatch.setattr(Topology, "key_map", swapped)
    exchange = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..2}" }]\n'
    with pytest.raises(AssertionError) as caught:
        assert_parity(
            Topology.from_toml(f'{exchange}[[queues]]\nname = "q{{1..2}}"'), KEYS[:100], broker=broker
        )
    _, first, *lines = str(caught.value).splitlines()
    assert "100 of 100 keys of exchange orders, first:" in first
    assert len(lines) == 20
    assert all(line.strip().startswith("exchange orders, key 'customer-") for line in lines)
    assert {line.partition(": ")[2] for line in lines} == {"expected q1, actual q2", "expected q2, actual q1"}
    assert "guest:guest" not in str(caught.value)
    assert _vhosts(broker) == before


def test_nothing_to_compare_and_no_broker_are_errors(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Topology.from_toml(SHOP)
    for topology, keys, reason in (
        (Topology(), KEYS, "no exchange of type x-consistent-hash or x-modulus-hash"),
        (shop, [], "no keys"),
    ):
        with pytest.raises(InputError, match=reason):
            assert_parity(topology, keys, broker=broker)
    monkeypatch.setattr(parity, "broker_of_test", None)
    with pytest.raises(InputError, match="let the test take chx_broker"):
        assert_parity(shop, KEYS)


def _vhosts(broker: RunningBroker) -> set[str]:
    assert broker.management_url is not None
    return {vhost["name"] for vhost in Management(broker.management_url).request("GET", "vhosts")}

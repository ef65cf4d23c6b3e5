"""`assert_parity` on a real broker, as a user's test calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rabbit_chx import Topology
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker, assert_parity, parity

if TYPE_CHECKING:
    RunPytest = Callable[..., str]

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
name = "messages"
type = "x-consistent-hash"
arguments = { hash-property = "message_id" }
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
#: A mirror that is wrong: it swaps two queues.
WRONG = """
from rabbit_chx import Topology
from rabbit_chx.testing import assert_parity

TOPOLOGY = Topology.from_toml('''
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 1 }, { queue = "q2", weight = 1 }]
[[queues]]
name = "q{1..2}"
''')

def test_parity(chx_vhost, monkeypatch):
    right = Topology.key_map
    swapped = lambda ring: type(ring).from_buckets(ring.buckets[::-1], release=ring.release)
    monkeypatch.setattr(Topology, "key_map", lambda *arguments: swapped(right(*arguments)))
    assert_parity(TOPOLOGY, [f"customer-{number}" for number in range(100)])
"""


def test_all_that_hashes_is_compared_and_nothing_remains(broker: RunningBroker) -> None:
    before = _vhosts(broker)
    assert_parity(Topology.from_toml(SHOP), KEYS, broker=broker)
    assert _vhosts(broker) == before


def test_a_failure_names_the_key_and_both_queues(run_pytest: RunPytest, broker: RunningBroker) -> None:
    before = _vhosts(broker)
    assert broker.management_url is not None
    named = {"RABBIT_CHX_TEST_URL": broker.url, "RABBIT_CHX_TEST_MANAGEMENT_URL": broker.management_url}
    said = run_pytest(WRONG, **named)
    assert "1 failed" in said
    assert "100 of 100 keys of exchange orders, first:" in said
    lines = [line for line in said.splitlines() if "exchange orders, key 'customer-" in line]
    assert len(lines) == 20
    assert {line.partition(": ")[2] for line in lines} == {
        "expected q1, actual q2",
        "expected q2, actual q1",
    }
    assert "guest:guest" not in said
    assert _vhosts(broker) == before


@pytest.mark.parametrize(
    ("topology", "keys", "reason"),
    [
        (Topology(), ["k"], "no exchange of type x-consistent-hash or x-modulus-hash"),
        (Topology.from_toml(SHOP), [], "no keys"),
    ],
)
def test_nothing_to_compare_is_an_error(
    broker: RunningBroker, topology: Topology, keys: list[str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        assert_parity(topology, keys, broker=broker)


def test_without_a_broker_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "broker_of_test", None)
    with pytest.raises(InputError, match="let the test take chx_broker"):
        assert_parity(Topology.from_toml(SHOP), KEYS)


def _vhosts(broker: RunningBroker) -> set[str]:
    assert broker.management_url is not None
    return {vhost["name"] for vhost in Management(broker.management_url).request("GET", "vhosts")}

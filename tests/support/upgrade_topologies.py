"""What the tests of upgrades share: a topology with an exchange of each kind, and samples for it."""

from __future__ import annotations

from rabbit_chx import Topology
from rabbit_chx.analysis import Hashing
from rabbit_chx.topology.upgrade_exchange import SampledMessage

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..3}" }, { exchange = "audit", weight = 2 }]
[[exchanges]]
name = "tenants"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "tenants.2", weight = 3 }, { queue = "tenants.1" }]
[[exchanges]]
name = "accounts"
type = "x-consistent-hash"
arguments = { hash-header = "account" }
ring = [{ queue = "accounts.{1..4}" }]
[[exchanges]]
name = "mails"
type = "x-consistent-hash"
arguments = { hash-property = "message_id" }
ring = [{ queue = "mails.{1..2}" }]
[[exchanges]]
name = "images"
type = "x-modulus-hash"
[[exchanges]]
name = "audit"
type = "topic"
[[queues]]
name = "tenants.{1..2}"
type = "quorum"
owner = "external"
[[bindings]]
source = "images"
queue = "images.1"
routing_key = "10"
[[bindings]]
source = "images"
queue = "images.0"
routing_key = "9"
"""
MIXED = Topology.from_toml(FILE)


def keys(count: int, hashing: Hashing | None = None) -> list[SampledMessage]:
    """Return messages with the keys key-0, key-1 and so on."""
    return [SampledMessage.with_value(f"key-{n}", hashing or Hashing(), f"key-{n}") for n in range(count)]


def numbers(count: int, header: str) -> list[SampledMessage]:
    """Return messages with the numbers from 0 in a header, as long."""
    hashing = Hashing(header, field_type="long")
    return [SampledMessage.with_value(str(n), hashing, n) for n in range(count)]


def samples(count: int) -> dict[str, list[SampledMessage]]:
    """Return samples for all exchanges of the topology."""
    return {
        "orders": keys(count),
        "tenants": keys(count, Hashing("tenant")),
        "accounts": numbers(count, "account"),
        "mails": keys(count, Hashing(None, "message_id")),
        "images": keys(count),
    }

"""A topology with a hash exchange of each kind, for the tests of upgrades."""

from __future__ import annotations

from rabbit_chx import Topology

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

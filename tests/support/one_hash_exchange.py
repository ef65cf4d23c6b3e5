"""Topologies of one hash exchange `orders` over some of eight queues, and its live ring."""

from __future__ import annotations

from dataclasses import replace

from sides import as_live

from rabbit_chx.routing import Destination, HashRing, Release
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, Topology

RELEASE = Release("4.3.6")


def hashing(*members: str | RingMember, **about: object) -> Topology:
    """A topology whose exchange has these members; `about` are other fields of the exchange."""
    ring = tuple(RingMember(member) if isinstance(member, str) else member for member in members)
    exchange = replace(ExchangeDefinition("orders", "x-consistent-hash", ring=ring), **about)  # type: ignore[arg-type]
    return Topology((exchange,), tuple(QueueDefinition(name) for name in "abcdefgh"))


def with_buckets(topology: Topology, *buckets: Destination) -> LiveTopology:
    """The live topology, whose ring was read and has these buckets."""
    ring = HashRing.from_buckets(buckets, RELEASE, next_bucket=len(buckets))
    return as_live(topology, release=RELEASE).with_rings({"orders": ring})

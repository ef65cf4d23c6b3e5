"""The state of a broker that the pages show: one reading of each vhost that has exchanges that hash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.broker.exchange_report import ShownExchange
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.errors import NotFoundError
from rabbit_chx.topology import LiveTopology
from rabbit_chx.topology.modulus import hashes
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, ExchangeDefinition

if TYPE_CHECKING:
    from rabbit_chx.cli.broker_options import BrokerAddresses


@dataclass(frozen=True, slots=True)
class VhostState:
    """A vhost.

    Attributes:
        topology: its objects and rings.
        check: what is wrong with them.
    """

    topology: LiveTopology
    check: TopologyCheck

    def shown(self, exchange: str) -> ShownExchange:
        """Return what is known about an exchange."""
        return ShownExchange.of_topology(self.topology, exchange)

    @property
    def hashing(self) -> list[ExchangeDefinition]:
        """The exchanges that hash."""
        return [exchange for exchange in self.topology.exchanges if hashes(exchange)]


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker: its address, the vhosts that have exchanges that hash, by name, and the time of the reading in seconds since 1970."""

    address: str
    vhosts: Mapping[str, VhostState]
    time_s: float

    def vhost(self, name: str) -> VhostState:
        """Return a vhost.

        Raises:
            NotFoundError: no exchange hashes there.
        """
        if name not in self.vhosts:
            known = ", ".join(self.vhosts) or "none"
            raise NotFoundError(f"no exchange hashes in vhost {name!r:.80}; those with one: {known:.300}")
        return self.vhosts[name]


def read_state(at: BrokerAddresses) -> BrokerState:
    """Read a broker.

    Raises:
        UnreachableError: an address does not answer.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
    """
    api = at.management("the pages show exchanges, which AMQP alone does not list")
    columns = {"columns": "name,vhost,type"}
    listed = api.get_list("exchanges", query=columns, fields={"name": str, "vhost": str, "type": str})
    names = sorted({entry["vhost"] for entry in listed if _may_hash(entry)})
    read = {name: _read_vhost(at.in_vhost(name)) for name in names}
    return BrokerState(at.address, {name: seen for name, seen in read.items() if seen.hashing}, time.time())


def _may_hash(entry: Mapping[str, object]) -> bool:
    if entry["type"] == "direct":  # a super stream is one
        return entry["name"] not in ("", "amq.direct")
    return entry["type"] in (HASH_EXCHANGE, MODULUS_EXCHANGE)


def _read_vhost(at: BrokerAddresses) -> VhostState:
    with at.broker() as broker:
        topology = with_settled_consumers(broker.topology(), at.management(""))
    return VhostState(topology, check(topology))

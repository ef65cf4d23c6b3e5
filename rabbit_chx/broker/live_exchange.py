"""An exchange as the management API shows it, read at once: its arguments, bindings, ring and slots."""

from __future__ import annotations

from rabbit_chx.broker.management import Management
from rabbit_chx.broker.ring_source import RingSource, ring_by
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.objects import LiveSlots
from rabbit_chx.topology.reading import LiveExchange, read_hash_exchange, read_slots_behind


def read_exchange(management: Management, vhost: str, name: str) -> LiveExchange:
    """Read an x-consistent-hash exchange from the management API.

    Args:
        management: the broker's HTTP API.
        vhost: the exchange's vhost.
        name: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange is of another type.
        BrokerRefusedError: the user lacks a permission.
        UnreachableError: nothing answers at the address.
    """
    return read_hash_exchange(management, vhost, name)


def read_ring(exchange: LiveExchange, source: RingSource | None) -> HashRing:
    """Return the true ring by a ring source; without a source, the ring that is assumed from the bindings.

    Args:
        exchange: the exchange.
        source: how to read the ring, or None.

    Raises:
        RingSourceError: the ring could not be read.
    """
    if source is None:
        return exchange.assumed_ring
    return ring_by(source, exchange.vhost, exchange.name, exchange.release)


def read_slots(management: Management, exchange: LiveExchange, ring: HashRing) -> LiveSlots:
    """Read which queues are behind the exchanges of a ring.

    Args:
        management: the broker's HTTP API.
        exchange: the exchange.
        ring: its ring.
    """
    return read_slots_behind(management, exchange.vhost, exchange.name, ring)

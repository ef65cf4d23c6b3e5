"""An exchange as the management API shows it: arguments, bindings, and the queues that its messages can
reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.traffic import Reach
from rabbit_chx.broker.operations import CHX
from rabbit_chx.broker.ring_source import ring_by
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashRing, Release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.broker.management import Management
    from rabbit_chx.broker.ring_source import RingSource
    from rabbit_chx.routing import Binding, Destination

__all__ = ["LiveExchange", "read_exchange", "read_reach", "read_release", "read_ring"]

_HASH_ARGUMENTS = ("hash-header", "hash-property")
_ALTERNATE = "alternate-exchange"


@dataclass(frozen=True, slots=True)
class LiveExchange:
    """An x-consistent-hash exchange.

    Attributes:
        vhost: the exchange's vhost.
        name: the exchange's name.
        arguments: the arguments that decide about routing: ``hash-header`` or ``hash-property``.
        bindings: ``(destination, binding key)`` pairs; their order means nothing.
        alternate: the alternate exchange, by argument or policy; None where there is none.
        release: the broker's release.
    """

    vhost: str
    name: str
    arguments: Mapping[str, str]
    bindings: tuple[Binding, ...]
    alternate: str | None
    release: Release

    @property
    def assumed_ring(self) -> HashRing:
        """The ring that the bindings would make in the order in which they are listed."""
        return HashRing.from_bindings(self.bindings, self.release, "assumed")


def read_release(management: Management) -> Release:
    """Read the broker's version, and its metadata store from its feature flags (``khepri_db`` exists since
    3.13).
    """
    version = str(management.request("GET", "overview")["rabbitmq_version"])
    flags = {flag["name"]: flag["state"] for flag in management.request("GET", "feature-flags")}
    if "khepri_db" not in flags:
        return Release(version)
    return Release(version, "khepri" if flags["khepri_db"] == "enabled" else "mnesia")


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
    try:
        found = management.request("GET", "exchanges", vhost, name)
    except NotFoundError:
        raise NotFoundError(
            f"there is no exchange {name!r} in vhost {vhost!r}: check its name and the vhost of the URL",
            exchange=name,
            reply_code=404,
        ) from None
    if found["type"] != CHX:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {found['type']}, not {CHX}: give another one",
            exchange=name,
        )
    listed = management.request("GET", "exchanges", vhost, name, "bindings", "source")
    return LiveExchange(
        vhost,
        name,
        {
            argument: found["arguments"][argument]
            for argument in _HASH_ARGUMENTS
            if argument in found["arguments"]
        },
        tuple((_destination(binding), str(binding["routing_key"])) for binding in listed),
        found["arguments"].get(_ALTERNATE) or _policy(management, vhost, found).get(_ALTERNATE),
        read_release(management),
    )


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


def read_reach(management: Management, exchange: LiveExchange) -> Reach:
    """Read which queues a message to the exchange can reach, over other exchanges too.

    Args:
        management: the broker's HTTP API.
        exchange: the exchange.
    """
    destinations = dict.fromkeys(destination for destination, _ in exchange.bindings)
    if exchange.alternate is None and not any(isinstance(one, ExchangeRef) for one in destinations):
        return Reach(destinations)
    listed = management.request("GET", "bindings", exchange.vhost)
    exchanges = management.request("GET", "exchanges", exchange.vhost)
    return Reach(
        destinations,
        [(binding["source"], _destination(binding)) for binding in listed],
        exchange.alternate,
        [one["name"] for one in exchanges if one["type"] == "fanout"],
    )


def _policy(management: Management, vhost: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    if not found.get("policy"):
        return {}
    definition: dict[str, Any] = management.request("GET", "policies", vhost, found["policy"])["definition"]
    return definition


def _destination(binding: Mapping[str, Any]) -> Destination:
    name = str(binding["destination"])
    return name if binding["destination_type"] == "queue" else ExchangeRef(name)

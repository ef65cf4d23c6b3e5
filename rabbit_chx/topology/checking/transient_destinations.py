"""Queues and exchanges that go by themselves, while the exchange that they are bound to stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.policies import setting_of

if TYPE_CHECKING:
    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.model import Topology

__all__ = ["transient_destinations"]

_EXPIRES = "x-expires"
_MADE_BY_BROKER = "amq.gen-"


def transient_destinations(live: Topology) -> dict[Destination, str]:
    """Return the queues and exchanges that go by themselves, with the reason in words.

    Args:
        live: what is there.
    """
    found: dict[Destination, str] = {
        member.destination: "has a name that the broker made: the next such queue has another"
        for exchange in live.exchanges
        for member in exchange.ring or ()
        if isinstance(member.destination, str) and member.destination.startswith(_MADE_BY_BROKER)
    }
    for queue in live.queues:
        expires = setting_of(queue, _EXPIRES, live.policies)
        if queue.exclusive:
            found[queue.name] = "is exclusive: it goes with the connection that declared it"
        elif queue.auto_delete:
            found[queue.name] = "is auto-delete: it goes with its last consumer"
        elif not queue.durable:
            found[queue.name] = "is not durable: it goes when its node stops"
        elif expires is not None:
            found[queue.name] = f"expires after {expires} ms without use"
    for exchange in live.exchanges:
        if exchange.auto_delete:
            found[ExchangeRef(exchange.name)] = "is auto-delete: it goes with its last binding"
        elif not exchange.durable:
            found[ExchangeRef(exchange.name)] = "is not durable: it goes when the broker stops"
    return found

"""The slots of an exchange, read: its ring by the ring source, their queues from the management API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef, SlotTable
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, live_slots
from rabbit_chx.topology.sequences.exchange_reading import destination_of, ring_read
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from rabbit_chx.routing import HashRing, Release
    from rabbit_chx.topology.objects import LiveSlots
    from rabbit_chx.topology.sequences.steps import Access, ApiSequence, Sequence

__all__ = ["slot_table_read", "slots_behind"]

_EXCHANGE = {"name": str, "type": str, "internal": bool}
_BINDING = {"source": str, "destination": str, "destination_type": str, "routing_key": str}


def slot_table_read(access: Access, exchange: str, release: Release) -> Sequence[SlotTable]:
    """Read the slots of an exchange.

    Args:
        access: what the sequence may ask.
        exchange: the exchange's name.
        release: the release whose rules apply.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange is of another type, or a slot has two queues.
        RingSourceError: the ring could not be read.
    """
    ring = yield from ring_read(access, exchange, release)
    return (yield from slots_behind(access.vhost, exchange, ring)).table()


def slots_behind(vhost: str, exchange: str, ring: HashRing) -> ApiSequence[LiveSlots]:
    """Read what is bound behind the exchanges of a ring. A ring of queues alone needs no request.

    Args:
        vhost: the exchange's vhost.
        exchange: the exchange's name.
        ring: its ring.
    """
    if not any(isinstance(one, ExchangeRef) for one in ring.destinations):
        return live_slots(exchange, ring, (), ())
    exchanges = yield ApiRequest("GET", ("exchanges", vhost), listed=True, fields=_EXCHANGE)
    bindings = yield ApiRequest("GET", ("bindings", vhost), listed=True, fields=_BINDING)
    return live_slots(
        exchange,
        ring,
        [
            ExchangeDefinition(one["name"], one["type"], internal=one["internal"])
            for one in exchanges
            if one["name"]
        ],
        [
            BindingDefinition(one["source"], destination_of(one), one["routing_key"])
            for one in bindings
            if one["source"]
        ],
    )

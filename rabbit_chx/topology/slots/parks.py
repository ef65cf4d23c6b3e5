"""The parking queues: what a slot gets while it has no queue is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.topology.matching_policy import setting_of
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.slots.lowering import ALTERNATE_EXCHANGE
from rabbit_chx.topology.slots.slot_names import SlotNames

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology

__all__ = ["parking_queues", "queues_behind_slots"]


def parking_queues(live: Topology) -> dict[str, str]:
    """Return the parking queue of each hash exchange that has one, by the name of the exchange.

    Args:
        live: what is there, or what is wanted, laid out as plain objects.
    """
    exchanges = {one.name for one in live.exchanges}
    queues = {one.name for one in live.queues}
    found = {}
    for one in live.exchanges:
        park = SlotNames(one.name, 1).park
        if one.type == HASH_EXCHANGE and one.owner == "ours" and park in exchanges & queues:
            found[one.name] = park
    return found


def queues_behind_slots(live: Topology) -> list[str]:
    """Return the queues that get the messages of slots without a queue, by argument or policy.

    Args:
        live: what is there.
    """
    alternates = {
        setting_of(one, ALTERNATE_EXCHANGE, live.policies)
        for one in live.exchanges
        if one.internal and one.type == "fanout"  # as each slot is
    }
    queues = (one.destination for one in live.bindings if one.source in alternates)
    return sorted({one for one in queues if isinstance(one, str)})

"""Exchanges with slots as the plain objects that they stand for.

``events`` with N slots is: N internal fanout exchanges ``events.slot.00`` and so on, each bound once to ``events`` and to the
queue that has it, and each with the alternate exchange ``events.park``. That is a fanout exchange with the queue
``events.park``. So what comes while a slot has no queue is parked and not lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.rings import live_ring_of
from rabbit_chx.topology.slots.slot_names import SlotNames
from rabbit_chx.topology.slots.slot_owners import owners_of_slots, queues_of_slots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.topology.model import Topology

__all__ = ["ALTERNATE_EXCHANGE", "SlotLayout", "laid_out", "lowered", "slot_layouts"]

ALTERNATE_EXCHANGE = "alternate-exchange"


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """What an exchange with slots is made of.

    Attributes:
        exchange: the exchange, as the file says it.
        names: the names of its slots and of its park.
        owners: the queue of each slot exchange, by its name, in the order of the ring.
    """

    exchange: ExchangeDefinition
    names: SlotNames
    owners: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """Whether it is declared and changed, and not only checked."""
        return self.exchange.owner == "ours"

    def exchanges(self) -> tuple[ExchangeDefinition, ...]:
        """Return the hash exchange with its ring, the slot exchanges and the parking exchange."""
        owner, park = self.exchange.owner, self.names.park
        return (
            replace(self.exchange, ring=tuple(map(RingMember, self.names.refs)), slots=None, members=None),
            *(
                ExchangeDefinition(
                    slot, "fanout", internal=True, arguments={ALTERNATE_EXCHANGE: park}, owner=owner
                )
                for slot in self.names.slots
            ),
            ExchangeDefinition(park, "fanout", internal=True, owner=owner),
        )

    def parking_queue(self) -> QueueDefinition:
        """Return the parking queue of a file that does not say it. A classic queue keeps the order when a reader dies."""
        return QueueDefinition(self.names.park, owner=self.exchange.owner)

    def bindings(self) -> tuple[BindingDefinition, ...]:
        """Return the bindings of the slot exchanges and of the parking exchange."""
        pairs = (*self.owners.items(), (self.names.park, self.names.park))
        return tuple(BindingDefinition(slot, queue, owner=self.exchange.owner) for slot, queue in pairs)


def laid_out(wanted: Topology, live: Topology) -> Topology:
    """Return a topology with each exchange with slots as the plain objects that it stands for.

    A slot keeps the queue that it has in the live topology, as far as the weights let it.

    Args:
        wanted: what should be there.
        live: what is there.

    Raises:
        InputError: a member would get no slot, or lists of slots do not have each slot once.
    """
    return lowered(wanted, slot_layouts(wanted, live))


def slot_layouts(wanted: Topology, live: Topology) -> dict[str, SlotLayout]:
    """Return what each exchange with slots is made of, by its name.

    Args:
        wanted: what should be there.
        live: what is there.

    Raises:
        InputError: as in `laid_out`.
    """
    slotted = [one for one in wanted.exchanges if one.slots is not None]
    bound = queues_of_slots(live) if slotted else {}
    layouts = {}
    for one in slotted:
        names = SlotNames(one.name, one.slots or 0)
        ring = live_ring_of(live, live.exchange(one.name), one.name).ring
        layouts[one.name] = SlotLayout(one, names, owners_of_slots(names, one.members or (), ring, bound))
    return layouts


def lowered(wanted: Topology, layouts: Mapping[str, SlotLayout]) -> Topology:
    """Return a topology with plain objects in the place of exchanges with slots.

    Args:
        wanted: what should be there.
        layouts: what its exchanges with slots are made of, of `slot_layouts`.
    """
    if not layouts:
        return wanted
    all_layouts = layouts.values()
    declared = {one.name for one in wanted.queues}
    return replace(
        wanted,
        exchanges=(
            *(one for one in wanted.exchanges if one.name not in layouts),
            *(one for layout in all_layouts for one in layout.exchanges()),
        ),
        queues=(
            *wanted.queues,
            *(layout.parking_queue() for layout in all_layouts if layout.names.park not in declared),
        ),
        bindings=(*wanted.bindings, *(one for layout in all_layouts for one in layout.bindings())),
    )

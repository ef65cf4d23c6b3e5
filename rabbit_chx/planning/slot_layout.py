"""Exchanges with slots: expanded to plain objects, collapsed again, and the owner of each slot.

``events`` with N slots is expanded to N internal fanout exchanges ``events.slot.00`` and so on. Each is bound once to ``events`` and to the
queue that owns it, and has the alternate exchange ``events.park``: a fanout exchange with the queue ``events.park``. Messages are parked
there while a slot has no queue.

The file lists the slots of each queue, or its weights determine them, with as few keys moved as possible. A hand-over unbinds a slot before
it binds it, so a slot has several queues only if another client has bound it. Then the first queue that is a member counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from rabbit_chx.records.live_rings import find_live_ring
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.text import grouped
from rabbit_chx.topology import objects
from rabbit_chx.topology.arguments import alternate_of
from rabbit_chx.topology.schema import fields_between
from rabbit_chx.topology.slots import SlotNames, assign_owners, pin_members, view_slots

if TYPE_CHECKING:
    from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology

_Side = TypeVar("_Side", bound="AnyTopology")


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The plain objects of an exchange with slots.

    Attributes:
        exchange: the exchange, as in the file.
        owners: the queue of each slot exchange, by its name, in ring order.
    """

    exchange: objects.ExchangeDefinition
    names: SlotNames
    owners: Mapping[str, str]

    @property
    def is_pinned(self) -> bool:
        """True if the file lists the slots of each queue."""
        return any(member.slots is not None for member in self.exchange.members or ())

    def pin_members(self) -> tuple[objects.RingMember, ...]:
        """Return the queues, sorted by name, with their slots."""
        return pin_members(self.owners.values())

    @property
    def is_ours(self) -> bool:
        """True if it is declared and changed, and not only checked."""
        return self.exchange.owner == "ours"

    def exchanges(self) -> tuple[objects.ExchangeDefinition, ...]:
        """Return the hash exchange with its ring, the slot exchanges and the parking exchange."""
        owner = self.exchange.owner
        park = self.names.park
        return (
            replace(
                self.exchange, ring=tuple(map(objects.RingMember, self.names.refs)), slots=None, members=None
            ),
            *(
                objects.ExchangeDefinition(
                    slot, "fanout", internal=True, arguments={objects.ALTERNATE_EXCHANGE: park}, owner=owner
                )
                for slot in self.names.slots
            ),
            objects.ExchangeDefinition(park, "fanout", internal=True, owner=owner),
        )

    def parking_queue(self) -> objects.QueueDefinition:
        """Return the default parking queue. A classic queue keeps the order if a consumer dies."""
        return objects.QueueDefinition(self.names.park, owner=self.exchange.owner)

    def bindings(self) -> tuple[objects.BindingDefinition, ...]:
        """Return the bindings of the slot exchanges and of the parking exchange."""
        pairs = (*self.owners.items(), (self.names.park, self.names.park))
        return tuple(
            objects.BindingDefinition(slot, queue, owner=self.exchange.owner) for slot, queue in pairs
        )


def expand(wanted: _Side, live: LiveTopology) -> _Side:
    """Return a topology with plain objects instead of exchanges with slots.

    A slot keeps its live queue as far as the weights permit.

    Raises:
        InputError: a member would get no slot, or lists of slots do not contain each slot once.
    """
    return expand_by(wanted, slot_layouts(wanted, live))


def expand_slots(
    wanted: Topology, live: LiveTopology
) -> tuple[Topology, LiveTopology, dict[str, SlotLayout]]:
    """Return both sides of a plan with plain objects instead of exchanges with slots, and the wanted exchanges with slots, by their names.

    Errors are those of `expand`.
    """
    if all(exchange.slots is None for side in (wanted, live) for exchange in side.exchanges):
        return wanted, live, {}
    live = expand(live, live)
    layouts = slot_layouts(wanted, live)
    return expand_by(wanted, layouts), live, layouts


def slot_layouts(wanted: AnyTopology, live: LiveTopology) -> dict[str, SlotLayout]:
    """Return the layout of each exchange with slots, by its name. Errors are those of `expand`."""
    slotted = [exchange for exchange in wanted.exchanges if exchange.slots is not None]
    layouts = {}
    for exchange in slotted:
        names = SlotNames(exchange.name, exchange.slots or 0)
        ring = find_live_ring(live, live.exchange(exchange.name), exchange.name).ring
        view = view_slots(exchange.name, ring, live.exchanges, live.bindings, members=names.refs)
        owners = assign_owners(names, exchange.members or (), view.map_of(ring), view.queues)
        layouts[exchange.name] = SlotLayout(exchange, names, owners)
    return layouts


def expand_by(wanted: _Side, layouts: Mapping[str, SlotLayout]) -> _Side:
    """Return a topology with plain objects instead of exchanges with slots, by its `slot_layouts`."""
    if not layouts:
        return wanted
    all_layouts = layouts.values()
    declared = {queue.name for queue in wanted.queues}
    return replace(
        wanted,
        exchanges=(
            *(exchange for exchange in wanted.exchanges if exchange.name not in layouts),
            *(exchange for layout in all_layouts for exchange in layout.exchanges()),
        ),
        queues=(
            *wanted.queues,
            *(layout.parking_queue() for layout in all_layouts if layout.names.park not in declared),
        ),
        bindings=(*wanted.bindings, *(binding for layout in all_layouts for binding in layout.bindings())),
    )


def collapse(live: LiveTopology) -> tuple[LiveTopology, dict[str, str]]:
    """Return a topology with `slots` and `members` instead of the plain objects of exchanges with slots, and why some stay plain.

    Each member lists the slots of its queue. An exchange is collapsed only if `expand` restores exactly the same objects. So it stays
    plain if a slot has two queues or none, an alternate exchange is missing, or the ring has another order.
    """
    of_source = grouped((binding.source, binding) for binding in live.bindings)
    layouts: list[SlotLayout] = []
    plain: dict[str, str] = {}
    for exchange in live.exchanges:
        if _has_a_slot(exchange):
            try:
                layouts.append(_find_layout(exchange, live, of_source))
            except _NotCollapsibleError as error:
                plain[exchange.name] = str(error)
    result = _remove_parts(live, layouts) if layouts else live
    if expand(result, live) == live:
        return result, plain
    return live, plain | {
        layout.exchange.name: "no topology file describes exactly these objects" for layout in layouts
    }


class _NotCollapsibleError(Exception):
    """The difference from an exchange with slots."""


def _has_a_slot(exchange: objects.ExchangeDefinition) -> bool:
    """Return True for a hash exchange with a member whose name is that of one of its slots."""
    prefix = SlotNames(exchange.name, 1).prefix
    return exchange.type == objects.HASH_EXCHANGE and any(
        isinstance(member.destination, ExchangeRef)
        and member.destination.name.startswith(prefix)
        and member.destination.name.removeprefix(prefix).isdigit()
        for member in exchange.ring or ()
    )


def _find_layout(
    exchange: objects.ExchangeDefinition,
    live: LiveTopology,
    of_source: dict[str, list[objects.BindingDefinition]],
) -> SlotLayout:
    """Return the slots of an exchange; raise _NotCollapsibleError if its objects differ from an exchange with slots."""
    members = exchange.ring or ()
    names = SlotNames(exchange.name, len(members))
    ring = live.rings.get(exchange.name)
    if ring is not None:
        _check_order("bucket", ring.buckets, names.refs)
    _check_order("member", [member.destination for member in members], names.refs)
    if unlike := [member for member in members if member != objects.RingMember(member.destination)]:
        raise _NotCollapsibleError(f"{unlike[0].destination} is not bound with the key 1 and no arguments")
    owners = _find_owners(names, of_source)
    if live.queue(names.park) is None:
        raise _NotCollapsibleError(f"queue {names.park} does not exist")
    plain = SlotLayout(exchange, names, owners)
    exchanges = {exchange.name: exchange for exchange in live.exchanges}
    for part in plain.exchanges():
        if exchanges.get(part.name) != part:
            raise _NotCollapsibleError(_difference(exchanges.get(part.name), part))
    for binding in plain.bindings():
        unexpected = [
            live_binding for live_binding in of_source.get(binding.source, ()) if live_binding != binding
        ]
        if unexpected:
            raise _NotCollapsibleError(f"there is the binding {unexpected[0].name}")
        if binding.source not in of_source:
            raise _NotCollapsibleError(f"there is no binding {binding.name}")
    shared = replace(exchange, ring=None, slots=names.count, members=plain.pin_members())
    return SlotLayout(shared, names, owners)


def _check_order(kind: str, live: Sequence[Place], wanted: Sequence[ExchangeRef]) -> None:
    for number, (place, slot) in enumerate(zip_longest(live, wanted)):
        if place == slot:
            continue
        if number >= len(live):
            raise _NotCollapsibleError(f"its ring has no {kind} {number}, which is that of {slot}")
        meant = f"not {slot}" if slot is not None else "and the slots end before it"
        raise _NotCollapsibleError(f"{kind} {number} of its ring is {place or 'a hole'}, {meant}")


def _difference(live: objects.ExchangeDefinition | None, wanted: objects.ExchangeDefinition) -> str:
    if live is None:
        return f"exchange {wanted.name} does not exist"
    fields = ", ".join(field.field for field in fields_between(live, wanted)) or "owner"
    return f"exchange {wanted.name} is not as a slot has it: {fields} differs"


def _find_owners(names: SlotNames, of_source: dict[str, list[objects.BindingDefinition]]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for slot in names.slots:
        places = [binding.destination for binding in of_source.get(slot, ())]
        if len(places) != 1 or not isinstance(places[0], str):
            has = " and ".join(map(str, places)) or "no queue"
            raise _NotCollapsibleError(f"{slot} is bound to {has}")
        owners[slot] = places[0]
    return owners


def _remove_parts(live: LiveTopology, layouts: list[SlotLayout]) -> LiveTopology:
    slotted = {layout.exchange.name: layout.exchange for layout in layouts}
    parts = {name for layout in layouts for name in layout.names.exchanges}
    parks = {layout.parking_queue() for layout in layouts}
    return replace(
        live,
        exchanges=tuple(
            slotted.get(exchange.name, exchange) for exchange in live.exchanges if exchange.name not in parts
        ),
        queues=tuple(queue for queue in live.queues if queue not in parks),
        bindings=tuple(binding for binding in live.bindings if binding.source not in parts),
    )


def queues_behind_slots(live: LiveTopology) -> list[str]:
    """Return the queues of the slots' alternate exchanges, by argument or policy."""
    alternates = {
        alternate_of(exchange, live.policies)
        for exchange in live.exchanges
        if exchange.internal and exchange.type == "fanout"  # as each slot is
    }
    queues = (binding.destination for binding in live.bindings if binding.source in alternates)
    return sorted({queue for queue in queues if isinstance(queue, str)})

"""Plain objects as the exchanges with slots that they are, where they are exactly that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING

from rabbit_chx.topology.objects import HASH_EXCHANGE, RingMember, order_of_name
from rabbit_chx.topology.slots.lowering import SlotLayout, laid_out
from rabbit_chx.topology.slots.slot_names import SlotNames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition

__all__ = ["folded"]


def folded(live: Topology) -> Topology:
    """Return a topology with `slots` and `members` in the place of the plain objects of exchanges with slots.

    That is done where `laid_out` of the result says exactly the same again. Whatever differs stays plain: a slot with two
    queues or none, a missing alternate exchange, another order of the ring.

    Args:
        live: what is there.
    """
    of_source: dict[str, list[BindingDefinition]] = {}
    for binding in live.bindings:
        of_source.setdefault(binding.source, []).append(binding)
    layouts = [
        layout for exchange in live.exchanges if (layout := _layout_of(exchange, live, of_source)) is not None
    ]
    found = _without(live, layouts) if layouts else live
    return found if laid_out(found, live) == live else live


def _layout_of(
    exchange: ExchangeDefinition, live: Topology, of_source: dict[str, list[BindingDefinition]]
) -> SlotLayout | None:
    """Return the slots that an exchange is made of; None if anything is not as it has to be."""
    if exchange.type != HASH_EXCHANGE or not exchange.ring:
        return None
    names = SlotNames(exchange.name, len(exchange.ring))
    ring = live.rings.get(exchange.name)
    if exchange.ring != tuple(map(RingMember, names.refs)) or (ring and ring.buckets != names.refs):
        return None
    owners = _owners(names, of_source)
    if owners is None or live.queue(names.park) is None:
        return None
    plain = SlotLayout(exchange, names, owners)
    there = {one.name: one for one in live.exchanges}
    if any(there.get(one.name) != one for one in plain.exchanges()):
        return None
    if any(of_source.get(one.source) != [one] for one in plain.bindings()):
        return None
    shared = replace(exchange, ring=None, slots=names.count, members=_members(owners.values()))
    return SlotLayout(shared, names, owners)


def _owners(names: SlotNames, of_source: dict[str, list[BindingDefinition]]) -> dict[str, str] | None:
    """Return the queue of each slot; None if one has none or several."""
    owners: dict[str, str] = {}
    for slot in names.slots:
        places = [binding.destination for binding in of_source.get(slot, ())]
        if len(places) != 1 or not isinstance(places[0], str):
            return None
        owners[slot] = places[0]
    return owners


def _members(owners: Iterable[str]) -> tuple[RingMember, ...]:
    """Return the members with weights that give each of them as many slots as it has."""
    counts = Counter(owners)
    divisor = gcd(*counts.values())
    if max(counts.values()) - min(counts.values()) <= 1:
        counts, divisor = Counter(dict.fromkeys(counts, 1)), 1
    return tuple(
        RingMember(queue, str(counts[queue] // divisor)) for queue in sorted(counts, key=order_of_name)
    )


def _without(live: Topology, layouts: list[SlotLayout]) -> Topology:
    """Return the topology without what the layouts add to it."""
    whole = {layout.exchange.name: layout.exchange for layout in layouts}
    gone = {name for layout in layouts for name in layout.names.exchanges}
    parks = {layout.parking_queue() for layout in layouts}
    return replace(
        live,
        exchanges=tuple(whole.get(one.name, one) for one in live.exchanges if one.name not in gone),
        queues=tuple(one for one in live.queues if one not in parks),
        bindings=tuple(one for one in live.bindings if one.source not in gone),
    )

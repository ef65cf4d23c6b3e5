"""What it moves to let the members of a plain ring share slots, and what a queue that comes or goes moves from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.objects import RingMember
from rabbit_chx.topology.planning.ring_movement import Movement
from rabbit_chx.topology.planning.walk_figures import best_walk
from rabbit_chx.topology.slots.slot_names import SlotNames
from rabbit_chx.topology.slots.slot_owners import owners_of_slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SlotForecast", "slot_forecast"]

#: The default of the documents, and so many for each queue: then a slot is a small part of what a queue has.
_LEAST_SLOTS = 64
_SLOTS_EACH = 10
#: More are not proposed: each slot is an exchange and a binding.
_MOST_SLOTS = 1024
_NEW = "the next queue"


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """What slots in the place of a ring move, now and later.

    Attributes:
        members: the queues that share the slots, by weight.
        slots: how many slots they share.
        moved: the exact share of keys that have another queue once the slots are there.
        moved_at_worst: the same at the worst moment on the way.
        next_weight: the weight of a queue that comes later: the smallest that a member has.
        moved_by_next: the exact share of keys that such a queue moves then.
        moved_by_leaving: the largest exact share that a member moves that goes then; None for a sole member.
    """

    members: tuple[RingMember, ...]
    slots: int
    moved: float
    moved_at_worst: float
    next_weight: int
    moved_by_next: float
    moved_by_leaving: float | None


def slot_forecast(
    exchange: str, live: HashRing, bound: Sequence[RingMember], wanted: Sequence[RingMember]
) -> SlotForecast | None:
    """Return what slots in the place of a ring move; None where slots are no way to these members.

    Slots are shared by queues alone, and not by so many that each could not have ten of 1,024.

    Args:
        exchange: the exchange's name.
        live: the plain ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members. Each destination is there once.
    """
    weights: dict[str, int] = {
        one.destination: weight_of(*one.binding) for one in wanted if isinstance(one.destination, str)
    }
    if not weights or len(weights) < len(wanted):
        return None
    least = min(weights.values())
    count = _LEAST_SLOTS
    while count * least < _SLOTS_EACH * (sum(weights.values()) + least):
        count *= 2
    names = SlotNames(exchange, count)
    if count > _MOST_SLOTS or {names.park, _NEW} & weights.keys():
        return None
    members = tuple(RingMember(queue, str(weight)) for queue, weight in weights.items())
    owners = {ExchangeRef(slot): queue for slot, queue in owners_of_slots(names, members, live, {}).items()}
    table = SlotTable(HashRing.from_buckets(names.refs, live.release), owners)
    movement = Movement(live)
    movement.renamed({slot: table.queue_of(slot) for slot in table.slots})
    try:
        best = best_walk(live, bound, [RingMember(slot) for slot in table.slots], (), movement)
    except InputError:
        return None
    if best is None:
        return None
    moved, at_worst, _ = best[1]
    shares = table.ring.shares()

    def moved_by(weights: Mapping[str, int]) -> float:
        return sum(shares.get(slot, 0.0) for slot in table.moved_slots(table.reassigned(weights)))

    leaving = [{other: weights[other] for other in weights if other != one} for one in weights]
    return SlotForecast(
        members,
        count,
        moved,
        at_worst,
        least,
        moved_by({**weights, _NEW: least}),
        max(map(moved_by, leaving)) if len(weights) > 1 else None,
    )

"""In whose hands the slots of an exchange are, before a plan, after it, and at each moment while they change hands.

The ring of such an exchange leads to slots. What a key's message meets in the end is the queue that has the slot. So movement is
counted by queue: a slot is called by the name of the queue that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing import ExchangeRef, HashRing, Place
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, is_slot

if TYPE_CHECKING:
    from rabbit_chx.topology.changes import PlannedChange
    from rabbit_chx.topology.model import Topology

__all__ = ["SlotHandOver", "SlotHands", "slot_hands"]

_ALTERNATE = "alternate-exchange"


class SlotHandOver(NamedTuple):
    """A slot that has another queue afterwards.

    Attributes:
        slot: the name of the slot exchange.
        old: the queue that has it before; None if there is none, or several.
        new: the queue that has it afterwards, likewise.
    """

    slot: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class SlotHands:
    """In whose hands the slots of an exchange are.

    Attributes:
        before: what each slot is called before the plan: its queue, the parking exchange, or the slot itself.
        after: the same afterwards.
        moved_at_worst: the largest share of keys with another queue than before, at any moment while slots change hands.
        lost_at_worst: the largest share of keys whose slot has neither a queue nor a park, at any such moment.
        handed_over: the slots of the ring that have another queue afterwards, in the order of the ring.
    """

    before: Mapping[Place, Place] = field(hash=False)
    after: Mapping[Place, Place] = field(hash=False)
    moved_at_worst: float
    lost_at_worst: float
    handed_over: tuple[SlotHandOver, ...]

    def ring_before(self, ring: HashRing) -> HashRing:
        """Return a ring with queues in the place of slots, as they are before.

        Args:
            ring: the ring.
        """
        return _named(ring, self.before)

    def ring_after(self, ring: HashRing) -> HashRing:
        """Return a ring with queues in the place of slots, as they are afterwards.

        Args:
            ring: the ring.
        """
        return _named(ring, self.after)


def slot_hands(
    ring: HashRing,
    members: Iterable[Place],
    wanted: Topology,
    live: Topology,
    changes: Sequence[PlannedChange],
) -> SlotHands | None:
    """Return in whose hands the slots of an exchange are; None if it has none.

    Args:
        ring: the ring that is there.
        members: the destinations of the ring that is wanted.
        wanted: what should be there, laid out as plain objects.
        live: what is there.
        changes: the binds and unbinds of bindings outside of rings, in order.
    """
    places = [one for one in dict.fromkeys((*ring.destinations, *members)) if isinstance(one, ExchangeRef)]
    if not places:
        return None
    bound: dict[str, list[BindingDefinition]] = {one.name: [] for one in places}
    wished: dict[str, list[BindingDefinition]] = {one.name: [] for one in places}
    for bindings, found in ((live.bindings, bound), (wanted.bindings, wished)):
        for binding in bindings:
            if binding.source in found:
                found[binding.source].append(binding)
    known = {one.name: one for one in (*wanted.exchanges, *live.exchanges)}
    slots = [
        one.name for one in places if is_slot(one, known.get(one.name), (*bound[one.name], *wished[one.name]))
    ]
    return _Hands(slots, bound, known).through(ring, changes) if slots else None


class _Hands:
    def __init__(
        self,
        slots: Sequence[str],
        bound: Mapping[str, Sequence[BindingDefinition]],
        known: Mapping[str, ExchangeDefinition],
    ) -> None:
        self._parks = {slot: _park_of(slot, known) for slot in slots}
        self._queues = {
            slot: dict.fromkeys(one for one in bound[slot] if isinstance(one.destination, str))
            for slot in slots
        }

    def through(self, ring: HashRing, changes: Sequence[PlannedChange]) -> SlotHands:
        """Return the hands before and after changes of bindings, and the worst moment between."""
        steps = [
            (change.action, change.subject)
            for change in changes
            if isinstance(change.subject, BindingDefinition) and change.subject.source in self._queues
        ]
        shares = ring.shares() if steps or not all(self._queues.values()) else {}
        before = self._names()
        lost = lost_at_worst = sum(
            shares.get(ExchangeRef(slot), 0.0) for slot in before if self._is_lost(slot)
        )
        moved = moved_at_worst = 0.0
        now = dict(before)
        for action, binding in steps:
            slot = binding.source
            share = shares.get(ExchangeRef(slot), 0.0)
            moved -= share * (now[slot] != before[slot])
            lost -= share * self._is_lost(slot)
            if action == "bind":
                self._queues[slot][binding] = None
            else:
                self._queues[slot].pop(binding, None)
            now[slot] = self._name(slot)
            moved += share * (now[slot] != before[slot])
            lost += share * self._is_lost(slot)
            moved_at_worst, lost_at_worst = max(moved, moved_at_worst), max(lost, lost_at_worst)
        over = tuple(
            SlotHandOver(place.name, _queue(before[place.name]), _queue(now[place.name]))
            for place in ring.destinations
            if isinstance(place, ExchangeRef) and before.get(place.name) != now.get(place.name)
        )
        return SlotHands(_by_place(before), _by_place(now), moved_at_worst, lost_at_worst, over)

    def _names(self) -> dict[str, Place]:
        return {slot: self._name(slot) for slot in self._queues}

    def _name(self, slot: str) -> Place:
        queues = {one.destination for one in self._queues[slot]}
        if len(queues) == 1:
            return queues.pop()
        park = self._parks[slot]
        return ExchangeRef(slot if queues or park is None else park)

    def _is_lost(self, slot: str) -> bool:
        return not self._queues[slot] and self._parks[slot] is None


def _park_of(slot: str, known: Mapping[str, ExchangeDefinition]) -> str | None:
    """Return the exchange that takes what a slot without a queue gets; None if nothing does."""
    exchange = known.get(slot)
    park = None if exchange is None else exchange.arguments.get(_ALTERNATE)
    return park if isinstance(park, str) and park in known else None


def _queue(name: Place) -> str | None:
    return name if isinstance(name, str) else None


def _by_place(names: Mapping[str, Place]) -> dict[Place, Place]:
    return {ExchangeRef(slot): name for slot, name in names.items()}


def _named(ring: HashRing, names: Mapping[Place, Place]) -> HashRing:
    return HashRing.from_buckets([names.get(place, place) for place in ring.buckets], ring.release)

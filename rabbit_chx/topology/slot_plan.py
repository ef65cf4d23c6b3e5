"""In whose hands the slots of an exchange are, before a plan, after it, and at each moment while they change hands.

The ring of such an exchange leads to slots. What a key's message meets in the end is the queue that has the slot. So movement is
counted by queue: a slot is called by the name of the queue that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rabbit_chx.routing import ExchangeRef, HashRing, Place
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, is_slot

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
        handed_over: the slots of the ring that have another queue afterwards, in the order of the ring.
    """

    before: Mapping[Place, Place] = field(hash=False)
    after: Mapping[Place, Place] = field(hash=False)
    handed_over: tuple[SlotHandOver, ...]

    def ring_before(self, ring: HashRing) -> HashRing:
        """Return a ring with queues in the place of slots, as they are before."""
        return _named(ring, self.before)

    def ring_after(self, ring: HashRing) -> HashRing:
        """Return a ring with queues in the place of slots, as they are afterwards."""
        return _named(ring, self.after)


def slot_hands(
    ring: HashRing,
    members: Collection[Place],
    wanted: Topology,
    live: Topology,
    changes: Sequence[PlannedChange],
) -> SlotHands | None:
    """Return in whose hands the slots of an exchange are before and after changes; None if it has none.

    Args:
        ring: the ring that is there.
        members: the destinations of the ring that is wanted.
        wanted: what should be there, expanded to plain objects.
        live: what is there.
        changes: the changes.
    """
    slots = SlotsThere.of((*ring.destinations, *members), wanted, live)
    if not slots.names:
        return None
    before = dict(slots.names)
    for change in changes:
        slots.change(change)
    over = tuple(
        SlotHandOver(
            place.name,
            *(name if isinstance(name, str) else None for name in (before[place], slots.names[place])),
        )
        for place in ring.destinations
        if isinstance(place, ExchangeRef) and place in members and before.get(place) != slots.names.get(place)
    )
    return SlotHands(before, slots.names, over)


class SlotsThere:
    """The slots of an exchange at a moment.

    Attributes:
        names: what each slot is called: its queue, the parking exchange, or the slot itself if it has several queues or nothing.
        lost: the slots that have neither a queue nor a park.
    """

    def __init__(self, slots: Iterable[Place], live: Topology) -> None:
        self._exchanges = {exchange.name: exchange for exchange in live.exchanges}
        self._queues: dict[str, dict[BindingDefinition, None]] = {
            slot.name: {} for slot in slots if isinstance(slot, ExchangeRef)
        }
        for binding in live.bindings:
            if binding.source in self._queues and isinstance(binding.destination, str):
                self._queues[binding.source][binding] = None
        self._parks: set[str] = set()
        self.names: dict[Place, Place] = {}
        self.lost: set[Place] = set()
        for slot in self._queues:
            self._name(slot)

    @classmethod
    def of(cls, places: Iterable[Place], wanted: Topology, live: Topology) -> SlotsThere:
        """Return the slots among the destinations of a ring, as they are there."""
        refs = dict.fromkeys(place for place in places if isinstance(place, ExchangeRef))
        bound: dict[str, list[BindingDefinition]] = {ref.name: [] for ref in refs}
        for binding in (*live.bindings, *wanted.bindings) if refs else ():
            if binding.source in bound:
                bound[binding.source].append(binding)
        known = {exchange.name: exchange for exchange in (*wanted.exchanges, *live.exchanges)}
        return cls([ref for ref in refs if is_slot(ref, known.get(ref.name), bound[ref.name])], live)

    def change(self, change: PlannedChange) -> bool:
        """Take note of a change, and return whether it is about slots."""
        if change.action in ("bind", "unbind"):
            binding = change.binding
            queues = self._queues.get(binding.source)
            if queues is None or not isinstance(binding.destination, str):
                return False
            if change.action == "bind":
                queues[binding] = None
            else:
                queues.pop(binding, None)
            self._name(binding.source)
            return True
        if not isinstance(change.subject, ExchangeDefinition):
            return False
        if change.wanted is None:
            self._exchanges.pop(change.name, None)
        else:
            self._exchanges[change.name] = change.subject
        for slot in self._queues if change.name in self._parks else self._queues.keys() & {change.name}:
            self._name(slot)
        return change.name in self._parks | self._queues.keys()

    def _name(self, slot: str) -> None:
        """Say what a slot is called now, and whether what it gets is lost."""
        itself, queues = ExchangeRef(slot), {binding.destination for binding in self._queues[slot]}
        exchange = self._exchanges.get(slot)
        park = None if exchange is None else exchange.arguments.get(_ALTERNATE)
        self.names[itself] = itself
        self.lost.discard(itself)
        if isinstance(park, str):
            self._parks.add(park)
        if len(queues) == 1:
            self.names[itself] = queues.pop()
        elif not queues and isinstance(park, str) and park in self._exchanges:
            self.names[itself] = ExchangeRef(park)
        elif not queues:
            self.lost.add(itself)


def _named(ring: HashRing, names: Mapping[Place, Place]) -> HashRing:
    return HashRing.from_buckets([names.get(place, place) for place in ring.buckets], ring.release)

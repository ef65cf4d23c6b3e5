"""Which queue owns a slot: on a broker, and at each moment of a plan.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    LINK_NAME,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
)
from rabbit_chx.topology.slots.owners import is_slot_name


@dataclass(slots=True)
class SlotView:
    """The slots of an exchange at one moment, with the bindings and the exchanges on which their owners depend.

    Attributes:
        bound: the bindings of each slot to queues, in the order of the ring; wanted slots follow.
        exchanges: the exchanges that exist.
        owners: the owner of each slot: its queue, the parking exchange if it has no queue, or else the slot itself.
        dead_ends: the slots with neither a queue nor a parking exchange.
    """

    exchange: str
    ring: HashRing
    bound: dict[ExchangeRef, dict[BindingDefinition, None]]
    exchanges: dict[str, ExchangeDefinition]
    owners: dict[Place, Place] = field(init=False, default_factory=dict)
    dead_ends: set[Place] = field(init=False, default_factory=set)
    _parks: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._update(self.bound)

    @property
    def queues(self) -> dict[ExchangeRef, tuple[str, ...]]:
        """The queues of each slot, in the order of the ring; normally one."""
        return {
            slot: tuple(sorted({str(binding.destination) for binding in bound}))
            for slot, bound in self.bound.items()
        }

    @property
    def other_exchanges(self) -> frozenset[ExchangeRef]:
        """The exchanges in the ring that are not slots."""
        exchanges = {place for place in self.ring.destinations if isinstance(place, ExchangeRef)}
        return frozenset(exchanges - self.bound.keys())

    @property
    def faults(self) -> dict[ExchangeRef, str]:
        """The reason for each slot that has no queue or several queues."""
        return {slot: self._fault(slot, queues) for slot, queues in self.queues.items() if len(queues) != 1}

    def _fault(self, slot: ExchangeRef, queues: Sequence[str]) -> str:
        name = f"slot {slot.name} of exchange {self.exchange!r}"
        if not queues:
            return f"{name} is bound to no queue: bind a queue to it"
        return (
            f"{name} is bound to {len(queues)} queues, {' and '.join(queues)}, and each of its messages is copied to all of "
            "them: unbind all but one of them"
        )

    def table(self, *, strict: bool = False) -> SlotTable:
        """Return the table of the slots.

        In it, a slot without a queue has no owner. A slot with several queues is another exchange, which is the destination of its keys. So
        such a slot concerns only its own keys.

        Raises:
            MismatchError: with `strict`, a slot has several queues.
        """
        queues = self.queues
        several = [slot for slot, its in queues.items() if len(its) > 1]
        if strict and several:
            slot = several[0]
            raise MismatchError(self._fault(slot, queues[slot]), exchange=slot.name, queue=queues[slot][-1])
        sole_owners = {slot: its[0] for slot, its in queues.items() if len(its) == 1}
        return SlotTable(self.ring, sole_owners, self.other_exchanges | set(several))

    def key_map(self) -> HashRing | SlotTable:
        """Return the table of the slots, or the ring of an exchange without slots."""
        return self.table() if self.bound else self.ring

    def map_of(self, ring: KeyMap, others: Mapping[Place, Place] | None = None) -> KeyMap:
        """Return a ring with the owners in place of its slots; `others` are owners that count instead."""
        owners = {**self.owners, **(others or {})}
        if not owners:
            return ring
        return HashRing.from_buckets([owners.get(place, place) for place in ring.buckets], ring.release)

    def at(self, changes: Iterable[PlannedChange]) -> SlotView:
        """Return the slots after changes."""
        bound = {slot: dict(bindings) for slot, bindings in self.bound.items()}
        view = SlotView(self.exchange, self.ring, bound, dict(self.exchanges))
        for change in changes:
            view.apply(change)
        return view

    def apply(self, change: PlannedChange) -> Collection[ExchangeRef]:
        """Apply a change to this view, and return the slots that it concerns."""
        if change.action in ("bind", "unbind"):
            slot = ExchangeRef(change.binding.source)
            if slot not in self.bound or not isinstance(change.binding.destination, str):
                return ()
            if change.action == "bind":
                self.bound[slot][change.binding] = None
            else:
                self.bound[slot].pop(change.binding, None)
            return self._update((slot,))
        if not isinstance(change.subject, ExchangeDefinition):
            return ()
        if change.wanted is None:
            self.exchanges.pop(change.name, None)
        else:
            self.exchanges[change.name] = change.subject
        is_park = change.name in self._parks
        return self._update(self.bound if is_park else self.bound.keys() & {ExchangeRef(change.name)})

    def _update(self, slots: Collection[ExchangeRef]) -> Collection[ExchangeRef]:
        for slot in slots:
            queues = {binding.destination for binding in self.bound[slot]}
            exchange = self.exchanges.get(slot.name)
            park = None if exchange is None else exchange.alternate
            if park is not None:
                self._parks.add(park)
            self.owners[slot] = slot
            self.dead_ends.discard(slot)
            if len(queues) == 1:
                self.owners[slot] = queues.pop()
            elif not queues and park is not None and park in self.exchanges:
                self.owners[slot] = ExchangeRef(park)
            elif not queues:
                self.dead_ends.add(slot)
        return slots


def view_slots(
    exchange: str,
    ring: HashRing,
    exchanges: Iterable[ExchangeDefinition],
    bindings: Iterable[BindingDefinition],
    *,
    members: Iterable[Place] = (),
    planned: ObjectSet | None = None,
) -> SlotView:
    """Return the slots of an exchange, from its ring, and from exchanges and bindings.

    Args:
        exchange: the exchange's name.
        ring: its ring.
        exchanges: the exchanges that exist.
        bindings: the bindings that exist.
        members: the destinations of another ring, whose slots count, too.
        planned: objects that are planned. They, too, show which exchanges are slots.
    """
    refs = [place for place in (*ring.destinations, *members) if isinstance(place, ExchangeRef)]
    if not refs:
        return SlotView(exchange, ring, {}, {})
    listed = {definition.name: definition for definition in exchanges}
    known = listed
    bound = _bindings_of(refs, bindings)
    shown = bound
    if planned is not None:
        known = listed | {definition.name: definition for definition in planned.exchanges}
        shown = {place: own | bound[place] for place, own in _bindings_of(refs, planned.bindings).items()}
    slots = {
        place: {binding: None for binding in own if isinstance(binding.destination, str)}
        for place, own in bound.items()
        if _is_slot(place, known.get(place.name), shown[place])
    }
    return SlotView(exchange, ring, slots, listed)


def _bindings_of(
    sources: Iterable[ExchangeRef], bindings: Iterable[BindingDefinition]
) -> dict[ExchangeRef, dict[BindingDefinition, None]]:
    bound: dict[ExchangeRef, dict[BindingDefinition, None]] = {source: {} for source in sources}
    for binding in bindings:
        if (source := ExchangeRef(binding.source)) in bound:
            bound[source][binding] = None
    return bound


def _is_slot(
    place: ExchangeRef, listed: ExchangeDefinition | None, bindings: Collection[BindingDefinition]
) -> bool:
    """Return True if an exchange in a ring is a slot, from its definition (`listed`, if it is listed) and its bindings.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So an exchange that is not listed is a slot
    by its name, or if it is bound like a slot: with an empty key. The exchange of a federation link is none.
    """
    if any(isinstance(binding.destination, ExchangeRef) for binding in bindings) or LINK_NAME.fullmatch(
        place.name
    ):
        return False
    if listed is None:
        is_bound_alike = bool(bindings) and all(not binding.routing_key for binding in bindings)
        return is_bound_alike or is_slot_name(place.name)
    return listed.internal and listed.type == "fanout"

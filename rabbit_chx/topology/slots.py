"""Which queue owns a slot: on a broker, and at each moment of a plan.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.slot_table import kept_slots, slot_counts
from rabbit_chx.text import grouped
from rabbit_chx.topology import objects
from rabbit_chx.topology.schema import PlannedChange

# -- The names of the slots of an exchange, and the queue that owns each slot
# The file lists the slots of each queue, or its weights determine them, with as few keys moved as possible.

_LEAST_WIDTH = 2
_SLOT_NAME = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)


def is_slot_name(name: str) -> bool:
    """Return True for a name as those of slot exchanges."""
    return _SLOT_NAME.fullmatch(name) is not None


def slot_width(count: int) -> int:
    """Return the number of digits in the names of `count` slots."""
    return max(_LEAST_WIDTH, len(str(count - 1)))


@dataclass(frozen=True, slots=True)
class SlotNames:
    """The names of the objects of an exchange with slots."""

    exchange: str
    count: int

    @property
    def prefix(self) -> str:
        """The prefix of each slot exchange's name; its number follows."""
        return f"{self.exchange}.slot."

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slot exchanges, in the order of the ring."""
        width = slot_width(self.count)
        return tuple(f"{self.prefix}{number:0{width}d}" for number in range(self.count))

    @property
    def refs(self) -> tuple[ExchangeRef, ...]:
        """The slot exchanges as destinations of the ring, in its order."""
        return tuple(map(ExchangeRef, self.slots))

    @property
    def park(self) -> str:
        """The name of the parking exchange, and of the parking queue."""
        return f"{self.exchange}.park"

    @property
    def exchanges(self) -> frozenset[str]:
        """The names of all exchanges that the layout adds."""
        return frozenset((*self.slots, self.park))


def number_slots(exchange: str, bound: Sequence[objects.RingMember]) -> tuple[objects.RingMember, ...] | None:
    """Return the members of a ring of slots in the order of their numbers; None if they are not the slots of an exchange."""
    members = tuple(map(objects.RingMember, SlotNames(exchange, len(bound)).refs))
    return members if bound and set(members) == set(bound) else None


def pin_members(owners: Iterable[str]) -> tuple[objects.RingMember, ...]:
    """Return the queues, sorted by name, with the numbers of their slots. `owners` are the queues of the slots, in the order of the slots."""
    slots_of = grouped((queue, number) for number, queue in enumerate(owners))
    return tuple(
        objects.RingMember(queue, slots=tuple(slots_of[queue]))
        for queue in sorted(slots_of, key=objects.order_of_name)
    )


def repair_members(
    exchange: str, bound: Sequence[objects.RingMember], ring: HashRing | None
) -> tuple[objects.RingMember, ...]:
    """Return the members that the ring of an exchange has after a repair without a file: a check and a repair compare the ring with them.

    Each bound destination is a member once, in the order of the ring; destinations without a bucket are last. Of several bindings of a
    destination, the one whose weight is its number of buckets stays, or else the first. Slots are in the order of their numbers.

    Args:
        exchange: the exchange's name.
        bound: its bindings.
        ring: its ring; None if it is not known.
    """
    by_destination = grouped((member.destination, member) for member in bound)
    order = [] if ring is None else [place for place in ring.destinations if place in by_destination]
    silent = [place for place in by_destination if place not in set(order)]
    members = tuple(_choose_member(by_destination[place], ring) for place in (*order, *silent))
    return number_slots(exchange, members) or members


def _choose_member(members: Sequence[objects.RingMember], ring: HashRing | None) -> objects.RingMember:
    if ring is None or len(members) == 1:
        return members[0]
    count = ring.buckets.count(members[0].destination)
    return next((member for member in members if member.weight == count), members[0])


#: The share of the keys of each slot that each queue has now.
_Kept = dict[str, dict[Place, float]]


def assign_owners(
    names: SlotNames,
    members: Sequence[objects.RingMember],
    now: KeyMap,
    bound: Mapping[ExchangeRef, Sequence[str]],
) -> dict[str, str]:
    """Return the queue of each wanted slot, in the order of the slots.

    A slot keeps its queue as far as the weights permit. A slot without a queue is assigned to the queue that has most of its keys now.

    Args:
        names: the names of the slots.
        members: the queues that share them, with weights or lists.
        now: the live map of the exchange, as `SlotView.map_of` returns it; empty if it does not exist.
        bound: the queues of the live slots.

    Raises:
        InputError: there are no members, a queue would get no slot, or lists of slots do not contain each slot once.
    """
    if any(member.slots is not None for member in members):
        return _read_lists(names, members)
    weights = {str(member.destination): member.weight for member in members}
    live_owners = {}
    for slot in names.slots:
        queues = bound.get(ExchangeRef(slot))
        if queues:
            live_owners[slot] = next((queue for queue in queues if queue in weights), queues[0])
    counts = slot_counts(names.count, weights, Counter(live_owners.values()))
    owners, remaining = kept_slots(names.slots, live_owners, counts)
    free = [slot for slot in names.slots if slot not in owners]
    if free:
        kept = _find_kept_shares(names, now) if any(slot not in live_owners for slot in free) else {}
        owners |= _share_out(free, remaining, kept)
    return {slot: owners[slot] for slot in names.slots}


def _read_lists(names: SlotNames, members: Sequence[objects.RingMember]) -> dict[str, str]:
    owners: dict[str, str] = {}
    slots = names.slots
    exchange = names.exchange
    for member in members:
        for number in member.slots or ():
            if not 0 <= number < names.count or slots[number] in owners:
                raise InputError(
                    f"slot {number} of {exchange} is listed twice, or there is none: list each of 0 to {names.count - 1} once"
                )
            owners[slots[number]] = str(member.destination)
    missing = [number for number, slot in enumerate(slots) if slot not in owners]
    if missing:
        raise InputError(
            f"slot {missing[0]} of {exchange} is not listed: list each of 0 to {names.count - 1} once"
        )
    return {slot: owners[slot] for slot in slots}


def _share_out(free: Sequence[str], remaining: dict[str, int], kept: _Kept) -> dict[str, str]:
    """Assign the free slots: those that keep the most keys first, then in the order of slots and of names."""
    takers = sorted((queue for queue, count in remaining.items() if count), key=objects.order_of_name)
    wishes = sorted(
        (-kept.get(slot, {}).get(queue, 0.0), number, place)
        for number, slot in enumerate(free)
        for place, queue in enumerate(takers)
    )
    owners: dict[str, str] = {}
    for _, number, place in wishes:
        queue = takers[place]
        if remaining[queue] and free[number] not in owners:
            remaining[queue] -= 1
            owners[free[number]] = queue
    return owners


def _find_kept_shares(names: SlotNames, now: KeyMap) -> _Kept:
    """Return the share of the keys of each slot that each destination has now; empty without buckets."""
    kept: _Kept = {}
    if now.bucket_count:
        slots = HashRing.from_buckets(names.refs, now.release)
        for (place, slot), share in now.flows(slots).items():
            assert isinstance(slot, ExchangeRef)  # each bucket is that of a slot
            kept.setdefault(slot.name, {})[place] = share
    return kept


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
    bound: dict[ExchangeRef, dict[objects.BindingDefinition, None]]
    exchanges: dict[str, objects.ExchangeDefinition]
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
        if not isinstance(change.subject, objects.ExchangeDefinition):
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
    exchanges: Iterable[objects.ExchangeDefinition],
    bindings: Iterable[objects.BindingDefinition],
    *,
    members: Iterable[Place] = (),
    planned: objects.ObjectSet | None = None,
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
    sources: Iterable[ExchangeRef], bindings: Iterable[objects.BindingDefinition]
) -> dict[ExchangeRef, dict[objects.BindingDefinition, None]]:
    bound: dict[ExchangeRef, dict[objects.BindingDefinition, None]] = {source: {} for source in sources}
    for binding in bindings:
        if (source := ExchangeRef(binding.source)) in bound:
            bound[source][binding] = None
    return bound


def _is_slot(
    place: ExchangeRef,
    listed: objects.ExchangeDefinition | None,
    bindings: Collection[objects.BindingDefinition],
) -> bool:
    """Return True if an exchange in a ring is a slot, from its definition (`listed`, if it is listed) and its bindings.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So an exchange that is not listed is a slot
    by its name, or if it is bound like a slot: with an empty key. The exchange of a federation link is none.
    """
    if any(
        isinstance(binding.destination, ExchangeRef) for binding in bindings
    ) or objects.LINK_NAME.fullmatch(place.name):
        return False
    if listed is None:
        is_bound_alike = bool(bindings) and all(not binding.routing_key for binding in bindings)
        return is_bound_alike or is_slot_name(place.name)
    return listed.internal and listed.type == "fanout"


# -- The markers of a hand-over of a slot, and the tags of the consumers that answer them. Values, without I/O


_TAG_PREFIX = "rabbit-chx.group."
_TAG = re.compile(rf"{re.escape(_TAG_PREFIX)}(.+)\.[^.]+", re.DOTALL)
#: The mover of a slot sends flush, begin and end; the consumers reply flushed and taken.
MarkerKind: TypeAlias = Literal["flush", "begin", "end", "flushed", "taken"]
_KINDS: tuple[MarkerKind, ...] = get_args(MarkerKind)
_FIELDS = ("kind", "slot", "id", "park")


@dataclass(frozen=True, slots=True)
class HandOverMarker:
    """A marker.

    Attributes:
        kind: ``flush`` requests that the consumer of the old queue replies ``flushed`` when it has handled all earlier messages. ``begin``
            requests that the consumer of the new queue reads the parking queue up to ``end``, and then replies ``taken``.
        slot: the name of the slot exchange.
        id: identifies the hand-over. A reply has the id of its request.
        park: the name of the parking queue.

    Raises:
        InputError: a field is not text, or the kind is unknown.
    """

    HEADER: ClassVar[str] = "x-rabbit-chx-hand-over"

    kind: MarkerKind
    slot: str
    id: str
    park: str

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InputError(f"the {name} of a hand-over marker is {value!r:.60}: pass text")
        if self.kind not in _KINDS:
            raise InputError(
                f"a hand-over marker of the kind {self.kind!r:.60}: pass one of {', '.join(_KINDS)}"
            )

    def headers(self) -> dict[str, dict[str, str]]:
        """Return the headers of the message for pika and aio-pika."""
        return {self.HEADER: {name: str(getattr(self, name)) for name in _FIELDS}}

    def as_kind(self, kind: MarkerKind) -> HandOverMarker:
        """Return another marker of the same hand-over."""
        return HandOverMarker(kind, self.slot, self.id, self.park)

    def reply(self, kind: Literal["flushed", "taken"]) -> HandOverMarker:
        """Return the reply to this marker."""
        return self.as_kind(kind)

    @classmethod
    def from_headers(cls, headers: Mapping[str, Any] | None) -> HandOverMarker | None:
        """Return the marker in a message's headers; None if the message is not a marker or has no headers."""
        table = (headers or {}).get(cls.HEADER)
        if not isinstance(table, Mapping):
            return None
        values = [table.get(name) for name in _FIELDS]
        kind = values[0]
        rest = values[1:]
        known = next((marker for marker in _KINDS if marker == kind), None)
        if known is None or not all(isinstance(value, str) for value in rest):
            return None
        return cls(known, *map(str, rest))


def make_consumer_tag(member: str) -> str:
    """Return a new consumer tag of a group member."""
    return f"{_TAG_PREFIX}{member}.{secrets.token_hex(4)}"


def parse_member(consumer_tag: str) -> str | None:
    """Return the group member of a consumer tag; None if the consumer does not belong to a group."""
    match = _TAG.fullmatch(consumer_tag)
    return match and match[1]

"""Slots: exchanges that are the destinations of a ring, and their queues.

A slot is an internal fanout exchange, bound once to the hash exchange and to its queue. A bind and an unbind of the slot change its queue,
and the ring does not change. So only the keys of the reassigned slots move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef, OrderKnowledge, Place
from rabbit_chx.routing.key_map import KeyMap, set_fields
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import (
    HashRing,
    JumpHash,
    RingSummary,
    check_ring,
    ring_of_json,
    ring_of_unknown_order,
)
from rabbit_chx.text import command_text, plural

_Slot = TypeVar("_Slot")
#: The origin of slots that a topology file assigns to queues by weight, and the remedy.
_ASSUMED_OWNERS = (
    "assumed as on a new broker, because the file does not list the slots of each queue "
    f"({command_text('arrange', 'FILE', '--write')} lists those of the broker, and so does arrange(wanted, live) in Python)"
)


class SlotSummary(RingSummary):
    """What a JSON document says of a ring with slots; `slots` has the queue of each."""

    slots: Mapping[str, Place]


@dataclass(frozen=True, slots=True, init=False, repr=False)
class SlotTable(KeyMap):
    """The slots of a ring and their queues: a key map.

    Each exchange that is a destination of the ring is a slot, except `other_exchanges`. The keys of a slot without a queue have no
    destination. Queues and other exchanges that are destinations of the ring get their keys directly.

    Attributes:
        ring: the ring of the hash exchange.
        owners: the queue of each slot.
        other_exchanges: the exchanges among the destinations of the ring that are not slots, including a slot with several queues, each of
            which gets all of its messages.
        owners_assumed: whether `owners` is the assignment of a new broker, because a topology file does not contain it.
    """

    _hash = JumpHash

    ring: HashRing
    owners: Mapping[ExchangeRef, str] = field(hash=False)
    other_exchanges: frozenset[ExchangeRef]
    owners_assumed: bool = field(compare=False)
    slots: tuple[ExchangeRef, ...] = field(init=False, compare=False)

    def __init__(
        self,
        ring: HashRing,
        owners: Mapping[ExchangeRef, str],
        other_exchanges: Iterable[ExchangeRef] = frozenset(),
        *,
        owners_assumed: bool = False,
    ) -> None:
        """Create the table; the arguments are the attributes of the class.

        Raises:
            InputError: an argument is invalid.
        """
        check_ring(ring)
        if not isinstance(owners, Mapping):
            raise InputError(
                f"{owners!r:.60} is not a mapping of slots to queues: pass a mapping of ExchangeRef to queue"
            )

        owners = MappingProxyType(dict(owners))
        others = frozenset(other_exchanges)
        exchanges = {place: None for place in ring.destinations if isinstance(place, ExchangeRef)}
        for slot, queue in owners.items():
            if not isinstance(slot, ExchangeRef):
                raise InputError(f"{slot!r:.60} is not a slot: pass an ExchangeRef")
            if not isinstance(queue, str):
                raise InputError(f"the slot {slot} is assigned to {queue!r:.60}: pass the name of a queue")
            if slot not in exchanges:
                raise InputError(
                    f"{slot} is not a destination of the ring: bind it to the exchange, or leave it out"
                )

        if owned := sorted(slot.name for slot in owners if slot in others):
            raise InputError(f"{owned[0]} has a queue and is in other_exchanges: leave it out of one of them")

        slots = {place: owners.get(place) for place in exchanges if place not in others}
        KeyMap.__init__(self, ring.buckets, ring.hashing, ring.order, slots)
        set_fields(self, ring=ring, owners=owners, other_exchanges=others, owners_assumed=owners_assumed)

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(SlotTable, owners_assumed=self.owners_assumed)
        return make, (self.ring, dict(self.owners), self.other_exchanges)

    def __repr__(self) -> str:
        return f"<SlotTable {len(self.owners)} slots, {len(self.destinations)} queues, {self.ring.provenance or 'of unknown order'}>"

    @property
    def release(self) -> Release:
        """The release of the ring."""
        return self.ring.release

    @property
    def bindings(self) -> tuple[Binding, ...] | None:
        """The bindings of the ring."""
        return self.ring.bindings

    @property
    def underlying(self) -> HashRing:
        """The ring."""
        return self.ring

    def queue_of(self, place: Place) -> Place:
        """Return the queue of a slot, None if it has none; any other destination is returned unchanged.

        Args:
            place: a destination of the ring, or None for a hole.
        """
        if not isinstance(place, ExchangeRef) or place in self.other_exchanges:
            return place
        return self.owners.get(place)

    def bind(self, destination: Destination, weight: int | str) -> SlotTable:
        """Raise an InputError: a bind to the ring does not determine which slots move; see `reassigned`.

        Args:
            destination: the queue or exchange.
            weight: the binding key.
        """
        raise _refuse_change("a bind", destination, weight)

    def unbind(self, destination: Destination, weight: int | str | None = None) -> SlotTable:
        """Raise an InputError, as `bind`.

        Args:
            destination: the queue or exchange.
            weight: the binding key.
        """
        raise _refuse_change("an unbind", destination, weight)

    def with_release(self, release: Release) -> SlotTable:
        """Return the same table under the rules of another release, as an assumption.

        Args:
            release: the release whose rules apply.
        """
        return replace(self, ring=self.ring.with_release(release))

    def facts(self) -> tuple[str, ...]:
        """Return the origin, the rules and the size in words, for a report."""
        origin, rules, _ = self.ring.facts()
        size = f"{plural(len(self.ring.buckets), 'bucket')}, {plural(len(self.destinations), 'destination')}"
        size = size if self.ring.buckets else self.ring.facts()[-1]
        return (
            _ASSUMED_OWNERS if self.owners_assumed else origin,
            rules,
            f"{size}, {plural(len(self.slots), 'slot')}",
        )

    def summary(self) -> SlotSummary:
        """Return release, provenance, size, destinations, and the queue of each slot."""
        return {
            **self.ring.summary(),
            "destinations": self.destinations,
            "slots": {slot.name: self.owners.get(slot) for slot in self.slots},
        }

    def reassigned(self, weights: Mapping[str, int]) -> SlotTable:
        """Return a table with these weights that moves the fewest slots.

        Each queue gets ``slots * weight / sum of weights`` slots, rounded up or down. Slots of other queues are reassigned. `slot_counts`
        explains why the number of moves is minimal.

        Args:
            weights: the weight of each queue, an integer from 1.

        Raises:
            InputError: a weight is not an integer from 1, or a queue would get no slot.
        """
        return replace(self, owners=assign_slots(self.slots, self.owners, dict(weights)))

    @classmethod
    def _of_unknown_order(cls, read: Mapping[str, Any], order: OrderKnowledge) -> SlotTable:
        return cls._of_json(read, [*ring_of_unknown_order(read, order).buckets], order)

    @classmethod
    def _of_json(cls, read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge) -> SlotTable:
        ring = ring_of_json(read, buckets, order)
        queues = read.get("slots")
        if queues is None:
            raise InputError("this is a ring without slots: read it with HashRing.from_json")
        if not isinstance(queues, dict) or not all(
            queue is None or isinstance(queue, str) for queue in queues.values()
        ):
            raise InputError(
                "the table's slots are not a mapping of slot to queue: write it again with to_json"
            )

        named = {ExchangeRef(name): queue for name, queue in queues.items()}
        places = set(ring.destinations)
        if unbound := [slot for slot in named if slot not in places]:
            raise InputError(
                f"the table's {unbound[0]} is not a destination of its ring: write it again with to_json"
            )

        others = {place for place in places if isinstance(place, ExchangeRef) and place not in named}
        return cls(ring, {slot: queue for slot, queue in named.items() if queue is not None}, others)


def _refuse_change(change: str, destination: Destination, weight: int | str | None) -> InputError:
    bound = f"{destination!s}" if weight is None else f"{destination!s}={weight}"
    return InputError(
        f"the queues of this ring share slots, and {change} of {bound} does not determine which slots move: change `members` in "
        f"a topology file and run {command_text('plan', 'FILE')} (`plan(wanted, live)`), or compare two slot tables"
    )


def slot_counts(slots: int, weights: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Return the number of slots of each queue, by weight, such that the fewest slots move.

    With N slots and weights w, a queue's quota is ``N * w / sum(w)``, rounded down or up. Queues that have more slots than the rounded-down
    number are rounded up first, so they keep one slot more. Then the largest fractions are rounded up.

    Within these bounds the number of moves is minimal: a slot must move if it has no queue, or if its queue has more slots than its number,
    and each rounding up of such a queue keeps one slot. Tests compare this with all assignments of small cases, and check the bounds on
    100,000 generated ones. `held` is the current number of slots of each queue; queues without slots may be absent.
    """
    for queue, weight in weights.items():
        if not is_whole(weight, 1):
            raise InputError(
                f"the weight of {queue!r} is {weight!r:.40}: pass a whole number from 1", queue=queue
            )
    if not weights:
        raise InputError("there is no queue to share the slots: pass at least one")
    total = sum(weights.values())
    counts = {queue: slots * weight // total for queue, weight in weights.items()}
    fractions = {queue: slots * weight % total for queue, weight in weights.items()}

    def comes_first(queue: str) -> tuple[bool, int, str]:
        return held.get(queue, 0) <= counts[queue], -fractions[queue], queue

    rounded_up = sorted((queue for queue in counts if fractions[queue]), key=comes_first)
    for queue in rounded_up[: slots - sum(counts.values())]:
        counts[queue] += 1
    for queue, count in counts.items():
        if not count:
            raise InputError(
                f"queue {queue!r} would get none of the {slots} slots, with a weight of {weights[queue]} of {total}: make more "
                "slots, or set a larger weight",
                queue=queue,
            )
    return counts


def assign_slots(
    slots: Sequence[_Slot], owners: Mapping[_Slot, str], weights: Mapping[str, int]
) -> dict[_Slot, str]:
    """Return the queue of each slot such that the fewest slots move.

    A queue with too many slots loses the last ones. The result does not depend on the order of the weights.
    """
    held = Counter(owners[slot] for slot in slots if slot in owners)
    kept, remaining = kept_slots(slots, owners, slot_counts(len(slots), weights, held))
    takers = iter([queue for queue in sorted(remaining) for _ in range(remaining[queue])])
    return {slot: kept.get(slot) or next(takers) for slot in slots}


def kept_slots(
    slots: Sequence[_Slot], owners: Mapping[_Slot, str], counts: Mapping[str, int]
) -> tuple[dict[_Slot, str], dict[str, int]]:
    """Return the slots that remain with their queue, and the number of further slots of each queue."""
    remaining = dict(counts)
    kept: dict[_Slot, str] = {}
    for slot in slots:
        queue = owners.get(slot)
        if queue is not None and remaining.get(queue, 0):
            remaining[queue] -= 1
            kept[slot] = queue
    return kept, remaining

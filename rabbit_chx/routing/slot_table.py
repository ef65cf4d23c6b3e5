"""Slots: exchanges that are the destinations of a ring, and the queues that have them.

A slot is an internal fanout exchange, bound once to the hash exchange and to the queue that has it. A queue changes hands by
one bind and one unbind behind the ring, and the ring itself never changes. So only the keys of the slots that change hands
move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from rabbit_chx.routing import slot_json
from rabbit_chx.routing.bindings import Destination, ExchangeRef, Place
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import HashRing, check_ring
from rabbit_chx.routing.ring_state import Provenance
from rabbit_chx.routing.slot_assignment import assigned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SlotOwners(Mapping[ExchangeRef, str]):
    """Which queue has which slot. A mapping that does not change."""

    __slots__ = ("_owners",)

    def __init__(self, owners: Mapping[ExchangeRef, str]) -> None:
        if not isinstance(owners, Mapping):
            raise InputError(
                f"{owners!r:.60} does not say who has which slot: give a mapping of ExchangeRef to queue"
            )
        for slot, queue in owners.items():
            if not isinstance(slot, ExchangeRef):
                raise InputError(f"{slot!r:.60} is no slot: give an ExchangeRef")
            if not isinstance(queue, str):
                raise InputError(f"the slot {slot} goes to {queue!r:.60}: give the name of a queue")
        self._owners = dict(owners)

    def __getitem__(self, slot: ExchangeRef) -> str:
        return self._owners[slot]

    def __iter__(self) -> Iterator[ExchangeRef]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def __hash__(self) -> int:
        return hash(frozenset(self._owners.items()))

    def __repr__(self) -> str:
        return f"SlotOwners({self._owners!r})"


@dataclass(frozen=True, slots=True, repr=False)
class SlotTable:
    """Who has which slot of a ring, and so which queue gets which key. A value.

    Each exchange that is a destination of the ring is a slot, but for `other_exchanges`. The keys of a slot that nobody has
    have no queue. A queue that is itself a destination of the ring has its own keys, and so has another exchange.

    Attributes:
        ring: the ring of the hash exchange.
        owners: the queue of each slot.
        other_exchanges: the exchanges among the destinations of the ring that are no slots. On a broker a slot with several
            queues is one of them: each of its messages goes to all of these queues.
        owners_assumed: whether the queues of the slots are those of a new broker, as a topology file does not say them.
        destinations: what has keys, in the order of the ring: the queues, and the other exchanges.
    """

    ring: HashRing
    owners: Mapping[ExchangeRef, str]
    other_exchanges: frozenset[ExchangeRef] = frozenset()
    owners_assumed: bool = field(default=False, compare=False, kw_only=True)
    destinations: tuple[Destination, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_ring(self.ring)
        owners = SlotOwners(self.owners)
        destinations = frozenset(self.ring.destinations)
        for slot in owners:
            if slot not in destinations:
                raise InputError(
                    f"{slot} is no destination of the ring: bind it to the exchange, or leave it out"
                )
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "owners", owners)
        object.__setattr__(self, "other_exchanges", frozenset(self.other_exchanges))
        if owned := sorted(slot.name for slot in owners if slot in self.other_exchanges):
            raise InputError(f"{owned[0]} has a queue and is said to be no slot: leave it out of one of them")
        queues = dict.fromkeys(map(self.queue_of, self.ring.destinations))
        object.__setattr__(self, "destinations", tuple(queue for queue in queues if queue is not None))

    def queue_of(self, place: Place) -> Place:
        """Return what gets the messages of a destination of the ring: the queue of a slot; None where it has none.

        A queue, and an exchange that is no slot, gets its own.

        Args:
            place: a destination of the ring, or None for a hole.
        """
        if not isinstance(place, ExchangeRef) or place in self.other_exchanges:
            return place
        return self.owners.get(place)

    def __repr__(self) -> str:
        return (
            f"<SlotTable {len(self.owners)} slots, {len(self.destinations)} queues, {self.ring.provenance}>"
        )

    @property
    def slots(self) -> tuple[ExchangeRef, ...]:
        """The slots, in the order of the ring."""
        return tuple(
            place
            for place in self.ring.destinations
            if isinstance(place, ExchangeRef) and place not in self.other_exchanges
        )

    @property
    def release(self) -> Release:
        """The release of the ring."""
        return self.ring.release

    @property
    def provenance(self) -> Provenance:
        """The provenance of the ring."""
        return self.ring.provenance

    def with_release(self, release: Release) -> SlotTable:
        """Return the same table under the rules of another release: an assumption.

        Args:
            release: the release whose rules apply.
        """
        return replace(self, ring=self.ring.with_release(release))

    def destination_for(self, key: str | bytes) -> Place:
        """Return the queue of a routing key; None where its slot has none.

        Args:
            key: text (its UTF-8 bytes) or bytes.

        Raises:
            EmptyRingError: the ring has no buckets.
            InputError: the key is neither text nor bytes.
        """
        return self.queue_of(self.ring.destination_for(key))

    def indices(self, keys: Iterable[Any], *, fill_null: str | bytes | None = None) -> NDArray[np.int32]:
        """Return the queue of each key, as an index into `destinations`; -1 where its slot has none.

        Args:
            keys: the keys, as in `HashRing.indices`.
            fill_null: the key that a null counts as, as in `HashRing.indices`.

        Raises:
            EmptyRingError, RowError, InputError: as in `HashRing.indices`.
        """
        return self.indices_behind(self.ring.indices(keys, fill_null=fill_null))

    def indices_of_all_seeds(self) -> NDArray[np.int32]:
        """Return the queue of each of the 2^21 seeds, as in `indices`; all -1 on an empty ring."""
        return self.indices_behind(self.ring.indices_of_all_seeds())

    def indices_behind(self, indices: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return indices into `destinations` for those into the destinations of the ring.

        Args:
            indices: the indices; -1 is a hole.
        """
        numbers: dict[Place, int] = {queue: n for n, queue in enumerate(self.destinations)}
        queues: NDArray[np.int32] = _numbers_of_places(self, {**numbers, None: -1})[indices]
        return queues

    def shares(self) -> dict[Place, float]:
        """Return each queue's exact share of the 2^21 seeds; what has no queue under None."""
        shares: dict[Place, float] = dict.fromkeys(self.destinations, 0.0)
        for place, share in self.ring.shares().items():
            queue = self.queue_of(place)
            shares[queue] = shares.get(queue, 0.0) + share  # exact: a share is a whole number of 2^-21
        return shares

    def share_moved(self, other: SlotTable | HashRing) -> float:
        """Return the exact share of the 2^21 seeds whose queue differs in the other table or ring.

        Args:
            other: the table to compare with, or a ring without slots.

        Raises:
            InputError: `other` is neither.
        """
        import numpy as np

        table = other if isinstance(other, SlotTable) else _without_slots(other)
        numbers: dict[Place, int] = {None: -1}
        for queue in (*self.destinations, *table.destinations):
            numbers.setdefault(queue, len(numbers))
        before, after = _queues_of_seeds(self, numbers), _queues_of_seeds(table, numbers)
        return int(np.count_nonzero(before != after)) / len(before)

    def reassigned(self, weights: Mapping[str, int]) -> SlotTable:
        """Return the table with the fewest slots in other hands that gives each queue its part of the slots.

        Each queue gets ``slots * weight / sum of weights`` slots, rounded up or down. Slots of queues that are not among the
        weights go to the others. :mod:`rabbit_chx.routing.slot_assignment` says why no other table moves fewer.

        Args:
            weights: the weight of each queue, a whole number from 1.

        Raises:
            InputError: a weight is no whole number from 1, or a queue would get no slot.
        """
        return replace(self, owners=assigned(self.slots, self.owners, dict(weights)))

    def moved_slots(self, other: SlotTable) -> tuple[ExchangeRef, ...]:
        """Return the slots that another table gives to another queue, in the order of the ring.

        Args:
            other: the table to compare with.
        """
        return tuple(slot for slot in self.slots if self.owners.get(slot) != other.owners.get(slot))

    def to_json(self) -> str:
        """Return the table as JSON text: that of its ring, and ``slots``, with the queue of each slot or null."""
        queues = {slot.name: self.owners.get(slot) for slot in self.slots}
        return slot_json.dumps(self.ring.to_json(), queues)

    @classmethod
    def from_json(cls, text: str | bytes) -> SlotTable:
        """Read the text that `to_json` made.

        Args:
            text: the JSON text; bytes are UTF-8.

        Raises:
            InputError: the text is that of no table, or is of a later format.
        """
        ring = HashRing.from_json(text)
        queues = slot_json.loads(text)
        named = {ExchangeRef(name): queue for name, queue in queues.items()}
        places = set(ring.destinations)
        if unbound := [slot for slot in named if slot not in places]:
            raise InputError(
                f"the table's {unbound[0]} is no destination of its ring: write it again with to_json"
            )
        other_exchanges = {place for place in places if isinstance(place, ExchangeRef) and place not in named}
        owners = {slot: queue for slot, queue in named.items() if queue is not None}
        return cls(ring, owners, frozenset(other_exchanges))


def _queues_of_seeds(table: SlotTable, numbers: Mapping[Place, int]) -> NDArray[np.int32]:
    """Return the number of the queue of each seed."""
    queues: NDArray[np.int32] = _numbers_of_places(table, numbers)[table.ring.indices_of_all_seeds()]
    return queues


def _numbers_of_places(table: SlotTable, numbers: Mapping[Place, int]) -> NDArray[np.int32]:
    """Return the number of the queue of each destination of the ring; at the end that of a hole, whose index is -1."""
    import numpy as np

    places = (*table.ring.destinations, None)
    return np.array([numbers[table.queue_of(place)] for place in places], np.int32)


def _without_slots(ring: HashRing) -> SlotTable:
    check_ring(ring)
    return SlotTable(
        ring, {}, frozenset(place for place in ring.destinations if isinstance(place, ExchangeRef))
    )

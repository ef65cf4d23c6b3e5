"""Slots: exchanges that are the destinations of a ring, and the queues that have them.

A slot is an internal fanout exchange, bound once to the hash exchange and to the queue that has it. A queue changes hands by
one bind and one unbind behind the ring, and the ring itself never changes. So only the keys of the slots that change hands
move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import ExchangeRef
from rabbit_chx.routing.ring import HashRing, check_ring
from rabbit_chx.routing.slot_assignment import assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing.bindings import Place

__all__ = ["SlotOwners", "SlotTable"]


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

    A queue that is itself a destination of the ring has its own keys. The keys of a slot that nobody has have no queue.

    Attributes:
        ring: the ring of the hash exchange.
        owners: the queue of each slot.
        destinations: the queues that have keys, in the order of the ring.
    """

    ring: HashRing
    owners: Mapping[ExchangeRef, str]
    destinations: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_ring(self.ring)
        owners = SlotOwners(self.owners)
        for slot in owners:
            if slot not in self.ring.destinations:
                raise InputError(
                    f"{slot} is no destination of the ring: bind it to the exchange, or leave it out"
                )
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "owners", owners)
        queues = dict.fromkeys(map(self.queue_of, self.ring.destinations))
        object.__setattr__(self, "destinations", tuple(queue for queue in queues if queue is not None))

    def queue_of(self, place: Place) -> str | None:
        """Return the queue that gets what goes to a destination of the ring; None where there is none.

        Args:
            place: a slot, a queue, or None for a hole.
        """
        return self.owners.get(place) if isinstance(place, ExchangeRef) else place

    def __repr__(self) -> str:
        return (
            f"<SlotTable {len(self.owners)} slots, {len(self.destinations)} queues, {self.ring.provenance}>"
        )

    @property
    def slots(self) -> tuple[ExchangeRef, ...]:
        """The exchanges that are destinations of the ring, in its order."""
        return tuple(place for place in self.ring.destinations if isinstance(place, ExchangeRef))

    def destination_for(self, key: str | bytes) -> str | None:
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
        numbers: dict[str | None, int] = {queue: n for n, queue in enumerate(self.destinations)} | {None: -1}
        found: NDArray[np.int32] = _numbers_of_places(self, numbers)[
            self.ring.indices(keys, fill_null=fill_null)
        ]
        return found

    def shares(self) -> dict[str | None, float]:
        """Return each queue's exact share of the 2^21 seeds; what has no queue under None."""
        found: dict[str | None, float] = dict.fromkeys(self.destinations, 0.0)
        for place, share in self.ring.shares().items():
            queue = self.queue_of(place)
            found[queue] = found.get(queue, 0.0) + share  # exact: a share is a whole number of 2^-21
        return found

    def share_moved(self, other: SlotTable | HashRing) -> float:
        """Return the exact share of the 2^21 seeds whose queue differs in the other table or ring.

        Args:
            other: the table to compare with, or a ring of queues.

        Raises:
            InputError: `other` is neither.
        """
        import numpy as np

        table = other if isinstance(other, SlotTable) else SlotTable(_ring_of(other), {})
        numbers: dict[str | None, int] = {None: -1}
        for queue in (*self.destinations, *table.destinations):
            numbers.setdefault(queue, len(numbers))
        one, two = _queues_of_seeds(self, numbers), _queues_of_seeds(table, numbers)
        return int(np.count_nonzero(one != two)) / len(one)

    def reassigned(self, weights: Mapping[str, int]) -> SlotTable:
        """Return the table with the fewest slots in other hands that gives each queue its part of the slots.

        Each queue gets ``slots * weight / sum of weights`` slots, rounded up or down. Slots of queues that are not among the
        weights go to the others. :mod:`rabbit_chx.routing.slot_assignment` says why no other table moves fewer.

        Args:
            weights: the weight of each queue, a whole number from 1.

        Raises:
            InputError: a weight is none, or a queue would get no slot.
        """
        return SlotTable(self.ring, assigned(self.slots, self.owners, dict(weights)))

    def moved_slots(self, other: SlotTable) -> tuple[ExchangeRef, ...]:
        """Return the slots that another table gives to another queue, in the order of the ring.

        Args:
            other: the table to compare with.
        """
        return tuple(slot for slot in self.slots if self.owners.get(slot) != other.owners.get(slot))


def _queues_of_seeds(table: SlotTable, numbers: Mapping[str | None, int]) -> NDArray[np.int32]:
    """Return the number of the queue of each seed."""
    found: NDArray[np.int32] = _numbers_of_places(table, numbers)[table.ring.indices_of_all_seeds()]
    return found


def _numbers_of_places(table: SlotTable, numbers: Mapping[str | None, int]) -> NDArray[np.int32]:
    """Return the number of the queue of each destination of the ring; at the end that of a hole, whose index is -1."""
    import numpy as np

    places = (*table.ring.destinations, None)
    return np.array([numbers[table.queue_of(place)] for place in places], np.int32)


def _ring_of(other: object) -> HashRing:
    check_ring(other)
    assert isinstance(other, HashRing)  # noqa: S101  # it was checked
    return other

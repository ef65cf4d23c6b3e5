"""How many keys other rings send elsewhere than the ring that is there: exact, for any number of rings.

A key has one of 2^21 seeds, and the seed and the bucket count give its bucket. All stays of seeds in buckets are sorted once:
by the bucket, by the destination that the seed has on the ring that is there, and by the largest bucket count of the stay. The
seeds that keep their destination on another ring are then two searches for each of its buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing import ExchangeRef, HashRing, Place
from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, is_slot

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_OWN_NAMES: Mapping[Place, Place] = {}
#: How many marks show which pairs of a bucket and a destination may have seeds: most pairs have none.
_MARKS = 1 << 22


class RingFigures:
    """The shares of all keys that rings send elsewhere than one ring does. A hole and an empty ring are the destination None.

    Args:
        before: the buckets of the ring that keys move away from.
        names: what destinations of that ring are called, if not by their own name: what has one name is one place.
    """

    def __init__(self, before: Sequence[Place], names: Mapping[Place, Place] = _OWN_NAMES) -> None:
        self._ids: dict[Place, int] = {None: 0}
        self._before = self._places(self.numbers(before), names)
        self._known = len(self._ids)
        self._least, self._most = len(self._before), 0

    def numbers(self, buckets: Sequence[Place]) -> NDArray[np.int64]:
        """Return a number for the destination of each bucket, 0 at a hole."""
        import numpy as np

        return np.fromiter(map(self._number, buckets), np.int64, len(buckets))

    def changed(self, numbers: NDArray[np.int64], place: Place, length: int) -> NDArray[np.int64]:
        """Return the numbers after a bind or an unbind of a destination, which leaves so many buckets and holes."""
        import numpy as np

        number, grown = self._number(place), length - len(numbers)
        if grown >= 0:
            return np.append(numbers, np.full(grown, number))
        held = np.flatnonzero(numbers == number)
        first, end = held[0], held[-1] + 1
        return np.concatenate([numbers[:first], np.zeros(end - first + grown, np.int64), numbers[end:]])

    def _number(self, place: Place) -> int:
        return self._ids.setdefault(place, len(self._ids))

    def _places(self, numbers: NDArray[np.int64], names: Mapping[Place, Place]) -> NDArray[np.int64]:
        """Return the number of what each bucket that a key can have is called."""
        import numpy as np

        places = numbers[: np.count_nonzero(numbers)] if numbers.any() else np.zeros(1, np.int64)
        if not names:
            return places
        called = [self._number(names.get(place, place)) for place in [*self._ids]]
        return np.array(called)[places]

    def prepare(self, counts: Iterable[int]) -> None:
        """Sort the stays for rings with as many buckets, if they are not sorted for them yet."""
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        if not (asked := [*counts]):
            return
        least, most = min(*asked, self._least), max(*asked, self._most, len(self._before))
        if least < self._least or most > self._most:
            self._least, self._most = least, most
            stays = stays_of_seeds(len(self._before), least, most)
            cells = self._cells(stays.bucket, self._before[stays.before]) + np.minimum(stays.last, most)
            order = np.argsort(cells, kind="stable")
            self._stays = cells[order]
            self._seeds_before = np.concatenate([[0], np.cumsum(stays.seeds[order])])
            self._filled = np.zeros(_MARKS, bool)
            self._filled[self._stays // (most + 1) & _MARKS - 1] = True

    def moved(self, buckets: Sequence[Place]) -> float:
        """Return the share of keys whose destination is another one on a ring with these buckets: `HashRing.share_moved`."""
        return self.moved_and_lost(self.numbers(buckets))[0]

    def moved_and_lost(
        self,
        numbers: NDArray[np.int64],
        names: Mapping[Place, Place] = _OWN_NAMES,
        dead_ends: Collection[Place] = (),
    ) -> tuple[float, float]:
        """Return the share of keys that a ring moves, and the share that has no destination on it.

        Args:
            numbers: the `numbers` of its buckets.
            names: what destinations are called, if not by their own name.
            dead_ends: what is no destination of keys, by the names of these.
        """
        import numpy as np

        places = self._places(numbers, names)
        count = len(places)
        self.prepare([count])
        known = np.flatnonzero(places < self._known)
        known = known[self._filled[(known * self._known + places[known]) & _MARKS - 1]]
        staying = self._seeds_in(known, places[known], count).sum()
        nowhere = np.zeros(len(self._ids), bool)
        nowhere[[0, *(self._ids[place] for place in dead_ends if place in self._ids)]] = True
        lost, holes = 0, np.flatnonzero(nowhere[places])
        for place in range(self._known if len(holes) else 0):
            lost += self._seeds_in(holes, np.full_like(holes, place), count).sum()
        return 1 - int(staying) / SEEDS, int(lost) / SEEDS

    def keeping(
        self, destinations: Sequence[Place], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return how many seeds in which bucket had which of some destinations before, where there are any.

        Args:
            destinations: the destinations.
            count: the bucket count.

        Returns:
            Three arrays of one length: the number of a bucket, that of a destination, and how many seeds.
        """
        import numpy as np

        self.prepare([count])
        cells, last = np.divmod(self._stays, self._most + 1)
        rows = np.flatnonzero((last >= count) & (cells < count * self._known))
        firsts = np.flatnonzero(np.diff(cells[rows], prepend=-1))
        seeds = np.add.reduceat(np.diff(self._seeds_before)[rows], firsts)
        buckets, places = np.divmod(cells[rows][firsts], self._known)
        numbers = np.full(self._known, -1)
        for number, place in enumerate(destinations):
            if self._ids.get(place, self._known) < self._known:
                numbers[self._ids[place]] = number
        which = numbers[places]
        return buckets[which >= 0], which[which >= 0], seeds[which >= 0]

    def _cells(self, buckets: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        return (buckets * self._known + places) * (self._most + 1)

    def _seeds_in(
        self, buckets: NDArray[np.int64], places: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        """Return how many seeds have each of these buckets with a bucket count, and had this destination before."""
        cells = self._cells(buckets, places)
        first, end = self._stays.searchsorted(cells + count), self._stays.searchsorted(cells + self._most + 1)
        seeds: NDArray[np.int64] = self._seeds_before[end] - self._seeds_before[first]
        return seeds


def bucket_count(buckets: Sequence[Place]) -> int:
    """Return how many buckets keys can have: holes do not count, and an empty ring is one hole."""
    return max(len(buckets) - buckets.count(None), 1)


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

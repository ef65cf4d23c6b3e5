"""The exact share of keys that a change moves, by the ring and by the owners of its slots.

A key has one of 2^21 seeds. The seed and the bucket count determine its bucket. While the bucket count grows, a seed stays in a bucket for
a range of counts, and then jumps to a later bucket. Such a range is called a stay. `MovementCounter` sorts the stays of all seeds once: by
bucket, by the destination of the seed on the live ring, and by the last bucket count of the stay. For each bucket of another ring, two
binary searches then count the seeds that keep their destination.

The destinations in a ring with slots are slot exchanges, and a message reaches the queue that owns the slot. So the movement of such a ring
is counted by queue: `OwnersDuringPlan` maps each slot to its queue, before and after each change of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.jump import SEEDS
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import ALTERNATE_EXCHANGE, BindingDefinition, ExchangeDefinition
from rabbit_chx.topology.slots.live_slots import is_slot

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.topology.model import LiveTopology, Topology

_NO_ALIASES: Mapping[Place, Place] = {}
#: The size of the table that marks, by a remainder, the pairs of bucket and destination that may have seeds. Most pairs have none, and need
#: no search.
_MARKS = 1 << 22


class MovementCounter:
    """Counts the share of all keys that other rings move away from one ring. A hole and an empty ring count as destination None.

    `aliases` replace destinations of that ring, for example a slot by the queue that owns it.
    """

    def __init__(self, before: Sequence[Place], aliases: Mapping[Place, Place] = _NO_ALIASES) -> None:
        self._ids: dict[Place, int] = {None: 0}  # the number of each destination
        self._before = self._resolve(self.number_destinations(before), aliases)
        self._known = len(self._ids)  # only destinations with lower numbers had keys
        self._least, self._most = len(self._before), 0  # the bucket counts for which stays are sorted

    def number_destinations(self, buckets: Sequence[Place]) -> NDArray[np.int64]:
        """Return the number of the destination of each bucket, 0 for a hole."""
        import numpy as np

        return np.fromiter(map(self._number, buckets), np.int64, len(buckets))

    def update_numbers(
        self, numbers: NDArray[np.int64], destination: Place, length: int
    ) -> NDArray[np.int64]:
        """Return the numbers after a bind or an unbind of a destination, which changes the length of the ring to `length`."""
        import numpy as np

        number, growth = self._number(destination), length - len(numbers)
        if growth >= 0:
            return np.append(numbers, np.full(growth, number))
        buckets = np.flatnonzero(numbers == number)
        first, end = buckets[0], buckets[-1] + 1
        return np.concatenate([numbers[:first], np.zeros(end - first + growth, np.int64), numbers[end:]])

    def _number(self, destination: Place) -> int:
        return self._ids.setdefault(destination, len(self._ids))

    def _resolve(
        self,
        numbers: NDArray[np.int64],
        aliases: Mapping[Place, Place],
        changed: Iterable[Place] | None = None,
    ) -> NDArray[np.int64]:
        """Return the numbers of the replacements of the destinations of a ring; `changed` is that of `count_moved_and_lost`."""
        import numpy as np

        # With holes, routing counts only as many buckets as have a destination. An empty ring is one hole.
        counted = numbers[: np.count_nonzero(numbers)] if numbers.any() else np.zeros(1, np.int64)
        if not aliases:
            return counted
        if changed is None:
            changed, self._resolved = aliases, np.arange(len(self._ids))
        pairs = [(self._number(place), self._number(aliases.get(place, place))) for place in changed]
        self._resolved = np.append(self._resolved, np.arange(len(self._resolved), len(self._ids)))
        for number, resolved in pairs:
            self._resolved[number] = resolved
        return self._resolved[counted]

    def prepare(self, counts: Iterable[int]) -> None:
        """Sort the stays for rings with these bucket counts, unless they are sorted already."""
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        if not (needed := [*counts]):
            return
        least, most = min(*needed, self._least), max(*needed, self._most, len(self._before))
        if least < self._least or most > self._most:
            self._least, self._most = least, most
            stays = stays_of_seeds(len(self._before), least, most)
            cells = self._cells(stays.bucket, self._before[stays.before]) + np.minimum(stays.last, most)
            order = np.argsort(cells, kind="stable")
            self._stays = cells[order]
            self._seeds_before = np.concatenate([[0], np.cumsum(stays.seeds[order])])
            self._filled = np.zeros(_MARKS, bool)
            self._filled[self._stays // (most + 1) & _MARKS - 1] = True

    def count_moved(self, buckets: Sequence[Place]) -> float:
        """Return the share of keys whose destination differs on a ring of these buckets, as `HashRing.share_moved` does."""
        return self.count_moved_and_lost(self.number_destinations(buckets))[0]

    def count_moved_and_lost(
        self,
        numbers: NDArray[np.int64],
        aliases: Mapping[Place, Place] = _NO_ALIASES,
        dead_ends: Collection[Place] = (),
        changed: Iterable[Place] | None = None,
    ) -> tuple[float, float]:
        """Return the share of keys that a ring moves, and the share without a destination on it.

        Args:
            numbers: the numbers of its buckets, from `number_destinations`.
            aliases: the replacements of destinations.
            dead_ends: replacements without a queue: their keys count as keys without a destination.
            changed: the destinations whose replacement may differ from that of the previous call, if the others are known to be the same.
        """
        import numpy as np

        destinations = self._resolve(numbers, aliases, changed)
        count = len(destinations)
        self.prepare([count])
        buckets = np.flatnonzero(destinations < self._known)
        buckets = buckets[self._filled[(buckets * self._known + destinations[buckets]) & _MARKS - 1]]
        staying = self._count_seeds(buckets, destinations[buckets], count).sum()
        is_hole = np.zeros(len(self._ids), bool)
        is_hole[[0, *(self._ids[dead_end] for dead_end in dead_ends if dead_end in self._ids)]] = True
        lost, holes = 0, np.flatnonzero(is_hole[destinations])
        for before in range(self._known if len(holes) else 0):
            lost += self._count_seeds(holes, np.full_like(holes, before), count).sum()
        return 1 - int(staying) / SEEDS, int(lost) / SEEDS

    def seeds_by_bucket(
        self, destinations: Sequence[Place], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of seeds of each bucket by their previous destination, for `count` buckets.

        The result is three arrays of one length: bucket, index of the destination, number of seeds. Pairs without seeds are left out.
        """
        import numpy as np

        self.prepare([count])
        cells, last = np.divmod(self._stays, self._most + 1)
        rows = np.flatnonzero((last >= count) & (cells < count * self._known))
        firsts = np.flatnonzero(np.diff(cells[rows], prepend=-1))
        seeds = np.add.reduceat(np.diff(self._seeds_before)[rows], firsts)
        buckets, numbers = np.divmod(cells[rows][firsts], self._known)
        index_of_number = np.full(self._known, -1)
        for index, destination in enumerate(destinations):
            if self._ids.get(destination, self._known) < self._known:
                index_of_number[self._ids[destination]] = index
        indices = index_of_number[numbers]
        is_wanted = indices >= 0
        return buckets[is_wanted], indices[is_wanted], seeds[is_wanted]

    def _cells(self, buckets: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sort key of the first stay of each bucket and previous destination; the last bucket count of a stay is added to it."""
        return (buckets * self._known + numbers) * (self._most + 1)

    def _count_seeds(
        self, buckets: NDArray[np.int64], numbers: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        cells = self._cells(buckets, numbers)
        first, end = self._stays.searchsorted(cells + count), self._stays.searchsorted(cells + self._most + 1)
        seeds: NDArray[np.int64] = self._seeds_before[end] - self._seeds_before[first]
        return seeds


def bucket_count(buckets: Sequence[Place]) -> int:
    """Return the number of buckets that keys can have: holes do not count, and an empty ring counts as one hole."""
    return max(len(buckets) - buckets.count(None), 1)


class SlotHandOver(NamedTuple):
    """A slot whose queue changes; `old` or `new` is None if the slot has no queue or several queues."""

    slot: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class SlotOwnership:
    """The owners of the slots of an exchange before and after a plan.

    Attributes:
        before: the owner of each slot: its queue, the parking exchange, or the slot itself if it has no or several queues.
        after: the same afterwards.
        handed_over: the slots whose queue changes, in ring order.
    """

    before: Mapping[Place, Place] = field(hash=False)
    after: Mapping[Place, Place] = field(hash=False)
    handed_over: tuple[SlotHandOver, ...]

    def ring_before(self, ring: KeyMap) -> HashRing:
        """Return a ring with the owners before the plan in place of its slots."""
        return _replace_slots(ring, self.before)

    def ring_after(self, ring: KeyMap) -> HashRing:
        """Return a ring with the owners after the plan in place of its slots."""
        return _replace_slots(ring, self.after)


def _replace_slots(ring: KeyMap, owners: Mapping[Place, Place]) -> HashRing:
    buckets = [owners.get(destination, destination) for destination in ring.buckets]
    return HashRing.from_buckets(buckets, ring.release)


def find_slot_ownership(
    ring: KeyMap,
    members: Collection[Place],
    wanted: Topology,
    live: LiveTopology,
    changes: Sequence[PlannedChange],
) -> SlotOwnership | None:
    """Return the owners of the slots of an exchange before and after changes; None if it has no slots.

    `members` are the destinations of the wanted ring; `wanted` is expanded to plain objects.
    """
    refs = [member for member in (*ring.destinations, *members) if isinstance(member, ExchangeRef)]
    owners = OwnersDuringPlan.of_slots(refs, wanted, live) if refs else None
    if owners is None or not owners.current:
        return None
    before, kept = dict(owners.current), frozenset(members)
    for change in changes:
        owners.apply(change)
    handed_over = tuple(
        SlotHandOver(slot.name, _queue_or_none(before[slot]), _queue_or_none(owners.current[slot]))
        for slot in ring.destinations
        if isinstance(slot, ExchangeRef) and slot in kept and before.get(slot) != owners.current.get(slot)
    )
    return SlotOwnership(before, owners.current, handed_over)


def _queue_or_none(owner: Place) -> str | None:
    return owner if isinstance(owner, str) else None


class OwnersDuringPlan:
    """The owners of slots while changes are applied.

    Attributes:
        current: the owner of each slot: its queue, the parking exchange, or the slot itself if it has no or several queues.
        dead_ends: the slots with neither a queue nor a parking exchange.
    """

    def __init__(self, slots: Iterable[Place], live: LiveTopology) -> None:
        self._exchanges = {exchange.name: exchange for exchange in live.exchanges}
        self._queues: dict[str, dict[BindingDefinition, None]] = {
            slot.name: {} for slot in slots if isinstance(slot, ExchangeRef)
        }
        for binding in live.bindings:
            if binding.source in self._queues and isinstance(binding.destination, str):
                self._queues[binding.source][binding] = None
        self._parks: set[str] = set()
        self.current: dict[Place, Place] = {}
        self.dead_ends: set[Place] = set()
        for slot in self._queues:
            self._update(slot)

    @classmethod
    def of_slots(cls, refs: Iterable[ExchangeRef], wanted: Topology, live: LiveTopology) -> OwnersDuringPlan:
        """Return the live owners of those exchanges among `refs` that are slots."""
        refs = dict.fromkeys(refs)
        bound: dict[str, list[BindingDefinition]] = {ref.name: [] for ref in refs}
        for binding in (*live.bindings, *wanted.bindings):
            if binding.source in bound:
                bound[binding.source].append(binding)
        known = {exchange.name: exchange for exchange in (*wanted.exchanges, *live.exchanges)}
        return cls([ref for ref in refs if is_slot(ref, known.get(ref.name), bound[ref.name])], live)

    def apply(self, change: PlannedChange) -> Collection[Place]:
        """Apply a change, and return the slots that it concerns."""
        if change.action in ("bind", "unbind"):
            binding = change.binding
            queues = self._queues.get(binding.source)
            if queues is None or not isinstance(binding.destination, str):
                return ()
            if change.action == "bind":
                queues[binding] = None
            else:
                queues.pop(binding, None)
            return self._update_all((binding.source,))
        if not isinstance(change.subject, ExchangeDefinition):
            return ()
        if change.wanted is None:
            self._exchanges.pop(change.name, None)
        else:
            self._exchanges[change.name] = change.subject
        return self._update_all(
            self._queues if change.name in self._parks else self._queues.keys() & {change.name}
        )

    def _update_all(self, slots: Iterable[str]) -> list[Place]:
        slots = list(slots)
        for slot in slots:
            self._update(slot)
        return [*map(ExchangeRef, slots)]

    def _update(self, slot: str) -> None:
        ref, queues = ExchangeRef(slot), {binding.destination for binding in self._queues[slot]}
        exchange = self._exchanges.get(slot)
        park = None if exchange is None else exchange.arguments.get(ALTERNATE_EXCHANGE)
        self.current[ref] = ref
        self.dead_ends.discard(ref)
        if isinstance(park, str):
            self._parks.add(park)
        if len(queues) == 1:
            self.current[ref] = queues.pop()
        elif not queues and isinstance(park, str) and park in self._exchanges:
            self.current[ref] = ExchangeRef(park)
        elif not queues:
            self.dead_ends.add(ref)

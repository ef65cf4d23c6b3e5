"""What a plan does with one exchange that hashes: the maps of keys before and after, the steps, and the exact shares of keys that move.

`find_best_steps` finds the binds and unbinds that turn a live ring into the wanted one, in the order that disturbs the fewest keys.

A broker changes a ring in two ways only. A bind appends buckets. An unbind removes all buckets of a destination, and the later buckets get
lower numbers. So members can stay only if the wanted ring begins with them and the live ring has them in the same order. All others are
unbound, and the rest of the wanted ring is bound after those that stay. No other way takes fewer operations.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

from rabbit_chx.records.live_rings import (
    LiveRing,
    PendingApply,
    PlannedSteps,
    RingChange,
    evidence_of,
    make_ring,
)
from rabbit_chx.records.ring_records import why_void
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Flows, Place
from rabbit_chx.routing.jump import SEEDS
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import grouped, percent
from rabbit_chx.topology.argument_table import canonical_json, canonical_texts
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.modulus import share_moved
from rabbit_chx.topology.objects import HASH_EXCHANGE, BindingDefinition, RingMember, order_of_place
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import SlotView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.planning.diff import Comparison

# -- The exact share of keys that a change moves, by the ring and by the owners of its slots
# A key has one of 2^21 seeds. The seed and the bucket count determine its bucket. While the bucket count grows, a seed stays in a bucket for
# a range of counts, and then jumps to a later bucket. Such a range is called a stay. `MovementCounter` sorts the stays of all seeds once: by
# bucket, by the destination of the seed on the live ring, and by the last bucket count of the stay. For each bucket of another ring, two
# binary searches then count the seeds that keep their destination.
#
# This makes exact shares affordable: a ring of n buckets costs n searches instead of 2^21 comparisons, and a plan compares as many rings as it
# has steps. It works because the bucket of a seed depends on the bucket count only, and because nearly all pairs of a bucket and a previous
# destination have no seeds, which a table shows without a search.
#
# The destinations in a ring with slots are slot exchanges, and a message reaches the queue that owns the slot. So the movement of such a ring
# is counted by owner, which a `SlotView` has for each moment of a plan.


class Moment(NamedTuple):
    """The keys after a step of a plan.

    Attributes:
        moved: the share of keys whose destination differs from that before the plan. Keys without a destination count.
        lost: the share of keys without a destination: their messages are unroutable.
    """

    moved: float
    lost: float


#: The size of the table that marks, by a remainder, the pairs of bucket and destination that may have seeds. Most pairs have none, and need
#: no search.
_MARKS = 1 << 22


class MovementCounter:
    """Counts the share of all keys that other rings move away from one ring. A hole and an empty ring count as destination None.

    `owners` are those of the slots of that ring. `set_owners` replaces them for the rings that are counted.
    """

    def __init__(self, before: Sequence[Place], owners: Mapping[Place, Place] | None = None) -> None:
        import numpy as np

        self._ids: dict[Place, int] = {None: 0}  # the number of each destination
        self._owners = np.zeros(0, np.int64)  # the number of the owner of each destination
        numbers = self.number_destinations(before)
        self.set_owners(owners or {})
        self._before = self._find_owners(numbers)
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

        number = self._number(destination)
        growth = length - len(numbers)
        if growth >= 0:
            return np.append(numbers, np.full(growth, number))
        buckets = np.flatnonzero(numbers == number)
        first = buckets[0]
        end = buckets[-1] + 1
        return np.concatenate([numbers[:first], np.zeros(end - first + growth, np.int64), numbers[end:]])

    def _number(self, destination: Place) -> int:
        return self._ids.setdefault(destination, len(self._ids))

    def set_owners(self, owners: Mapping[Place, Place]) -> None:
        """Count the keys of these slots as keys of their owners from now on; other slots keep their owners."""
        pairs = [(self._number(slot), self._number(owner)) for slot, owner in owners.items()]
        self._number_owners()
        for slot, owner in pairs:
            self._owners[slot] = owner

    def _number_owners(self) -> None:
        """Let each new destination own itself."""
        import numpy as np

        if len(self._owners) < len(self._ids):
            self._owners = np.append(self._owners, np.arange(len(self._owners), len(self._ids)))

    def _find_owners(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the owner of each counted bucket of a ring."""
        import numpy as np

        # With holes, routing counts only as many buckets as have a destination. An empty ring is one hole.
        counted = numbers[: np.count_nonzero(numbers)] if numbers.any() else np.zeros(1, np.int64)
        self._number_owners()
        return self._owners[counted]

    def prepare(self, counts: Iterable[int]) -> None:
        """Sort the stays for rings with these bucket counts, unless they are sorted already."""
        import numpy as np

        from rabbit_chx.routing.arrays.seeds import stays_of_seeds

        if not (needed := [*counts]):
            return
        least = min(*needed, self._least)
        most = max(*needed, self._most, len(self._before))
        if least < self._least or most > self._most:
            self._least = least
            self._most = most
            stays = stays_of_seeds(len(self._before), least, most)
            cells = self._cells(stays.bucket, self._before[stays.before]) + np.minimum(stays.last, most)
            order = np.argsort(cells, kind="stable")
            self._stays = cells[order]
            self._seeds_before = np.concatenate([[0], np.cumsum(stays.seeds[order])])
            self._filled = np.zeros(_MARKS, bool)
            self._filled[self._stays // (most + 1) & _MARKS - 1] = True

    def count(self, numbers: NDArray[np.int64], dead_ends: Collection[Place] = ()) -> Moment:
        """Return the share of keys that a ring moves, and the share without a destination on it.

        Args:
            numbers: the numbers of its buckets, from `number_destinations`.
            dead_ends: slots without an owner: their keys count as keys without a destination.
        """
        import numpy as np

        destinations = self._find_owners(numbers)
        count = len(destinations)
        self.prepare([count])
        buckets = np.flatnonzero(destinations < self._known)
        buckets = buckets[self._filled[(buckets * self._known + destinations[buckets]) & _MARKS - 1]]
        staying = self._count_seeds(buckets, destinations[buckets], count).sum()
        is_hole = np.zeros(len(self._ids), bool)
        is_hole[[0, *(self._ids[dead_end] for dead_end in dead_ends if dead_end in self._ids)]] = True
        lost = 0
        holes = np.flatnonzero(is_hole[destinations])
        for before in range(self._known if len(holes) else 0):
            lost += self._count_seeds(holes, np.full_like(holes, before), count).sum()
        return Moment(1 - int(staying) / SEEDS, int(lost) / SEEDS)

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
        first = self._stays.searchsorted(cells + count)
        end = self._stays.searchsorted(cells + self._most + 1)
        seeds: NDArray[np.int64] = self._seeds_before[end] - self._seeds_before[first]
        return seeds


def shares_moved_without(key_map: KeyMap, places: Iterable[Destination]) -> dict[Destination, float]:
    """Return the exact share of keys that move when a destination of a map is removed, for each of some of its destinations."""
    buckets = key_map.buckets
    known = {*key_map.destinations}
    left = {place: [bucket for bucket in buckets if bucket != place] for place in places if place in known}
    if not key_map.hashing.has_order:
        return {place: share_moved(buckets, rest, key_map.release) for place, rest in left.items()}
    counter = MovementCounter(buckets)
    counter.prepare(map(bucket_count, left.values()))
    return {place: counter.count(counter.number_destinations(rest)).moved for place, rest in left.items()}


def bucket_count(buckets: Sequence[Place]) -> int:
    """Return the number of buckets that keys can have: holes do not count, and an empty ring counts as one hole."""
    return max(len(buckets) - buckets.count(None), 1)


#: Above this number of steps one order is tried: each step costs as many buckets as the ring has.
_MANY_STEPS = 200

Strategy: TypeAlias = Literal["as-written", "least-moving-order", "slots"]


class MemberJson(TypedDict):
    """A member of a ring as in the JSON of a topology file."""

    queue: NotRequired[str]
    exchange: NotRequired[str]
    weight: NotRequired[str]
    slots: NotRequired[Sequence[int]]
    arguments: NotRequired[Mapping[str, Any]]


def _members_as_json(ring: Sequence[RingMember]) -> list[MemberJson]:
    return list(map(_member_as_json, ring))


def _member_as_json(member: RingMember) -> MemberJson:
    place = member.destination
    fields: MemberJson = {"queue": place} if isinstance(place, str) else {"exchange": place.name}
    if member.slots is None:
        fields["weight"] = member.key
    else:
        fields["slots"] = member.slots
    if member.arguments:
        fields["arguments"] = member.arguments
    return fields


@dataclass(frozen=True, slots=True)
class RingProposal:
    """An alternative plan for the wanted members.

    Attributes:
        moved: the exact share of keys whose destination differs at the end.
        moved_at_worst: the same at the worst moment between the steps.
        ring: the members in their order; for the proposal ``slots`` the queues that share the slots.
        description: the method and its cost, in words.
        slots: the number of slots of the proposal ``slots``; else None.
    """

    strategy: Strategy = field(metadata=shown("proposal"))
    moved: float = field(metadata=shown("in the end", percent, number=True))
    moved_at_worst: float = field(metadata=shown("peak", percent, number=True))
    ring: tuple[RingMember, ...] = field(metadata=shown(as_json=_members_as_json))
    description: str = field(metadata=shown(json=None))
    slots: int | None = field(default=None, metadata=shown(optional=True))


class SlotHandOver(NamedTuple):
    """A slot whose queue changes; `old` or `new` is None if the slot has no queue or several queues."""

    slot: str
    old: str | None
    new: str | None


class Movement(NamedTuple):
    """The keys that a plan moves in one key map.

    Attributes:
        moments: the keys after each step, and after each other change that moves some. A key keeps its destination only by chance if the
            exchange hashes something else afterwards: then all keys move. If `unknown` is set, the shares are the largest possible ones.
        unknown: why the exact shares are not known; empty if they are.
        transient_share: the largest share of keys whose queue differs from that at the end while the bindings of an empty map are made; 0
            if the exchange and its queues are new, so that nobody publishes.
        has_flows: True if the two maps determine which keys move: not if the exchange hashes something else, or by another hash, afterwards.
    """

    moments: tuple[Moment, ...] = ()
    unknown: str = ""
    transient_share: float = 0.0
    has_flows: bool = True

    @property
    def end(self) -> Moment:
        """The keys at the end."""
        return self.moments[-1] if self.moments else Moment(0.0, 0.0)

    @property
    def peak(self) -> Moment:
        """The most keys that have moved at any moment, and the most that are lost at any one."""
        moved = max((moment.moved for moment in self.moments), default=0.0)
        return Moment(moved, max((moment.lost for moment in self.moments), default=0.0))

    @property
    def figures(self) -> tuple[float, float]:
        """The share of keys that moves at the end, and at the worst moment."""
        return self.end.moved, self.peak.moved

    def exceeds(self, limit: float | None, before: KeyMap) -> bool:
        """Return True if more keys move than a limit (None: any) permits. If no key had a destination before, none moves."""
        return limit is not None and self.peak.moved > limit and before.bucket_count > 0


class Append(NamedTuple):
    """New destinations that take keys from old ones, while no other key moves: the order of each key can be kept.

    Attributes:
        old: the destinations that the keys leave, in ring order.
        new: the destinations that get them.
    """

    old: tuple[Destination, ...]
    new: tuple[Destination, ...]


_NOTHING_MOVES = Movement()


@dataclass(frozen=True, slots=True)
class RingSteps:
    """The binds and unbinds that turn a live ring into the wanted one.

    Attributes:
        before: the live ring; empty if the exchange is new.
        after: the wanted ring.
        early: the binds and unbinds before the replacement of objects, in order.
        late: those after the replacement of objects.
        movement: the keys that they move in a ring without slots whose exchange is not replaced.
        change: what they do with the ring.
        fault: why the ring cannot be the wanted one, so that the plan is refused: the broker would refuse a binding, or the exchange is
            external; empty if it can.
        needs_new_exchange: True if no binds and unbinds make the wanted ring, but a new exchange can have it.
        gives_up_order: True if the order of the live ring is not known: the wanted one is made whatever it is, and all keys may move.
        is_repeated: True if they are all steps of an apply that has not ended.
        reorderable: the wanted members if another order may be proposed, else empty.
        counter: what counted the keys that move away from the live ring, if something did.
    """

    before: HashRing
    after: HashRing
    early: tuple[PlannedChange, ...] = ()
    late: tuple[PlannedChange, ...] = ()
    movement: Movement = _NOTHING_MOVES
    change: RingChange = "keep"
    fault: str = ""
    needs_new_exchange: bool = False
    gives_up_order: bool = False
    is_repeated: bool = False
    reorderable: tuple[RingMember, ...] = ()
    counter: MovementCounter | None = field(default=None, repr=False, compare=False)

    @property
    def steps(self) -> tuple[PlannedChange, ...]:
        """The binds and unbinds, in order."""
        return self.early + self.late


@dataclass(frozen=True)
class KeyMapPlan:
    """The change of one exchange that hashes: with a ring, or the bindings of an ``x-modulus-hash`` exchange, or a super stream.

    Attributes:
        before: the live map; empty if the exchange is new, or its type was another one that does not hash.
        after: the wanted map.
        movement: the keys that move.
        ring: the steps of a ring; None for an exchange whose bindings have no order, and that has no steps.
        limit: the share of keys that may move; None: any.
        slots: the slots before and after the plan; None without slots. With slots, shares are counted by queue.
        proposals: alternatives with the same members, with their shares; the first is the plan as written. Empty if nothing moves or the
            live map is not known.
        obstacles: why the order of keys cannot be kept although this is an append, as sentences; `Broker.find_append_obstacles` finds them.
    """

    exchange: str
    before: KeyMap
    after: KeyMap
    movement: Movement = field(default=_NOTHING_MOVES, repr=False)
    ring: RingSteps | None = field(default=None, repr=False)
    limit: float | None = None
    slots: tuple[SlotView, SlotView] | None = field(default=None, repr=False, compare=False)
    proposals: tuple[RingProposal, ...] = field(default=(), repr=False, compare=False)
    obstacles: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The keys after each step, and after each other change that moves some."""
        return self.movement.moments

    @property
    def moved(self) -> float:
        """The share of keys with another destination at the end."""
        return self.movement.end.moved

    @property
    def moved_at_worst(self) -> float:
        """The largest share of keys whose destination differs from `before` at any moment."""
        return self.movement.peak.moved

    @property
    def lost_at_worst(self) -> float:
        """The largest share of keys without a destination at any moment."""
        return self.movement.peak.lost

    @property
    def change(self) -> RingChange:
        """What the plan does with the ring."""
        return "keep" if self.ring is None else self.ring.change

    @property
    def gives_up_order(self) -> bool:
        """True if the order of the live ring is not known, and the wanted one is made whatever it is."""
        return self.ring is not None and self.ring.gives_up_order

    @property
    def needs_new_exchange(self) -> bool:
        """True if no binds and unbinds make the wanted ring, and the exchange is not replaced."""
        return self.ring is not None and self.ring.needs_new_exchange

    @property
    def steps(self) -> tuple[PlannedChange, ...]:
        """The binds and unbinds of a ring, in order."""
        return () if self.ring is None else self.ring.steps

    @property
    def ring_after(self) -> HashRing | None:
        """The wanted map, if it is a ring."""
        return self.ring.after if self.ring is not None and self.after.kind == HASH_EXCHANGE else None

    @property
    def is_ring(self) -> bool:
        """True if the exchange is of type ``x-consistent-hash`` before or afterwards, also with slots."""
        return HASH_EXCHANGE in (self.before.kind, self.after.kind)

    @property
    def is_moving(self) -> bool:
        """True if the map changes, or keys of it move."""
        return bool(self.steps or self.moved or self.moved_at_worst)

    @property
    def handed_over(self) -> tuple[SlotHandOver, ...]:
        """The slots whose queue changes, in ring order."""
        if self.slots is None:
            return ()
        old, new = (view.owners for view in self.slots)
        kept = [place for place in self.before.destinations if place in old and old[place] != new[place]]
        wanted = {*self.after.destinations} if kept else set()
        return tuple(
            SlotHandOver(place.name, _queue_or_none(old[place]), _queue_or_none(new[place]))
            for place in kept
            if isinstance(place, ExchangeRef) and place in wanted
        )

    @property
    def moves(self) -> str:
        """The share of keys that moves, in words."""
        if self.movement.unknown and self.moved_at_worst:
            return f"up to {percent(self.moved_at_worst)} of the keys: {self.movement.unknown}"
        return f"{percent(self.moved)} of the keys in the end, {percent(self.moved_at_worst)} at the peak"

    @property
    def append(self) -> Append | None:
        """The old and the new destinations, if only new ones take keys, and at no moment others do; else None."""
        matrix = self.matrix()
        if matrix is None or self.slots is not None or self.moved_at_worst > self.moved:
            return None
        moves = [(source, to) for source, to in matrix if source != to]
        old = tuple(dict.fromkeys(source for source, _ in moves if source is not None))
        new = tuple(dict.fromkeys(to for _, to in moves if to is not None))
        takes_only_new = new and not {to for _, to in moves} & {*self.before.destinations, None}
        return Append(old, new) if takes_only_new else None

    def matrix(self) -> Flows | None:
        """Return the exact share of keys that move from each destination to each other one, in ring order.

        With slots, the destinations are queues, in the order of names. Return None if the maps do not determine the shares: the order of the
        bindings is not known, the exchange hashes something else afterwards, or a first run has moved slots.
        """
        if self.movement.unknown or not self.movement.has_flows or not self.before.is_determined:
            return None
        if self.slots is None:
            return self.before.flows(self.after)
        before, after = self.slots
        return before.map_of(self.before).flows(after.map_of(self.after)).sorted_by(order_of_place)


def _queue_or_none(owner: Place) -> str | None:
    return owner if isinstance(owner, str) else None


# -- the steps of a ring


def find_best_steps(
    live: LiveRing,
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    counter: MovementCounter,
) -> RingSteps | None:
    """Return the steps that leave the fewest keys without a destination. Among equals, those that move the fewest keys.

    Return None if no binds and unbinds make the ring.

    Args:
        live: the live ring.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again. They are unbound first.
        counter: counts the keys that move away from the live ring, by the owners of slots at the end.

    Raises:
        InputError: the broker would refuse a binding.
    """
    start = live.with_bound
    target = make_ring(wanted, live.ring.release)
    orders = {}
    for early, late in dict.fromkeys(_list_orders(live, wanted, replaced)):
        applied = apply_steps(start, (*early, *late))
        if applied[0].buckets == target.buckets:
            orders[early, late] = applied
    counter.prepare([count for _, _, counts in orders.values() for count in counts])
    candidates = []
    for (early, late), (ring, lengths, _) in orders.items():
        numbers = counter.number_destinations(start.buckets)
        moments = []
        for step, length in zip((*early, *late), lengths, strict=True):
            numbers = counter.update_numbers(numbers, step.binding.destination, length)
            moments.append(counter.count(numbers))
        after = ring if moments else live.ring
        movement = Movement(tuple(moments))
        candidates.append(RingSteps(live.ring, after, early, late, movement, "by-order", counter=counter))
    return min(candidates, key=_rank_disturbance, default=None)


def _rank_disturbance(steps: RingSteps) -> tuple[float, float]:
    peak = steps.movement.peak
    return peak.lost, peak.moved


def apply_steps(ring: HashRing, steps: Sequence[PlannedChange]) -> tuple[HashRing, list[int], list[int]]:
    """Return a ring after steps, and the numbers of its buckets after each of them, with and without holes."""
    lengths = []
    counts = []
    for step in steps:
        binding = step.binding
        if step.action == "bind":
            ring = ring.bind(binding.destination, binding.routing_key)
        else:
            ring = ring.unbind(binding.destination, binding.routing_key, missing_ok=True)
        lengths.append(len(ring.buckets))
        counts.append(ring.bucket_count)
    return ring, lengths, counts


def make_step(action: Literal["bind", "unbind"], exchange: str, member: RingMember) -> PlannedChange:
    """Return the bind or unbind of a member."""
    binding = BindingDefinition(exchange, member.destination, member.key, member.arguments)
    if action == "bind":
        return PlannedChange("bind", None, binding, ring=True)
    return PlannedChange("unbind", binding, None, ring=True)


def unbind_all(live: LiveRing) -> tuple[PlannedChange, ...]:
    """Return the unbinds of all members, from the end of the ring."""
    position = {destination: n for n, destination in enumerate(live.ring.destinations)}
    members = sorted(live.bound, key=lambda member: -position.get(member.destination, len(position)))
    return tuple(make_step("unbind", live.exchange, member) for member in members)


def count_kept_members(live: LiveRing, wanted: Sequence[RingMember]) -> int:
    """Return the number of leading wanted members that can stay bound."""
    if len({member.destination for member in wanted}) < len(wanted):
        return 0
    runs = [(destination, len(list(run))) for destination, run in groupby(live.ring.buckets)]
    run_counts = Counter(destination for destination, _ in runs)
    bindings = Counter(member.destination for member in live.bound)
    positions = {
        run: n for n, run in enumerate(runs) if run[0] and run_counts[run[0]] == bindings[run[0]] == 1
    }
    bound = set(live.bound)
    last = -1
    for number, member in enumerate(wanted):
        position = positions.get((member.destination, member.weight), -1)
        if position <= last or member not in bound:
            return number
        last = position
    return len(wanted)


def _list_orders(
    live: LiveRing, wanted: Sequence[RingMember], replaced: Collection[Destination]
) -> Iterator[tuple[tuple[PlannedChange, ...], tuple[PlannedChange, ...]]]:
    """Yield orders of the same operations, each in two parts: those before and those after the replacement of destinations.

    All orders have the same operations: only the members at the start of the wanted ring can stay, so the others are unbound, and the binds
    are in the wanted order. What is free is when a destination is unbound, and too many orders are possible to count all. Three cover what a
    plan can gain: alternately (the bucket count stays nearly constant, so few keys move twice), all unbinds first (members that stay keep
    their keys meanwhile), and removed destinations last (the ring is not empty in between). The counted shares choose.
    """
    end = next((n for n, member in enumerate(wanted) if member.destination in replaced), len(wanted))
    kept = count_kept_members(live, wanted[:end])
    unbinds = _list_unbinds(live, {member.destination for member in wanted[:kept]})
    early = tuple(
        step for destination in [*unbinds] if destination in replaced for step in unbinds.pop(destination)
    )
    binds = [make_step("bind", live.exchange, member) for member in wanted[kept:]]
    rebound = {bind.binding.destination for bind in binds}
    removed = [destination for destination in unbinds if destination not in rebound]
    yield early, tuple(_alternate(unbinds, removed, binds))
    if len(unbinds) + len(binds) <= _MANY_STEPS or not live.ring.buckets:
        yield early, (*chain.from_iterable(unbinds.values()), *binds)
        yield early, tuple(_remove_last(unbinds, removed, binds))


def _list_unbinds(live: LiveRing, kept: Collection[Destination]) -> dict[Destination, list[PlannedChange]]:
    """Return the steps that remove each destination that is not kept: first those without buckets, then from the end of the ring.

    A destination with ghost buckets has no binding, so it cannot be unbound. It is bound first: a bind adds no bucket to a destination that
    has some.
    """
    bound = grouped((member.destination, member) for member in live.bound)
    in_ring = dict.fromkeys(reversed(live.ring.destinations))
    steps = {}
    without_buckets = (destination for destination in bound if destination not in in_ring)
    for destination in (*without_buckets, *in_ring):
        if destination not in kept:
            members = bound.get(destination, [RingMember(destination)])
            bind = () if destination in bound else (make_step("bind", live.exchange, members[0]),)
            unbinds = (make_step("unbind", live.exchange, member) for member in members)
            steps[destination] = [*bind, *unbinds]
    return steps


def _alternate(
    unbinds: Mapping[Destination, Sequence[PlannedChange]],
    removed: Sequence[Destination],
    binds: Sequence[PlannedChange],
) -> Iterator[PlannedChange]:
    """Yield unbinds and binds alternately, so that the number of destinations changes as little as possible."""
    new_count = sum(bind.binding.destination not in unbinds for bind in binds)
    surplus = max(len(removed) - new_count, 0)
    for destination in removed[:surplus]:
        yield from unbinds[destination]
    others = iter(removed[surplus:])
    remaining = dict(unbinds)
    for bind in binds:
        destination = bind.binding.destination
        yield from remaining.pop(destination if destination in unbinds else next(others, destination), ())
        yield bind


def _remove_last(
    unbinds: Mapping[Destination, Sequence[PlannedChange]],
    removed: Sequence[Destination],
    binds: Sequence[PlannedChange],
) -> Iterator[PlannedChange]:
    """Yield the unbinds of the removed destinations last, so that the ring is not empty between two steps if that can be avoided."""
    remaining = dict(unbinds)
    for bind in binds:
        yield from remaining.pop(bind.binding.destination, ())
        yield bind
    for destination in removed:
        yield from unbinds[destination]


# -- The plan of a file whose apply was interrupted: all steps of each ring again, and the shares of keys from before the first run


def digest_of(wanted: Topology, live: LiveTopology) -> str:
    """Return the SHA-256 of what a file says, and of where it is applied."""
    fields = wanted.cluster, wanted.vhost, wanted.max_share_moved, sorted(set(wanted.owns))
    texts = canonical_texts([*wanted.by_name.values(), *wanted.bindings])
    return hashlib.sha256(canonical_json([fields, texts, live.cluster, live.vhost]).encode()).hexdigest()


def find_pending(wanted: Topology, live: LiveTopology) -> PendingApply | None:
    """Return the apply of the same file that has begun on this broker, and not ended."""
    pending = evidence_of(live).pending
    return pending if pending is not None and pending.file == digest_of(wanted, live) else None


def repeat_steps(
    pending: PendingApply | None, live: LiveRing, wanted: tuple[RingMember, ...], topology: LiveTopology
) -> RingSteps | None:
    """Return all steps of a ring again; None if they do not lead to the wanted ring from every state that it may have.

    An apply unbinds a member just before it binds it. So it does not matter which steps are done, nor whether another program has bound a
    member of a step again. The members that no step names have to be bound as before the first step, and in their order.
    """
    evidence = evidence_of(topology)
    release = live.ring.release
    planned = evidence.steps_of(live.exchange)
    if pending is None or planned is None:
        return None
    named = {destination for _, (destination, _) in planned.steps}
    staying = Counter(member for member in planned.record.members if member.destination not in named)
    bound = Counter(member for member in live.bound if member.destination not in named)
    if bound != staying:
        return None
    if len(staying) > 1:  # of one member, or of none, no restart changes the order
        members = tuple(staying.elements())
        of_staying = replace(planned.record, members=members)
        if why_void(of_staying, members, release, evidence.mark):
            return None
    after = make_ring(wanted, release)
    if f"replace exchange {live.exchange}" in pending.changes:  # nothing shows whether that is done
        return RingSteps(live.ring, after, needs_new_exchange=True)
    ring = replace(planned.before, release=release)  # which an update may have changed
    for is_bind, binding in planned.steps:
        ring = ring.bind(*binding) if is_bind else ring.unbind(*binding, missing_ok=True)
    if ring.buckets != after.buckets:
        return None
    early, late = _list_steps(planned, live, wanted)
    return RingSteps(live.ring, after, early, late, change="remake", is_repeated=True)


def members_after(planned: PlannedSteps) -> tuple[RingMember, ...]:
    """Return the members that a ring has after its steps."""
    members = {member.binding: member for member in planned.record.members}
    for is_bind, binding in planned.steps:
        member = members.pop(binding, RingMember(*binding))
        if is_bind:
            members[binding] = member
    return tuple(members.values())


def _list_steps(
    planned: PlannedSteps, live: LiveRing, wanted: tuple[RingMember, ...]
) -> tuple[tuple[PlannedChange, ...], tuple[PlannedChange, ...]]:
    """Return the steps before and after the replacement of objects: first the unbinds of what others bound, then those of the plan."""
    known = {member.binding: member for member in (*planned.record.members, *live.bound, *wanted)}
    members = [known.get(binding, RingMember(*binding)) for _, binding in planned.steps]
    steps = [
        make_step("bind" if is_bind else "unbind", live.exchange, member)
        for (is_bind, _), member in zip(planned.steps, members, strict=True)
    ]
    named = {member.destination for member in members}
    foreign = [
        make_step("unbind", live.exchange, member)
        for member in live.bound
        if member.destination in named and member not in members
    ]
    early = steps[: planned.early]
    late = steps[planned.early :]
    if early:
        return (*foreign, *early), tuple(late)
    return (), (*foreign, *late)


def covers(pending: PendingApply, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingSteps]) -> bool:
    """Return True if a plan is the repetition of an apply: its changes are among those of that one, of which some may be done.

    The steps of rings are its own. Of a replacement, the deletion may be done, and the creation left.
    """
    repeated = {
        name
        for name, ring in rings.items()
        if ring.is_repeated or f"replace exchange {name}" in pending.changes
    }
    planned = Counter(pending.changes)
    left: Counter[str] = Counter()
    for change in changes:
        if change.ring and change.binding.source in repeated:
            continue
        text = str(change)
        replacement = text.replace("create ", "replace ", 1)
        is_half_done = text not in planned and replacement in planned
        left[replacement if is_half_done else text] += 1
    return left <= planned


def what_is_given_up(compared: Comparison) -> str:
    """Return a sentence about an apply that has not ended, and that a plan does not repeat; empty if there is none."""
    evidence = evidence_of(compared.live)
    if evidence.pending is None or evidence.pending.has_ended(evidence.records):
        return ""
    return f"{evidence.pending} has not ended, and this plan gives up what that has left; apply its file again to do it"

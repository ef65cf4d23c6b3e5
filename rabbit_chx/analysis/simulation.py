"""The load of a ring by a sample of keys, and the movement of a change of the ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any, NamedTuple, cast

from rabbit_chx.analysis.key_routing import Hashing, KeySketch, Refused, SampleBatch
from rabbit_chx.lazy_names import shown_by
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.routing.bindings import Flows, Place
from rabbit_chx.routing.key_map import KeyMap, check_comparable, check_key_map

#: Of more distinct keys, only the messages are counted, and the heaviest keys between bounds.
MOST_DISTINCT = 1_000_000
_COUNTERS = 10_000


@dataclass(frozen=True, slots=True)
class PlaceShare:
    """What a destination has of the ring.

    Attributes:
        place: the destination; None for the holes that keys reach.
        buckets: how many buckets it has.
        share: the exact share of the 2^21 seeds; by weight, if the order is not known, and None if it depends on that.
        ideal: its share by the number of its buckets; 0 for holes.
    """

    place: Place
    buckets: int
    share: float | None
    ideal: float

    @property
    def skew(self) -> float:
        """The relative difference from the ideal share: 0.01 is one percent too much. 0 for holes."""
        return self.share / self.ideal - 1 if self.ideal and self.share is not None else 0.0


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key that many messages have.

    Attributes:
        value: the hashed value, or its name.
        messages: the number of its messages; a lower bound if the sample has more than `MOST_DISTINCT` keys.
        place: their destination.
        after: their destination after the change, or why the broker refuses them; the same as `place` without a change.
    """

    value: Any = field(metadata=shown(json="key"))
    messages: int
    place: Place = field(metadata=shown(json="destination"))
    after: Place | Refused = None


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Where a sample goes.

    Attributes:
        messages: how many there are.
        keys: how many distinct keys they have; None where they are more than `MOST_DISTINCT`, which are not kept.
        refused: how many messages the broker would not route, but close the channel.
        refusal: the reason for the first refused message; None where none is refused.
        messages_of: messages per destination.
        keys_of: distinct keys per destination; empty where they are too many.
        heaviest: the keys with the most messages, the heaviest first.
    """

    messages: int
    keys: int | None
    refused: int
    refusal: str | None
    messages_of: dict[Place, int]
    keys_of: dict[Place, int]
    heaviest: tuple[HeavyKey, ...]


class MovedKey(NamedTuple):
    """A key whose destination differs.

    Attributes:
        key: the hashed value, or its name.
        before: its destination, or why the broker refuses it.
        after: the same after the change.
    """

    key: Any
    before: Place | Refused
    after: Place | Refused


@dataclass(frozen=True, slots=True)
class Change:
    """What another ring, or another release, would move.

    Attributes:
        ring: the other map.
        shares: the exact movement; None if the two releases may hash a header differently, or if it depends on an order that is not known.
        messages: the movement of the sample's messages, without those that one of the two refuses; None without a sample.
        refused_before: the number of messages that are refused before and routed after.
        refused_after: the number of messages that are routed before and refused after.
        keys: the distinct keys that move, in the order of the sample, with those that one of the two refuses; None without a sample, and
            if the sample has more than `MOST_DISTINCT` keys.
        appended: of a ring whose order is not known the exact share of each new member, if that is the same in every order; else None.
    """

    ring: KeyMap
    shares: Flows | None
    messages: Flows | None = None
    refused_before: int = 0
    refused_after: int = 0
    keys: tuple[MovedKey, ...] | None = None
    appended: Mapping[Destination, float] | None = None

    @property
    def moved(self) -> float | None:
        """The exact share of the keys that move; None if it is not known."""
        if self.shares is not None:
            return float(self.shares.moved)
        return None if self.appended is None else sum(self.appended.values())


@dataclass(frozen=True, slots=True)
class Simulation:
    """The outcome of :func:`simulate`.

    Attributes:
        ring: the map; bindings and partitions count as buckets.
        places: what each destination has of it, in ring order, holes last.
        sample: where the sample goes; None without one.
        change: the movement to the other ring; None without one.
    """

    ring: KeyMap
    places: tuple[PlaceShare, ...]
    sample: SampleCounts | None
    change: Change | None
    _repr_html_ = shown_by("rabbit_chx.analysis.reports", "simulation_report")


def simulate(
    ring: KeyMap,
    values: Sequence[Any] | Iterable[SampleBatch] | None = None,
    *,
    hashing: Hashing | None = None,
    changed: KeyMap | None = None,
    is_appended: bool = False,
    heaviest: int = 5,
) -> Simulation:
    """Return the exact shares of a ring, the destinations of a sample, and the movement of a change.

    Args:
        ring: the map that is asked about.
        values: a sample: what is hashed of each message, once for each message, as a list, a tuple or an array; or an iterator of
            `SampleBatch` values, which takes bounded memory, however many there are.
        hashing: the hashed part of a message; None for the routing key.
        changed: the same after a change or under another release, if one is asked about.
        is_appended: True: `changed` is the ring itself with more members, bound last. What they get is the same in every order.
        heaviest: how many of the heaviest keys to name.

    Raises:
        UnknownOrderError: the destinations of a sample depend on an order that is not known.
        InputError: a value of the sample cannot be sent, or `ring` does not map keys.
    """
    check_key_map(ring)
    ideals = ring.ideals()
    shares: Mapping[Any, float | None] = ring.shares() if ring.has_shares else dict.fromkeys(ideals)
    places = []
    for place, share in shares.items():
        buckets, ideal = ideals.get(place, (ring.buckets.count(None), 0.0))
        places.append(PlaceShare(place, buckets, share, ideal))
    hashing = hashing or Hashing()
    change = None
    if changed is not None:
        check_comparable(ring, changed)
        change = _exact_change(ring, changed, hashing, is_appended=is_appended)
    if values is None:
        return Simulation(ring, tuple(places), None, change)

    if isinstance(values, Iterator):
        batches: Iterable[SampleBatch] = values
        most_distinct: int | None = MOST_DISTINCT
    else:
        batches = [SampleBatch(cast("Sequence[Any]", values))]
        most_distinct = None
    counting = _Counting(ring, changed, hashing, most_distinct)
    for batch in batches:
        counting.add(batch)
    sample = counting.counts(shares, heaviest)
    return Simulation(ring, tuple(places), sample, change and counting.change(change))


def _exact_change(ring: KeyMap, changed: KeyMap, hashing: Hashing, *, is_appended: bool) -> Change:
    """Return what a change moves, as far as that is the same in every order."""
    if ring.has_key_destinations and changed.has_key_destinations:
        is_alike = hashing.hash_header is None or ring.release == changed.release
        return Change(changed, ring.flows(changed) if is_alike else None)
    return Change(changed, None, appended=appended_shares(ring, changed) if is_appended else None)


def movement(before: KeyMap, after: KeyMap) -> Flows:
    """Return the exact movement between two key maps, as `KeyMap.flows`.

    Args:
        before: the map before the change.
        after: the map after it, of the same kind of hash.

    Returns:
        Shares of all hashes; those of rings are floats k/2^21.

    Raises:
        InputError: keys are hashed differently in the two.
        NotDeterminedError: one of the releases does not determine the destination of a key.
    """
    check_key_map(before)
    return before.flows(after)


def appended_shares(ring: KeyMap, after: KeyMap) -> dict[Destination, float] | None:
    """Return the exact share of the keys that each new destination gets which is bound behind all others, in whatever order these were bound.

    The keys come from all others alike. It returns None if the share depends on the order.

    Args:
        ring: the ring; its order need not be known.
        after: the same ring with more members, bound last.
    """
    added = {place for place in after.destinations if place not in ring.destinations}
    count = len(ring.buckets)
    is_appended = all(place in added for place in after.buckets[count:]) and count + sum(
        map(after.buckets.count, added)
    ) == len(after.buckets)
    if not is_appended or not ring.has_bucket_counts or ring.slots is not None or not ring.hashing.has_order:
        return None
    numbered = HashRing.from_buckets([str(number) for number in range(len(after.buckets))], ring.release)
    shares = numbered.shares()
    moved: dict[Destination, float] = {}
    for number in range(count, len(after.buckets)):
        place = after.buckets[number]
        if place is not None:
            moved[place] = moved.get(place, 0.0) + shares[str(number)]
    return moved


class _Counting:
    """Counts a sample batch by batch."""

    def __init__(self, ring: KeyMap, changed: KeyMap | None, hashing: Hashing, most: int | None) -> None:
        self._ring = ring
        self._changed = changed
        self._hashing = hashing
        self._most = most
        self._messages = 0
        self._refused: Counter[str] = Counter()
        self._messages_of: Counter[Place] = Counter()
        self._keys_of: Counter[Place] = Counter()
        self._weights: dict[Any, int] | None = {}
        #: The name of each kept key, and its destinations before and after the change.
        self._named: dict[Any, tuple[Any, Place | Refused, Place | Refused]] = {}
        self._sketch = KeySketch(_COUNTERS)
        self._moved: Counter[tuple[Place, Place]] = Counter()
        self._refused_before = self._refused_after = 0
        self._moves: list[MovedKey] = []

    def add(self, batch: SampleBatch) -> None:
        values, _, names = batch
        weights, first = self._hashing.weigh(batch)
        distinct = [values[first[identity]] for identity in weights]
        outcomes = self._hashing.route_all(distinct, self._ring)
        self._count_messages(outcomes, weights.values())
        called = values if names is None else names
        afters = outcomes

        if self._changed is not None:
            afters = self._hashing.route_all(distinct, self._changed)
            for (identity, count), before, after in zip(weights.items(), outcomes, afters, strict=True):
                is_new = self._weights is not None and identity not in self._weights
                name = called[first[identity]] if is_new else None
                self._count_move(name, before, after, count, is_new=is_new)

        if self._weights is None:
            for (identity, count), outcome, after in zip(weights.items(), outcomes, afters, strict=True):
                if not isinstance(outcome, Refused):
                    self._sketch.add((called[first[identity]], outcome, after), count)
            return

        for (identity, count), outcome, after in zip(weights.items(), outcomes, afters, strict=True):
            if identity in self._weights:
                self._weights[identity] += count
                continue
            self._weights[identity] = count
            self._named[identity] = called[first[identity]], outcome, after
            if not isinstance(outcome, Refused):
                self._keys_of[outcome] += 1

        if self._most is not None and len(self._weights) > self._most:
            self._forget(self._weights)

    def _count_messages(self, outcomes: Sequence[Place | Refused], counts: Collection[int]) -> None:
        self._messages += sum(counts)
        for outcome, count in zip(outcomes, counts, strict=True):
            if isinstance(outcome, Refused):
                self._refused[outcome.reason] += count
            else:
                self._messages_of[outcome] += count

    def _count_move(
        self, name: Any, before: Place | Refused, after: Place | Refused, count: int, *, is_new: bool
    ) -> None:
        if isinstance(before, Refused) or isinstance(after, Refused):
            if isinstance(before, Refused) and isinstance(after, Refused):
                return
            self._refused_before += count if isinstance(before, Refused) else 0
            self._refused_after += count if isinstance(after, Refused) else 0
        else:
            self._moved[before, after] += count
        if is_new and before != after:
            self._moves.append(MovedKey(name, before, after))

    def _forget(self, weights: dict[Any, int]) -> None:
        """Keep the heaviest keys only."""
        for identity in nlargest(_COUNTERS, weights, key=weights.__getitem__):
            name, outcome, after = self._named[identity]
            if not isinstance(outcome, Refused):
                self._sketch.add((name, outcome, after), weights[identity])
        self._weights = None
        self._named.clear()
        self._moves.clear()

    def change(self, exact: Change) -> Change:
        """Return a change with the movement of the sample."""
        return replace(
            exact,
            messages=Flows(self._ring.destinations, exact.ring.destinations, self._moved).row_by_row(),
            refused_before=self._refused_before,
            refused_after=self._refused_after,
            keys=None if self._weights is None else tuple(self._moves),
        )

    def counts(self, shares: Iterable[Any], heaviest: int) -> SampleCounts:
        """Return the counts of the sample."""
        shown = dict.fromkeys(shares, 0)
        keys_of: dict[Place, int] = {}
        heavy = []
        if self._weights is None:
            for count in self._sketch.heaviest(heaviest):
                name, place, after = count.key
                heavy.append(HeavyKey(name, count.least, place, after))
        else:
            keys_of = shown | self._keys_of
            most = nlargest(heaviest, self._weights, key=self._weights.__getitem__)
            for identity in most:
                name, place, after = self._named[identity]
                if not isinstance(place, Refused):
                    heavy.append(HeavyKey(name, self._weights[identity], place, after))

        return SampleCounts(
            messages=self._messages,
            keys=None if self._weights is None else len(self._weights),
            refused=self._refused.total(),
            refusal=next(iter(self._refused), None),
            messages_of=shown | self._messages_of,
            keys_of=keys_of,
            heaviest=tuple(heavy),
        )

"""What a ring does to a sample of keys, and what a change of the ring would move."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.matrix import MovementMatrix, matrix_of
from rabbit_chx.analysis.modulo_map import ModuloMap, movement
from rabbit_chx.analysis.uniformity import ChiSquare, chi_square
from rabbit_chx.routing import KeyMap, Place, check_key_map, queue_behind, ring_beneath


@dataclass(frozen=True, slots=True)
class PlaceShare:
    """What a destination has of the ring.

    Attributes:
        place: the destination; None for the holes that keys reach.
        buckets: how many buckets it has.
        share: the exact share of the 2^21 seeds.
        ideal: its share by the number of its buckets; 0 for holes.
    """

    place: Place
    buckets: int
    share: float
    ideal: float

    @property
    def skew(self) -> float:
        """By what part the share differs from the ideal share: 0.01 is one percent too many. 0 for holes."""
        return self.share / self.ideal - 1 if self.ideal else 0.0


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key that many messages have.

    Attributes:
        value: what is hashed, as the caller gave it.
        messages: how many messages have it.
        place: where they go.
        position: the position of the first of them in the sample, from 0.
    """

    value: Any
    messages: int
    place: Place
    position: int


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Where a sample goes.

    Attributes:
        messages: how many there are.
        keys: how many distinct keys they have.
        refused: how many messages the broker would not route, but close the channel.
        refusal: the reason for the first refused message; None where none is refused.
        messages_of: messages per destination.
        keys_of: distinct keys per destination.
        test: distinct keys compared with the exact shares; None where there are none.
        heaviest: the keys with the most messages, the heaviest first.
    """

    messages: int
    keys: int
    refused: int
    refusal: str | None
    messages_of: dict[Place, int]
    keys_of: dict[Place, int]
    test: ChiSquare | None
    heaviest: tuple[HeavyKey, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What another ring would move.

    Attributes:
        ring: the other ring, or other slots, or another `ModuloMap`.
        shares: the exact movement.
        messages: the movement of the sample's messages; None without a sample.
    """

    ring: KeyMap | ModuloMap
    shares: MovementMatrix
    messages: MovementMatrix | None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The outcome of :func:`simulate`.

    Attributes:
        ring: the ring, or the slots of one, or a `ModuloMap`, whose bindings count as buckets.
        places: what each destination has of it, in ring order, holes last.
        sample: where the sample goes; None without one.
        change: what the other ring would move; None without one.
    """

    ring: KeyMap | ModuloMap
    places: tuple[PlaceShare, ...]
    sample: SampleCounts | None
    change: Change | None


def simulate(
    ring: KeyMap | ModuloMap,
    values: Sequence[Any] | None = None,
    *,
    hashing: Hashing | None = None,
    changed: KeyMap | ModuloMap | None = None,
    heaviest: int = 5,
) -> Simulation:
    """Return the exact shares of a ring, where a sample goes on it, and what a change would move.

    Args:
        ring: the ring that is asked about, or the slots of one; or an exchange without a ring.
        values: a sample: what is hashed of each message, once for each message.
        hashing: what the exchange hashes; None for the routing key.
        changed: the same after a change, if one is asked about.
        heaviest: how many of the heaviest keys to name.

    Raises:
        InputError: a value of the sample cannot be sent, or a ring is neither a HashRing nor a SlotTable.
    """
    if isinstance(ring, ModuloMap):
        held = Counter[Place](ring.numbered)
        count = held.total()
    else:
        check_key_map(ring)
        beneath = ring_beneath(ring)
        held = Counter(queue_behind(ring, place) for place in beneath.buckets)
        count = beneath.bucket_count
    shares = ring.shares()
    places = tuple(
        PlaceShare(place, held[place], share, 0.0 if place is None else held[place] / count)
        for place, share in shares.items()
    )
    exact = None if changed is None else movement(ring, changed)
    if values is None:
        change = None if changed is None or exact is None else Change(changed, exact, None)
        return Simulation(ring, places, None, change)

    hashing = hashing or Hashing()
    weights, positions = _counted_values(hashing.identities(values))
    keys = [values[position] for position in positions]
    outcomes = hashing.route_all(keys, ring)
    named = (
        HeavyKey(keys[n], weights[n], place, positions[n])
        for n in nlargest(heaviest, range(len(keys)), weights.__getitem__)
        if not isinstance(place := outcomes[n], Refused)
    )
    sample = _sample_counts(weights, outcomes, shares, tuple(named))
    if changed is None or exact is None:
        return Simulation(ring, places, sample, None)
    pairs: Counter[tuple[Place, Place]] = Counter()
    for weight, before, after in zip(weights, outcomes, hashing.route_all(keys, changed), strict=True):
        if not isinstance(before, Refused) and not isinstance(after, Refused):
            pairs[before, after] += weight
    return Simulation(ring, places, sample, Change(changed, exact, matrix_of(pairs, ring, changed)))


def _counted_values(identities: Sequence[Any]) -> tuple[array[int], array[int]]:
    """Return how often each distinct identity occurs, and where first, in the order of first occurrence.

    Args:
        identities: what is counted; equal where values are the same in a message.
    """
    slots: dict[Any, int] = {}
    weights, positions = array("q"), array("q")
    for position, identity in enumerate(identities):
        slot = slots.setdefault(identity, len(weights))
        if slot == len(weights):
            weights.append(1)
            positions.append(position)
        else:
            weights[slot] += 1
    return weights, positions


def _sample_counts(
    weights: Sequence[int],
    outcomes: Sequence[Place | Refused],
    shares: dict[Place, float],
    heaviest: tuple[HeavyKey, ...],
) -> SampleCounts:
    """Return where the values of a sample go.

    Args:
        weights: how often each distinct value is in the sample.
        outcomes: where each of them goes.
        shares: the exact shares of the destinations.
        heaviest: the heaviest of them.
    """
    messages_of: dict[Place, int] = dict.fromkeys(shares, 0)
    keys_of: dict[Place, int] = dict.fromkeys(shares, 0)
    refused, refusal = 0, None
    for weight, outcome in zip(weights, outcomes, strict=True):
        if isinstance(outcome, Refused):
            refused += weight
            refusal = refusal or outcome.reason
            continue
        messages_of[outcome] = messages_of.get(outcome, 0) + weight
        keys_of[outcome] = keys_of.get(outcome, 0) + 1
    return SampleCounts(
        messages=sum(weights),
        keys=len(weights),
        refused=refused,
        refusal=refusal,
        messages_of=messages_of,
        keys_of=keys_of,
        test=chi_square(keys_of, shares) if shares and any(keys_of.values()) else None,
        heaviest=heaviest,
    )

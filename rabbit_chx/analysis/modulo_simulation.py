"""What an ``x-modulus-hash`` exchange or a super stream does to a sample of keys, and what a change would move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from rabbit_chx.analysis.matrix import matrix_of
from rabbit_chx.analysis.modulo_map import ModuloMap, modulo_movement
from rabbit_chx.analysis.simulation import (
    Change,
    HeavyKey,
    PlaceShare,
    Simulation,
    counted_values,
    sample_counts,
)

if TYPE_CHECKING:
    from rabbit_chx.routing import Place

__all__ = ["simulate_modulo"]


def simulate_modulo(
    given: ModuloMap,
    keys: Sequence[str] | None = None,
    *,
    changed: ModuloMap | None = None,
    heaviest: int = 5,
) -> Simulation:
    """Return the exact shares of the destinations, where a sample goes, and what a change would move.

    Args:
        given: what is asked about.
        keys: a sample: the routing key of each message.
        changed: the same after a change, if one is asked about.
        heaviest: how many of the heaviest keys to name.

    Raises:
        InputError: a key cannot be sent, or there is no partition.
        NotDeterminedError: nobody can know where a key goes, on that release.
    """
    shares = given.shares()
    held = Counter(given.numbered)
    places = tuple(PlaceShare(one, held[one], shares[one], held[one] / held.total()) for one in held)
    exact = None if changed is None else modulo_movement(given, changed)
    if keys is None:
        moved = None if changed is None or exact is None else Change(changed, exact, None)
        return Simulation(given, places, None, moved)
    weights, positions = counted_values(keys)
    messages = [{"routing_key": keys[position]} for position in positions]
    outcomes = given.route_all(messages)
    named = (
        HeavyKey(messages[n]["routing_key"], weights[n], outcomes[n], positions[n])
        for n in nlargest(heaviest, range(len(messages)), weights.__getitem__)
    )
    sample = sample_counts(weights, outcomes, shares, tuple(named))
    if changed is None or exact is None:
        return Simulation(given, places, sample, None)
    pairs: Counter[tuple[Place, Place]] = Counter()
    for weight, before, after in zip(weights, outcomes, changed.route_all(messages), strict=True):
        pairs[before, after] += weight
    return Simulation(given, places, sample, Change(changed, exact, matrix_of(pairs, given, changed)))

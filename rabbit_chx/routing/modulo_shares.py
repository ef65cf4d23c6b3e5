"""The exact shares of a hash that is taken modulo the number of buckets, as by an ``x-modulus-hash`` exchange and a super stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rabbit_chx.routing.bindings import Place

if TYPE_CHECKING:
    from rabbit_chx.routing.arrays import ModuloFlows


def modulo_shares(buckets: Sequence[Place], hashes: int) -> dict[Any, float]:
    """Return the exact share of each destination, if a hash goes to the bucket ``hash % len(buckets)``.

    Args:
        buckets: the destination of each remainder.
        hashes: the number of values of the hash.
    """
    counts: dict[Any, int] = {}
    whole, rest = divmod(hashes, len(buckets)) if buckets else (0, 0)
    for number, place in enumerate(buckets):
        counts[place] = counts.get(place, 0) + whole + (number < rest)
    return {place: count / hashes for place, count in counts.items()}


def modulo_flows(before: Sequence[Place], after: Sequence[Place], hashes: int) -> ModuloFlows:
    """Return the exact share of the hashes of each pair of destinations, as `modulo_shares`; computed when it is read.

    Without buckets all hashes are in the place None. What is not `staying` moves.
    """
    from rabbit_chx.routing.arrays import ModuloFlows

    return ModuloFlows(before, after, hashes)

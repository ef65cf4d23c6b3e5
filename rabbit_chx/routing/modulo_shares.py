"""The exact shares of a hash that is taken modulo the number of buckets, as by an ``x-modulus-hash`` exchange and a super stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import Flows


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


def modulo_flows(before: Sequence[Place], after: Sequence[Place], hashes: int) -> Flows:
    """Return the exact share of the hashes of each pair of destinations, as `modulo_shares`; computed when it is read.

    Without buckets all hashes are in the place None.
    """
    from rabbit_chx.routing.arrays import ModuloFlows

    return ModuloFlows(before, after, hashes)


def modulo_share_moved(before: Sequence[Place], after: Sequence[Place], hashes: int) -> float:
    """Return the exact share of the hashes whose destination differs, as `modulo_flows`."""
    from rabbit_chx.routing.arrays import ModuloFlows

    return 1 - ModuloFlows(before, after, hashes).staying

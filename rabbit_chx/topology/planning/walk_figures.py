"""How many keys move on a way from one ring to another, and the way on which the fewest do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rabbit_chx.topology.planning.ring_steps import ring_walks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rabbit_chx.routing import Destination, HashRing
    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.planning.ring_movement import Movement
    from rabbit_chx.topology.planning.ring_steps import RingWalk

__all__ = ["best_walk", "figures_of"]

_ALWAYS = 2.0
#: So many moments are counted first.
_FIRST = 3
#: For so many rings of one size, pairs of buckets are counted instead of seeds.
_WORTH_COUNTING = 4


def best_walk(
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    movement: Movement,
) -> tuple[RingWalk, tuple[float, float, float]] | None:
    """Return the way to a ring that leaves the fewest keys without a destination, and of those the one that moves least.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again.
        movement: the movement away from the live ring.

    Returns:
        The way, and its figures as `figures_of` gives them. None if binds and unbinds cannot make the ring.

    Raises:
        InputError: the broker would refuse a binding.
        NotDeterminedError: no rule of the release decides what one of the operations does.
    """
    rated = [(walk, figures_of(walk, live, movement)) for walk in ring_walks(live, bound, wanted, replaced)]
    return min(rated, key=lambda one: (one[1][2], one[1][1]), default=None)


def figures_of(walk: RingWalk, live: HashRing, movement: Movement) -> tuple[float, float, float]:
    """Return the share that moves in the end, at the worst moment, and the largest share without a destination."""
    if not walk.rings:
        return 0.0, 0.0, 0.0
    moments = [walk.rings[n] for n in _moments_that_count(walk, live)]
    movement.prepare(ring.bucket_count for ring in moments)
    end, lost = movement.moved_and_lost(walk.rings[-1].buckets)
    worst = end
    often = Counter(ring.bucket_count for ring in moments)
    most = [(_most_moved(ring, movement), ring) for ring in moments[:-1]]
    most.sort(key=lambda one: -one[0])
    # Where most may move comes first, as it makes others not worth counting; then by falling size, for cheap tables.
    by_size = sorted(most[_FIRST:], key=lambda one: -one[1].bucket_count)
    for bound, ring in [*most[:_FIRST], *by_size]:
        if bound > worst:
            moved, nowhere = movement.moved_and_lost(
                ring.buckets, once=often[ring.bucket_count] < _WORTH_COUNTING
            )
            worst, lost = max(worst, moved), max(lost, nowhere)
    return end, worst, lost


def _most_moved(ring: HashRing, movement: Movement) -> float:
    """Return a share that is not exceeded; above 1 where keys may have no destination, which has to be counted."""
    complete = 0 < ring.bucket_count == len(ring.buckets)
    return 1 - movement.least_staying(ring.buckets) if complete else _ALWAYS


def _moments_that_count(walk: RingWalk, live: HashRing) -> list[int]:
    """Return the steps after which the movement has to be counted, the last one always.

    From one step to the next neither share can get smaller in two cases, so the first of the two is not counted: a
    destination is bound that had no bucket before, or the end of the live ring is cut off piece by piece.
    """
    had = set(live.buckets)
    rings = walk.rings
    is_cut = [ring.buckets == live.buckets[: len(ring.buckets)] for ring in rings]
    counted = []
    for n, ring in enumerate(rings):
        if n + 1 < len(rings):
            step = walk.steps[n + 1]
            grows = (
                step.action == "bind"
                and step.member.destination not in had
                and ring.bucket_count == len(ring.buckets) > 0
                and rings[n + 1].buckets[: len(ring.buckets)] == ring.buckets
            )
            if grows or (step.action == "unbind" and is_cut[n] and is_cut[n + 1]):
                continue
        counted.append(n)
    return counted

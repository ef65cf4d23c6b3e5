"""How many keys move on a way from one ring to another, and the way on which the fewest do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rabbit_chx.topology.planning.ring_steps import ring_walks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rabbit_chx.routing import Destination, HashRing
    from rabbit_chx.routing.ring_state import RingState
    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.planning.ring_movement import Movement
    from rabbit_chx.topology.planning.ring_steps import RingWalk

__all__ = ["best_walk", "figures_of"]

_ALWAYS = 2.0
#: So many moments are counted first.
_FIRST = 3
#: For so many rings of one size, pairs of buckets are counted instead of seeds.
_WORTH_COUNTING = 4
#: For rings of so many sizes, seeds are sorted once instead of counted for each size.
_MANY = 24
#: So many rings of a few sizes are counted that way too.
_MANY_RINGS = 200
#: Of these, no ring has more than so many times the buckets of another.
_RANGE = 16


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
    sizes = {id(ring): _bucket_count(ring) for ring in moments}
    movement.prepare(sizes.values())
    end, lost = movement.moved_and_lost(walk.rings[-1].buckets, once=len(moments) == 1)
    often = Counter(sizes.values())
    most = [(_most_moved(ring, sizes[id(ring)], movement), ring) for ring in moments[:-1]]
    most.sort(key=lambda one: -one[0])

    def one_by_one(some: Sequence[tuple[float, RingState]], worst: float, lost: float) -> tuple[float, float]:
        for bound, ring in some:
            if bound > worst:
                once = often[sizes[id(ring)]] < _WORTH_COUNTING
                moved, nowhere = movement.moved_and_lost(ring.buckets, once=once)
                worst, lost = max(worst, moved), max(lost, nowhere)
        return worst, lost

    # Where most may move comes first, as it makes others not worth counting; then by falling size, for cheap tables.
    worst, lost = one_by_one(most[:_FIRST], end, lost)
    together = _counted_together(most[_FIRST:], worst, live)
    if together:
        worst = movement.most_moved([ring.buckets for _, ring in together], worst)
    known = {id(ring) for _, ring in together}
    others = [one for one in most[_FIRST:] if id(one[1]) not in known]
    worst, lost = one_by_one(sorted(others, key=lambda one: -sizes[id(one[1])]), worst, lost)
    return end, worst, lost


def _counted_together(
    most: Sequence[tuple[float, RingState]], worst: float, live: HashRing
) -> Sequence[tuple[float, RingState]]:
    """Return the rings that are so many that their seeds are sorted to count them, each with the share that it may move.

    Rings of which it is known that they move no more than the worst are left out.
    """
    if live.bucket_count != len(live.buckets):
        return ()
    found = [(bound, ring) for bound, ring in most if worst < bound < _ALWAYS]
    largest = max((len(ring.buckets) for _, ring in found), default=0)
    found = [one for one in found if len(one[1].buckets) * _RANGE >= largest]
    sizes = {len(ring.buckets) for _, ring in found}
    return found if len(sizes) >= _MANY or len(found) >= _MANY_RINGS else ()


def _bucket_count(ring: RingState) -> int:
    return len(ring.buckets) - ring.buckets.count(None)


def _most_moved(ring: RingState, size: int, movement: Movement) -> float:
    """Return a share that is not exceeded; above 1 where keys may have no destination, which has to be counted."""
    complete = 0 < size == len(ring.buckets)
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
                and _bucket_count(ring) == len(ring.buckets) > 0
                and rings[n + 1].buckets[: len(ring.buckets)] == ring.buckets
            )
            if grows or (step.action == "unbind" and is_cut[n] and is_cut[n + 1]):
                continue
        counted.append(n)
    return counted

"""How many keys move on a way from one ring to another, and the way on which the fewest do."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.routing.seed_tables import SEEDS
from rabbit_chx.topology.planning.plain_moments import PlainMoments
from rabbit_chx.topology.planning.ring_steps import ring_walks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import Destination, HashRing
    from rabbit_chx.routing.ring_state import RingState
    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.planning.ring_movement import Movement
    from rabbit_chx.topology.planning.ring_steps import RingWalk
    from rabbit_chx.topology.planning.staying_seeds import StayingSeeds

__all__ = ["best_walk", "figures_of"]

_ALWAYS = 2.0
#: So many moments are counted first.
_FIRST = 3
#: For so many rings of one size, pairs of buckets are counted instead of seeds.
_WORTH_COUNTING = 4
#: For rings of so many sizes, or for so many large rings, seeds are sorted once instead of counted for each size.
_MANY = 24
#: So many rings of any size are counted that way too.
_MANY_RINGS = 200
#: A ring of so many buckets is large.
_LARGE = 200
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
    walks = ring_walks(live, bound, wanted, replaced)
    moments = [_moments(walk, live, movement) for walk in walks]
    seeds = _seeds_for([one for some in moments for one in some], live, movement)
    rated = [(walk, _figures(some, seeds, movement)) for walk, some in zip(walks, moments, strict=True)]
    return min(rated, key=lambda one: (one[1][2], one[1][1]), default=None)


def figures_of(walk: RingWalk, live: HashRing, movement: Movement) -> tuple[float, float, float]:
    """Return the share that moves in the end, at the worst moment, and the largest share without a destination."""
    moments = _moments(walk, live, movement)
    return _figures(moments, _seeds_for(moments, live, movement), movement)


class _Moment(NamedTuple):
    """A ring between two steps that has to be counted.

    Attributes:
        size: how many buckets it has, without holes.
        complete: whether it has buckets, and no holes.
        numbers: gives the number of the destination of each bucket.
    """

    size: int
    complete: bool
    numbers: Callable[[], NDArray[np.int32]]

    def fits(self, seeds: StayingSeeds) -> bool:
        return self.complete and seeds.least <= self.size <= seeds.most


def _figures(
    moments: Sequence[_Moment], seeds: StayingSeeds | None, movement: Movement
) -> tuple[float, float, float]:
    if not moments:
        return 0.0, 0.0, 0.0
    *earlier, last = moments
    together = [] if seeds is None else [one for one in earlier if one.fits(seeds)]
    known = {id(one) for one in together}
    others = [one for one in earlier if id(one) not in known]
    if seeds is None or not last.fits(seeds):
        movement.prepare([last.size, *(one.size for one in others)])
        end, lost = movement.moved_and_lost_of(last.numbers(), once=True)
    else:
        end, lost = 1 - seeds.staying(last.numbers()) / SEEDS, 0.0
    worst = end if seeds is None else _counted_together(together, end, seeds)
    return end, *_one_by_one(others, worst, lost, movement)


def _seeds_for(moments: Sequence[_Moment], live: HashRing, movement: Movement) -> StayingSeeds | None:
    """Return the seeds of the ring before, sorted, if there are so many moments that this is worth it."""
    if not 0 < live.bucket_count == len(live.buckets):
        return None
    sizes = [one.size for one in moments if one.complete]
    sizes = [size for size in sizes if size * _RANGE >= max(sizes)]
    worth = len(set(sizes)) >= _MANY or len(sizes) >= (
        _MANY_RINGS if max(sizes, default=0) < _LARGE else _MANY
    )
    return movement.staying_seeds(min(sizes), max(sizes)) if worth else None


def _counted_together(moments: Sequence[_Moment], worst: float, seeds: StayingSeeds) -> float:
    """Return the largest share that one of the moments moves, or the worst that is known if that is more."""
    fewest = SEEDS - round(worst * SEEDS)
    at_least = [seeds.least_staying(one.numbers()) for one in moments]
    for least, one in sorted(zip(at_least, moments, strict=True), key=lambda one: one[0]):
        if least >= fewest:
            break
        fewest = min(fewest, seeds.staying(one.numbers(), fewest))
    return (SEEDS - fewest) / SEEDS


def _one_by_one(
    moments: Sequence[_Moment], worst: float, lost: float, movement: Movement
) -> tuple[float, float]:
    """Return the largest share that moves, and the largest without a destination. Some of both are known."""
    if not moments:
        return worst, lost
    movement.prepare([one.size for one in moments])
    often = Counter(one.size for one in moments)
    most = [(1 - movement.least_staying(one.numbers()) if one.complete else _ALWAYS, one) for one in moments]
    # Where most may move comes first, as it makes others not worth counting; then by falling size, for cheap tables.
    most.sort(key=lambda one: -one[0])
    for bound, one in [*most[:_FIRST], *sorted(most[_FIRST:], key=lambda one: -one[1].size)]:
        if bound > worst:
            once = often[one.size] < _WORTH_COUNTING
            moved, nowhere = movement.moved_and_lost_of(one.numbers(), once=once)
            worst, lost = max(worst, moved), max(lost, nowhere)
    return worst, lost


def _moments(walk: RingWalk, live: HashRing, movement: Movement) -> list[_Moment]:
    """Return the moments that have to be counted, the last one always.

    From one step to the next neither share can get smaller in two cases, so the first of the two is not counted: a
    destination is bound that had no bucket before, or the end of the live ring is cut off piece by piece. Where several
    destinations are one place, keys may come back to it in the second case.
    """
    rings = walk.rings
    if not rings:
        return []
    if isinstance(rings, PlainMoments):
        moments, cuts = _plain_moments(rings, live, movement), rings.cuts
    else:
        moments = [_moment_of(ring, movement) for ring in rings]
        cuts = [ring.buckets == live.buckets[: len(ring.buckets)] for ring in rings]
    counted = []
    for n, moment in enumerate(moments[:-1]):
        step = walk.steps[n + 1]
        if step.action == "bind":
            known = moment.complete and movement.is_new(step.member.destination)
        else:
            known = cuts[n] and cuts[n + 1] and movement.by_own_names
        if not known:
            counted.append(moment)
    return [*counted, moments[-1]]


def _plain_moments(rings: PlainMoments, live: HashRing, movement: Movement) -> list[_Moment]:
    import numpy as np

    nowhere = movement.numbered(())
    there = movement.numbered(live.buckets) if rings.old else nowhere[:0]
    new = movement.numbered([run.place for run in rings.new])[: len(rings.new)]
    new = np.repeat(new, [run.length for run in rings.new])
    return [
        _Moment(size, size > 0, partial(rings.numbers, n, there, new) if size else lambda: nowhere)
        for n, size in enumerate(rings.sizes)
    ]


def _moment_of(ring: RingState, movement: Movement) -> _Moment:
    size = len(ring.buckets) - ring.buckets.count(None)
    return _Moment(size, 0 < size == len(ring.buckets), partial(movement.numbered, ring.buckets))

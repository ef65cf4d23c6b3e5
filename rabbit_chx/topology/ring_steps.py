"""The binds and unbinds that turn a live ring into the wanted one, in the order that disturbs the fewest keys.

A broker changes a ring in two ways only. A bind appends buckets. An unbind removes all buckets of a destination, and the later buckets get
lower numbers. So members can stay only if the wanted ring begins with them and the live ring has them in the same order. All others are
unbound, and the rest of the wanted ring is bound after those that stay. No other way takes fewer operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, HashRing, Release, ring_changes
from rabbit_chx.routing.bindings import Place, weight_of
from rabbit_chx.routing.release import NEWEST
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.movement import MovementCounter
from rabbit_chx.topology.objects import HASH_EXCHANGE, BindingDefinition, ExchangeDefinition, RingMember

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology

#: Above this number of steps one order is tried: each step costs as many buckets as the ring has.
_MANY_STEPS = 200


class LiveRing(NamedTuple):
    """The live ring of an exchange; `bound` are all its bindings, in ring order as far as that is known."""

    exchange: str
    ring: HashRing
    bound: tuple[RingMember, ...]

    def is_made_by(self, members: tuple[RingMember, ...]) -> bool:
        """Return True if these members make the same buckets and bindings."""
        if Counter(self.bound) != Counter(members):
            return False
        try:
            return ring_of(members, self.ring.release).buckets == self.ring.buckets
        except InputError:  # this release refuses the weight of a binding that is older than the rule
            return self.bound == members

    @property
    def state(self) -> RingState:
        """The ring as input of `ring_changes`."""
        ring, bindings = self.ring, tuple(dict.fromkeys(member.binding for member in self.bound))
        return RingState(ring.buckets, ring.release, ring.provenance, bindings, ring.end_known)

    def unbinds(self) -> tuple[PlannedChange, ...]:
        """Return the unbinds of all members, from the end of the ring."""
        position = {destination: n for n, destination in enumerate(self.ring.destinations)}
        members = sorted(self.bound, key=lambda member: -position.get(member.destination, len(position)))
        return tuple(ring_step("unbind", self.exchange, member) for member in members)


def live_ring_of(live: Topology, exchange: ExchangeDefinition | None, name: str) -> LiveRing:
    """Return the live ring of an exchange; it is empty if `exchange` is None because it does not exist."""
    release = live.release or NEWEST
    if exchange is None or exchange.type != HASH_EXCHANGE:
        return LiveRing(name, ring_of((), release), ())
    ring = live.rings.get(name)
    if exchange.ring is not None:
        bound = exchange.ring
    elif ring is None:
        bound = ()
    elif ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    else:
        bound = members_of(ring.buckets)
    return LiveRing(name, _assumed(bound, release) if ring is None else ring, bound)


def _assumed(bound: tuple[RingMember, ...], release: Release) -> HashRing:
    bindings = [member.binding for member in bound]
    try:
        return HashRing.from_bindings(bindings, release, "assumed")
    except InputError:  # this release refuses the weight of a binding that is older than the rule
        buckets = tuple(place for place, key in bindings for _ in range(weight_of(place, key)))
        return HashRing(buckets, release, "assumed", tuple(bindings))


def ring_of(members: Sequence[RingMember], release: Release) -> HashRing:
    """Return the ring that members make on an exchange without bindings.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.from_bindings([member.binding for member in members], release)


def members_of(buckets: Sequence[Place]) -> tuple[RingMember, ...]:
    """Return one member for each run of equal buckets, without holes."""
    return tuple(
        RingMember(place, str(len(list(run)))) for place, run in groupby(buckets) if place is not None
    )


class RingSteps(NamedTuple):
    """The steps from one ring to another, and the share of keys that they move.

    Attributes:
        steps: the binds and unbinds, in order.
        first: the number of steps before the replacement of destinations.
        after: the ring after the last step.
        moved: the share of keys with another destination at the end.
        moved_at_worst: the same at the worst moment between two steps.
        lost_at_worst: the largest share of keys without a destination at any moment.
    """

    steps: tuple[PlannedChange, ...]
    first: int
    after: HashRing
    moved: float
    moved_at_worst: float
    lost_at_worst: float


def best_steps(
    live: LiveRing,
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    counter: MovementCounter,
    aliases: Mapping[Place, Place],
) -> RingSteps | None:
    """Return the steps that leave the fewest keys without a destination, and of those the steps that move the fewest.

    None if no binds and unbinds make the ring.

    Args:
        live: the live ring.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again. They are unbound first.
        counter: counts the keys that move away from the live ring.
        aliases: replacements of destinations, such as the queue that owns a slot.

    Raises:
        InputError: the broker would refuse a binding.
        NotDeterminedError: no rule of the release determines the effect of one of the operations.
    """
    target = ring_of(wanted, live.ring.release)
    orders = dict.fromkeys(_orders(live, wanted, replaced))
    counter.prepare(count for steps, _ in orders for count in bucket_counts(live.ring, steps))
    rated = []
    for steps, first in orders:
        ring, moments = live.state, []
        numbers = counter.numbers(ring.buckets)
        for step in steps:
            ring = ring_after(ring, step)
            numbers = counter.numbers_after(numbers, step.binding.destination, len(ring.buckets))
            moments.append(counter.moved_and_lost(numbers, aliases))
        if ring.buckets == target.buckets:
            after = HashRing(*ring) if steps else live.ring
            moved, lost = zip(*moments or [(0.0, 0.0)], strict=True)
            rated.append(RingSteps(steps, first, after, moved[-1], max(moved), max(lost)))
    return min(rated, key=lambda rating: (rating.lost_at_worst, rating.moved_at_worst), default=None)


def ring_after(ring: RingState, step: PlannedChange) -> RingState:
    """Return the ring after a step."""
    binding = step.binding
    change = ring_changes.bind if step.action == "bind" else ring_changes.unbind
    return change(ring, binding.destination, binding.routing_key)


def ring_step(action: Literal["bind", "unbind"], exchange: str, member: RingMember) -> PlannedChange:
    """Return the bind or unbind of a member."""
    binding = BindingDefinition(exchange, member.destination, member.key, member.arguments)
    if action == "bind":
        return PlannedChange("bind", None, binding, ring=True)
    return PlannedChange("unbind", binding, None, ring=True)


def bucket_counts(ring: HashRing, steps: Sequence[PlannedChange]) -> Iterator[int]:
    """Yield the bucket count after each step. Holes, which some old releases leave, are not considered."""
    weights = Counter(place for place in ring.buckets if place is not None)
    for step in steps:
        binding = step.binding
        if step.action == "unbind":
            weights.pop(binding.destination, None)
        else:
            weights.setdefault(binding.destination, weight_of(binding.destination, binding.routing_key))
        yield max(weights.total(), 1)


def kept_members(live: LiveRing, wanted: Sequence[RingMember]) -> int:
    """Return the number of leading wanted members that can stay bound."""
    if len({member.destination for member in wanted}) < len(wanted):
        return 0
    runs = [(place, len(list(run))) for place, run in groupby(live.ring.buckets)]
    run_counts = Counter(place for place, _ in runs)
    bindings = Counter(member.destination for member in live.bound)
    positions = {
        run: n for n, run in enumerate(runs) if run[0] and run_counts[run[0]] == bindings[run[0]] == 1
    }
    bound, last = set(live.bound), -1
    for number, member in enumerate(wanted):
        position = positions.get((member.destination, weight_of(*member.binding)), -1)
        if position <= last or member not in bound:
            return number
        last = position
    return len(wanted)


def _orders(
    live: LiveRing, wanted: Sequence[RingMember], replaced: Collection[Destination]
) -> Iterator[tuple[tuple[PlannedChange, ...], int]]:
    """Yield orders of the same operations, each with the number of operations before the replacement of destinations."""
    until = next((n for n, member in enumerate(wanted) if member.destination in replaced), len(wanted))
    kept = kept_members(live, wanted[:until])
    unbinds = _unbinds(live, {member.destination for member in wanted[:kept]})
    first = [step for place in [*unbinds] if place in replaced for step in unbinds.pop(place)]
    binds = [ring_step("bind", live.exchange, member) for member in wanted[kept:]]
    bound_again = {bind.binding.destination for bind in binds}
    leaving = [place for place in unbinds if place not in bound_again]
    yield (*first, *_alternating(unbinds, leaving, binds)), len(first)
    if len(unbinds) + len(binds) <= _MANY_STEPS or not live.ring.buckets:
        yield (*first, *chain.from_iterable(unbinds.values()), *binds), len(first)
        yield (*first, *_binds_first(unbinds, leaving, binds)), len(first)


def _unbinds(live: LiveRing, kept: Collection[Destination]) -> dict[Destination, list[PlannedChange]]:
    """Return the steps that remove each other destination: those without a bucket, then from the end.

    A ghost has buckets without a binding. It is bound, which adds no bucket, so that it can be unbound.
    """
    bound: dict[Destination, list[RingMember]] = {}
    for member in live.bound:
        bound.setdefault(member.destination, []).append(member)
    in_ring = dict.fromkeys(reversed(live.ring.destinations))
    steps = {}
    for place in (*(place for place in bound if place not in in_ring), *in_ring):
        if place not in kept:
            members = bound.get(place, [RingMember(place)])
            ghost = () if place in bound else (ring_step("bind", live.exchange, members[0]),)
            steps[place] = [*ghost, *(ring_step("unbind", live.exchange, member) for member in members)]
    return steps


def _alternating(
    unbinds: Mapping[Destination, Sequence[PlannedChange]],
    leaving: Sequence[Destination],
    binds: Sequence[PlannedChange],
) -> Iterator[PlannedChange]:
    """Yield unbinds and binds in turn, so that the ring keeps its size as far as possible."""
    new = sum(bind.binding.destination not in unbinds for bind in binds)
    surplus = max(len(leaving) - new, 0)
    for place in leaving[:surplus]:
        yield from unbinds[place]
    others, remaining = iter(leaving[surplus:]), dict(unbinds)
    for bind in binds:
        place = bind.binding.destination
        yield from remaining.pop(place if place in unbinds else next(others, place), ())
        yield bind


def _binds_first(
    unbinds: Mapping[Destination, Sequence[PlannedChange]],
    leaving: Sequence[Destination],
    binds: Sequence[PlannedChange],
) -> Iterator[PlannedChange]:
    """Yield the unbinds of leaving members last, so that the ring is never empty if that can be avoided."""
    remaining = dict(unbinds)
    for bind in binds:
        yield from remaining.pop(bind.binding.destination, ())
        yield bind
    for place in leaving:
        yield from unbinds[place]

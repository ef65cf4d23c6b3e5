"""The binds and unbinds that turn a live ring into the wanted one, in the order that disturbs the fewest keys.

A broker changes a ring in two ways only. A bind appends buckets. An unbind removes all buckets of a destination, and the later buckets get
lower numbers. So members can stay only if the wanted ring begins with them and the live ring has them in the same order. All others are
unbound, and the rest of the wanted ring is bound after those that stay. No other way takes fewer operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Literal

from rabbit_chx.routing import Destination, HashRing, ring_changes
from rabbit_chx.routing.bindings import Place, weight_of
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.live_rings import LiveRing, make_ring
from rabbit_chx.topology.objects import BindingDefinition, RingMember
from rabbit_chx.topology.planning.movement import MovementCounter
from rabbit_chx.topology.planning.ring_plan import Moment, RingPlan

#: Above this number of steps one order is tried: each step costs as many buckets as the ring has.
_MANY_STEPS = 200


def find_best_steps(
    live: LiveRing,
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
    counter: MovementCounter,
    aliases: Mapping[Place, Place],
) -> RingPlan | None:
    """Return the plan with the steps that leave the fewest keys without a destination. Among equals, those that move the fewest keys.

    Return None if no binds and unbinds make the ring.

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
    start, target = live.state, make_ring(wanted, live.ring.release)
    orders = dict.fromkeys(_list_orders(live, wanted, replaced))
    counter.prepare([count for steps, _ in orders for count in bucket_counts(start.buckets, steps)])
    candidates = []
    for steps, early_step_count in orders:
        ring, moments = start, []
        numbers = counter.number_destinations(ring.buckets)
        for step in steps:
            ring = apply_step(ring, step)
            numbers = counter.update_numbers(numbers, step.binding.destination, len(ring.buckets))
            moments.append(Moment(*counter.count_moved_and_lost(numbers, aliases)))
        if ring.buckets == target.buckets:
            after = HashRing(*ring) if steps else live.ring
            candidates.append(
                RingPlan(
                    live.exchange, live.ring, after, steps, tuple(moments), early_step_count=early_step_count
                )
            )
    return min(candidates, key=lambda plan: (plan.lost_at_worst, plan.moved_at_worst), default=None)


def apply_step(ring: RingState, step: PlannedChange) -> RingState:
    """Return the ring after a step."""
    binding = step.binding
    change = ring_changes.bind if step.action == "bind" else ring_changes.unbind
    return change(ring, binding.destination, binding.routing_key)


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


def bucket_counts(buckets: Sequence[Place], steps: Sequence[PlannedChange]) -> Iterator[int]:
    """Yield the bucket count after each step, for `MovementCounter.prepare`.

    Holes, which some old releases leave, are not considered: a count that is missing here is prepared when it is needed.
    """
    weights = Counter(destination for destination in buckets if destination is not None)
    for step in steps:
        binding = step.binding
        if step.action == "unbind":
            weights.pop(binding.destination, None)
        else:
            weights.setdefault(binding.destination, weight_of(binding.destination, binding.routing_key))
        yield max(weights.total(), 1)


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
    bound, last = set(live.bound), -1
    for number, member in enumerate(wanted):
        position = positions.get((member.destination, weight_of(*member.binding)), -1)
        if position <= last or member not in bound:
            return number
        last = position
    return len(wanted)


def _list_orders(
    live: LiveRing, wanted: Sequence[RingMember], replaced: Collection[Destination]
) -> Iterator[tuple[tuple[PlannedChange, ...], int]]:
    """Yield orders of the same operations, each with the number of its operations before the replacement of destinations."""
    end = next((n for n, member in enumerate(wanted) if member.destination in replaced), len(wanted))
    kept = count_kept_members(live, wanted[:end])
    unbinds = _list_unbinds(live, {member.destination for member in wanted[:kept]})
    early = [
        step for destination in [*unbinds] if destination in replaced for step in unbinds.pop(destination)
    ]
    binds = [make_step("bind", live.exchange, member) for member in wanted[kept:]]
    rebound = {bind.binding.destination for bind in binds}
    removed = [destination for destination in unbinds if destination not in rebound]
    yield (*early, *_alternate(unbinds, removed, binds)), len(early)
    if len(unbinds) + len(binds) <= _MANY_STEPS or not live.ring.buckets:
        yield (*early, *chain.from_iterable(unbinds.values()), *binds), len(early)
        yield (*early, *_remove_last(unbinds, removed, binds)), len(early)


def _list_unbinds(live: LiveRing, kept: Collection[Destination]) -> dict[Destination, list[PlannedChange]]:
    """Return the steps that remove each destination that is not kept: first those without buckets, then from the end of the ring.

    A destination with ghost buckets has no binding, so it cannot be unbound. It is bound first: a bind adds no bucket to a destination that
    has some.
    """
    bound: dict[Destination, list[RingMember]] = {}
    for member in live.bound:
        bound.setdefault(member.destination, []).append(member)
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
    others, remaining = iter(removed[surplus:]), dict(unbinds)
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

"""The binds and unbinds that turn the ring of an exchange into another one, and the rings between them.

A broker changes a ring in two ways only. A bind appends buckets. An unbind takes all buckets of a destination away, and
those behind get lower numbers. So the members that can stay are those with which the wanted ring begins, if the live ring
has them in that order. Everything else is unbound, and what is left of the wanted ring is bound behind them. No other way
takes fewer operations.

On a plain ring each destination has one run of buckets and one binding, and there are no holes. A step then takes a run away
or appends one. So the ring after a step is what is left of the runs that were there, and the runs that were bound until then:
it is computed when asked for, not replayed. Tests hold it against :mod:`rabbit_chx.routing.ring_changes`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import Literal, NamedTuple, TypeAlias, overload

from rabbit_chx.routing import Destination, HashRing, Place, Release, ring_changes
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.ring_state import MAX_BUCKETS, RingState
from rabbit_chx.routing.rules import DUPLICATES_APPEND, UNBIND_SHIFTS_BY_WEIGHT, UNSORTED_ENDS
from rabbit_chx.topology.objects import RingMember

__all__ = [
    "PlainMoments",
    "RingStep",
    "RingWalk",
    "buckets_as_members",
    "kept_members",
    "plain_moments",
    "ring_walks",
    "wanted_ring_of",
]

StepAction: TypeAlias = Literal["bind", "unbind"]


@dataclass(frozen=True, slots=True)
class RingWalk:
    """A way from one ring to another.

    Attributes:
        steps: the operations, in order.
        rings: the state of the ring after each of them. A HashRing of each would cost more than all the rest.
        first: how many of the steps come before destinations are replaced.
    """

    steps: tuple[RingStep, ...]
    rings: Sequence[RingState]
    first: int


def wanted_ring_of(members: Sequence[RingMember], release: Release) -> HashRing:
    """Return the ring that members make on an exchange without bindings.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.from_bindings([member.binding for member in members], release)


def kept_members(live: HashRing, bound: Sequence[RingMember], wanted: Sequence[RingMember]) -> int:
    """Return how many of the first wanted members can stay as they are.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange.
        wanted: the wanted members, in order.
    """
    runs = [(place, len(list(run))) for place, run in groupby(live.buckets)]
    often = Counter(place for place, _ in runs)
    position = {place: n for n, (place, _) in enumerate(runs)}
    bindings = Counter(member.destination for member in bound)
    known = set(bound)
    if max(Counter(member.destination for member in wanted).values(), default=0) > 1:
        return 0
    kept, last = 0, -1
    for member in wanted:
        place = position.get(member.destination, -1)
        if (
            place <= last
            or member not in known
            or bindings[member.destination] != 1
            or often[member.destination] != 1
            or runs[place][1] != weight_of(*member.binding)
        ):
            break
        kept, last = kept + 1, place
    return kept


def ring_walks(
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: Sequence[RingMember],
    replaced: Collection[Destination] = (),
) -> list[RingWalk]:
    """Return the ways from the live ring to the wanted one: the same operations, in different orders.

    Args:
        live: the ring that is there.
        bound: all bindings of the exchange, those without a bucket too.
        wanted: the wanted members, in order.
        replaced: destinations that are deleted and declared again. They are unbound first.

    Returns:
        The ways that end at the wanted ring. There is none if binds and unbinds cannot make it.

    Raises:
        InputError: the broker would refuse a binding.
        NotDeterminedError: no rule of the release decides what one of the operations does.
    """
    target = wanted_ring_of(wanted, live.release)
    candidates = _candidates(live, bound, wanted, replaced)
    bindings = tuple(dict.fromkeys(one.binding for one in bound))
    there = RingState(live.buckets, live.release, live.provenance, bindings, live.end_known)
    walks = []
    for steps, first in dict.fromkeys(candidates):
        rings = _rings_after(there, steps)
        if (rings[-1] if rings else there).buckets == target.buckets:
            walks.append(RingWalk(steps, rings, first))
    return walks


def _rings_after(ring: RingState, steps: Sequence[RingStep]) -> Sequence[RingState]:
    plain = plain_moments(ring, steps)
    if plain is not None:
        return plain
    rings = []
    for step in steps:
        change = ring_changes.bind if step.action == "bind" else ring_changes.unbind
        ring = change(ring, *step.member.binding)
        rings.append(ring)
    return rings


#: Many steps are walked in one order only: each costs as many buckets as the ring has.
_MANY_STEPS = 200


def _candidates(
    live: HashRing,
    bound: Sequence[RingMember],
    wanted: Sequence[RingMember],
    replaced: Collection[Destination],
) -> Iterator[tuple[tuple[RingStep, ...], int]]:
    """Yield orders of the same operations, and how many of them come before destinations are replaced."""
    until = next((n for n, one in enumerate(wanted) if one.destination in replaced), len(wanted))
    kept = wanted[: kept_members(live, bound, wanted[:until] if replaced else wanted)]
    coming = wanted[len(kept) :]
    staying = {member.destination for member in kept}
    leaving = [place for place in _from_the_end(live, bound) if place not in staying]
    unbinds = _unbinds(leaving, bound)
    early = [place for place in leaving if place in replaced]
    first = [step for place in early for step in unbinds.pop(place)]
    again = {member.destination for member in coming}
    gone = [place for place in unbinds if place not in again]
    yield tuple(first + _in_pairs(unbinds, gone, coming)), len(first)
    if len(leaving) + len(coming) > _MANY_STEPS and live.buckets:
        return
    yield tuple(first + _unbound_first(unbinds, coming)), len(first)
    yield tuple(first + _bound_first(unbinds, gone, coming)), len(first)


def _from_the_end(live: HashRing, bound: Sequence[RingMember]) -> list[Destination]:
    """Return all destinations, the one with the last bucket first; those without a bucket come before."""
    held = set(live.destinations)
    silent = dict.fromkeys(member.destination for member in bound if member.destination not in held)
    return [*silent, *reversed(live.destinations)]


def _unbinds(
    leaving: Sequence[Destination], bound: Sequence[RingMember]
) -> dict[Destination, list[RingStep]]:
    """Return the steps that take all buckets of each destination away.

    A ghost has buckets without a binding. It is bound, which adds no bucket, so that it can be unbound.
    """
    steps: dict[Destination, list[RingStep]] = {place: [] for place in leaving}
    for member in bound:
        if member.destination in steps:
            steps[member.destination].append(RingStep("unbind", member))
    for place, found in steps.items():
        if not found:
            ghost = RingMember(place)
            found += [RingStep("bind", ghost), RingStep("unbind", ghost)]
    return steps


def _in_pairs(
    unbinds: dict[Destination, list[RingStep]], gone: Sequence[Destination], coming: Sequence[RingMember]
) -> list[RingStep]:
    """Unbind one, bind one: the ring keeps its size, as far as it can."""
    steps: list[RingStep] = []
    new = sum(member.destination not in unbinds for member in coming)
    too_many = max(len(gone) - new, 0)
    for place in gone[:too_many]:
        steps += unbinds[place]
    leaving = deque(gone[too_many:])
    for member in coming:
        if member.destination in unbinds:
            steps += unbinds[member.destination]
        elif leaving:
            steps += unbinds[leaving.popleft()]
        steps.append(RingStep("bind", member))
    return _each_once(steps)


def _unbound_first(
    unbinds: dict[Destination, list[RingStep]], coming: Sequence[RingMember]
) -> list[RingStep]:
    """Unbind all from the end of the ring, then bind."""
    steps = [step for place in unbinds for step in unbinds[place]]
    return [*steps, *(RingStep("bind", member) for member in coming)]


def _bound_first(
    unbinds: dict[Destination, list[RingStep]], gone: Sequence[Destination], coming: Sequence[RingMember]
) -> list[RingStep]:
    """Unbind what is only gone at the end, so that the ring is never empty if that can be."""
    steps = []
    for member in coming:
        steps += unbinds.get(member.destination, [])
        steps.append(RingStep("bind", member))
    return _each_once(steps) + [step for place in gone for step in unbinds[place]]


def _each_once(steps: Sequence[RingStep]) -> list[RingStep]:
    """Return the steps without the second unbinding of a destination that is bound twice."""
    unbound: set[tuple[str, RingMember]] = set()
    result = []
    for step in steps:
        if step.action == "unbind":
            if ("unbind", step.member) in unbound:
                continue
            unbound.add(("unbind", step.member))
        result.append(step)
    return result


def buckets_as_members(buckets: Sequence[Place]) -> tuple[RingMember, ...]:
    """Return the members that a ring shows by its buckets: one for each run, holes left out."""
    return tuple(
        RingMember(place, str(len(list(run)))) for place, run in groupby(buckets) if place is not None
    )


@dataclass(frozen=True, slots=True)
class RingStep:
    """One operation on a ring.

    Attributes:
        action: ``bind`` or ``unbind``.
        member: the binding that is made or goes.
    """

    action: StepAction
    member: RingMember


class PlainRun(NamedTuple):
    """The buckets of a destination.

    Attributes:
        place: the destination.
        key: its binding key.
        length: how many buckets it has.
        step: the step that takes them away, or that binds them.
    """

    place: Destination
    key: str
    length: int
    step: int


class PlainMoments(Sequence[RingState]):
    """The rings after each step of a way.

    Args:
        there: the ring before the first step.
        old: its runs; the step of those that stay is the number of steps.
        new: the runs that are bound, in order.
        count: the number of steps.
    """

    def __init__(
        self, there: RingState, old: Sequence[PlainRun], new: Sequence[PlainRun], count: int
    ) -> None:
        self._there, self._old, self._new, self._count = there, old, new, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, moment: int) -> RingState: ...
    @overload
    def __getitem__(self, moment: slice) -> Sequence[RingState]: ...
    def __getitem__(self, moment: int | slice) -> RingState | Sequence[RingState]:
        moments = range(len(self))[moment]
        if isinstance(moments, range):
            return [self[one] for one in moments]
        there = self._there
        gone = {run.place for run in self._old if run.step <= moments}
        new = [run for run in self._new if run.step <= moments]
        left = (run for run in self._old if run.place not in gone)
        kept = (binding for binding in there.bindings or () if binding[0] not in gone)
        return RingState(
            tuple(chain.from_iterable(repeat(run.place, run.length) for run in (*left, *new))),
            there.release,
            "replayed" if there.provenance == "read" else there.provenance,
            (*kept, *((run.place, run.key) for run in new)),
            there.end_known,
        )


def plain_moments(there: RingState, steps: Sequence[RingStep]) -> PlainMoments | None:
    """Return the rings after each step; None if the ring or the steps are not plain.

    Args:
        there: the ring before the first step.
        steps: the binds and unbinds.

    Raises:
        InputError: the broker would refuse a binding.
    """
    release = there.release
    old_rules = [UNBIND_SHIFTS_BY_WEIGHT, UNSORTED_ENDS] + [DUPLICATES_APPEND] * (not there.end_known)
    runs = [(place, len(list(run))) for place, run in groupby(there.buckets) if place is not None]
    keys = dict(there.bindings or ())
    if (
        any(map(release.follows, old_rules))
        or sum(length for _, length in runs) != len(there.buckets)
        or not len(runs) == len({place for place, _ in runs}) == len(keys) == len(there.bindings or ())
        or not all(place in keys for place, _ in runs)
    ):
        return None
    here, gone, new = dict(keys), dict.fromkeys(keys, len(steps)), []
    for number, step in enumerate(steps):
        place, key = step.member.binding
        if step.action == "unbind":
            if here.pop(place, None) != key or gone.get(place) != len(steps):
                return None
            gone[place] = number
        elif place in here:
            return None
        else:
            here[place] = key
            new.append(PlainRun(place, key, weight_of(place, key, release), number))
    if len(there.buckets) + sum(run.length for run in new) > MAX_BUCKETS:
        return None
    return PlainMoments(
        there, [PlainRun(place, keys[place], length, gone[place]) for place, length in runs], new, len(steps)
    )

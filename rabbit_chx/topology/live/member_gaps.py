"""The time that members of a ring are without a bucket during a repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rabbit_chx.routing import Destination
from rabbit_chx.topology.live.applying import group_changes
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import BindingDefinition
from rabbit_chx.topology.planning.plan_value import Plan


class MemberGap(NamedTuple):
    """A time without a bucket.

    Attributes:
        first: the number of the change that removes the member's buckets, from 0.
        last: the number of the change that binds it again.
    """

    member: Destination
    first: int
    last: int

    @property
    def operations(self) -> int:
        """The number of operations in between."""
        return self.last - self.first


class MemberGaps:
    """The members of one ring that lose their buckets and get buckets again, and the duration.

    Pass `seen` as the progress of `Broker.apply`. Changes that are performed together happen somewhere between the two calls around them,
    so a measured time is never too short.
    """

    def __init__(self, plan: Plan, exchange: str) -> None:
        ring = plan.rings.get(exchange)
        destinations = set(ring.before.destinations) if ring is not None else set()
        self.gaps = tuple(_gaps(plan.changes, exchange, destinations))
        #: The number of changes that are done before and after the group of each change.
        self._bounds: list[tuple[int, int]] = []
        for group in group_changes(plan.changes):
            start = len(self._bounds)
            self._bounds += [(start, start + len(group))] * len(group)
        self._times: dict[int, float] = {}

    @property
    def longest(self) -> MemberGap | None:
        """The gap with the most operations; None if no member has a gap."""
        return max(self.gaps, key=lambda gap: gap.operations, default=None)

    def seen(self, done: int, now_s: float) -> None:
        """Record that `done` changes are completed at `now_s`, in seconds of a monotonic clock."""
        self._times[done] = now_s

    def longest_s(self) -> float | None:
        """Return the upper bound, in seconds, of the longest time that a member had no bucket; None if it is not known."""
        ends = ((self._bounds[gap.first][0], self._bounds[gap.last][1]) for gap in self.gaps)
        times = self._times
        return max(
            (times[end] - times[start] for start, end in ends if {start, end} <= times.keys()), default=None
        )


def _gaps(
    changes: Sequence[PlannedChange], exchange: str, destinations: set[Destination]
) -> Iterator[MemberGap]:
    without: dict[Destination, int] = {}
    for number, change in enumerate(changes):
        binding = change.subject
        if not isinstance(binding, BindingDefinition) or binding.source != exchange:
            continue
        place = binding.destination
        if change.action == "unbind" and place in destinations:
            without.setdefault(place, number)
        elif change.action == "bind" and place in without:
            yield MemberGap(place, without.pop(place), number)

"""How long members of a ring are without a bucket while it is repaired: in operations before, in seconds afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.sequences.application import changes_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.changes import PlannedChange
    from rabbit_chx.topology.plan import Plan

__all__ = ["MemberGap", "MemberGaps"]


class MemberGap(NamedTuple):
    """A time without a bucket.

    Attributes:
        member: the member.
        first: the number of the change that takes its buckets, from 0.
        last: the number of the change that gives it buckets again.
    """

    member: Destination
    first: int
    last: int

    @property
    def operations(self) -> int:
        """How many operations lie between."""
        return self.last - self.first


class MemberGaps:
    """The members of one ring that lose their buckets and get buckets again, and for how long.

    Call `seen` as the progress of an application. Changes that go together are done somewhere between the two calls around
    them, so a time is never shorter than it was for the member.

    Args:
        plan: the plan.
        exchange: the exchange.
    """

    def __init__(self, plan: Plan, exchange: str) -> None:
        ring = plan.rings.get(exchange)
        held = set(ring.before.destinations) if ring is not None else set()
        self.gaps = tuple(_gaps(plan.changes, exchange, held))
        self._group_of: dict[int, int] = {}
        self._sizes: list[int] = []
        for number, some in enumerate(changes_together(plan.changes)):
            for _ in some:
                self._group_of[len(self._group_of)] = number
            self._sizes.append(len(self._group_of))
        self._ends: dict[int, float] = {}

    @property
    def longest(self) -> MemberGap | None:
        """The gap of the most operations; None if there is none."""
        return max(self.gaps, key=lambda one: one.operations, default=None)

    def seen(self, done: int, now_s: float) -> None:
        """Take note of how many changes are done.

        Args:
            done: how many, 0 before the first.
            now_s: the time, in seconds of any clock that does not jump.
        """
        if done == 0:
            self._ends[-1] = now_s
        elif done == self._sizes[self._group_of[done - 1]]:
            self._ends[self._group_of[done - 1]] = now_s

    def longest_s(self) -> float | None:
        """Return the longest time for which a member had no bucket, at most, in seconds; None where none is known."""
        times = [
            self._ends[end] - self._ends[before]
            for gap in self.gaps
            if (end := self._group_of[gap.last]) in self._ends
            and (before := self._group_of[gap.first] - 1) in self._ends
        ]
        return max(times, default=None)


def _gaps(changes: Sequence[PlannedChange], exchange: str, held: set[Destination]) -> Iterator[MemberGap]:
    without: dict[Destination, int] = {}
    for number, change in enumerate(changes):
        binding = change.subject
        if not isinstance(binding, BindingDefinition) or binding.source != exchange:
            continue
        place = binding.destination
        if change.action == "unbind" and place in held:
            without.setdefault(place, number)
        elif change.action == "bind" and place in without:
            yield MemberGap(place, without.pop(place), number)

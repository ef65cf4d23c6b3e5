"""The rings between the steps of a way, where no rule of an old release is in the way: computed when asked for, not replayed.

On a plain ring each destination has one run of buckets and one binding, and there are no holes. A step then takes a run away
or appends one. So the ring after a step is what is left of the runs that were there, and the runs that were bound until then.
Tests hold it against :mod:`rabbit_chx.routing.ring_changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, NamedTuple, overload

from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.ring_state import MAX_BUCKETS, RingState
from rabbit_chx.routing.rules import DUPLICATES_APPEND, UNBIND_SHIFTS_BY_WEIGHT, UNSORTED_ENDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.planning.ring_operation import RingStep

__all__ = ["PlainMoments", "PlainRun", "plain_moments"]


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

    Attributes:
        sizes: how many buckets the ring has after each step.
        old: the runs of the ring before the first step.
        new: the runs that are bound, in order.
        cuts: after each step, whether the ring is the beginning of the one before the first step.
    """

    def __init__(
        self, there: RingState, old: Sequence[PlainRun], new: Sequence[PlainRun], count: int
    ) -> None:
        import numpy as np

        self._there, self.old, self.new = there, old, new
        lengths = np.array([run.length for run in old], np.int64)
        self._gone_at = np.repeat(np.array([run.step for run in old], np.int64), lengths)
        change = np.zeros((2, count + 1), np.int64)
        for run in new:
            change[0, run.step] += run.length
        first = np.full(count + 1, len(self._gone_at), np.int64)
        for run, end in zip(old, lengths.cumsum(), strict=True):
            change[1, run.step] += run.length
            first[run.step] = end - run.length
        self._appended = change[0].cumsum()[:count]
        left = len(self._gone_at) - change[1].cumsum()[:count]
        self.sizes: list[int] = (left + self._appended).tolist()
        beginnings = (self._appended == 0) & (np.minimum.accumulate(first[:count]) == left)
        self.cuts: list[bool] = beginnings.tolist()

    def numbers(self, moment: int, there: NDArray[np.int32], new: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the number of each bucket's destination after a step.

        Args:
            moment: the number of the step.
            there: the numbers of the buckets before the first step.
            new: the numbers of all buckets that are bound.
        """
        import numpy as np

        return np.concatenate([there[self._gone_at > moment], new[: self._appended[moment]]])

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, moment: int) -> RingState: ...
    @overload
    def __getitem__(self, moment: slice) -> Sequence[RingState]: ...
    def __getitem__(self, moment: int | slice) -> RingState | Sequence[RingState]:
        moments = range(len(self))[moment]
        if isinstance(moments, range):
            return [self[one] for one in moments]
        there = self._there
        gone = {run.place for run in self.old if run.step <= moments}
        new = [run for run in self.new if run.step <= moments]
        left = (run for run in self.old if run.place not in gone)
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

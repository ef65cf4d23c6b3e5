"""The clock and the events of a simulated run. Nothing waits in real time."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from itertools import count

_MOST_ROUNDS = 200_000


class EndlessRunError(BaseException):
    """The run goes on beyond the time that its bounds allow, or goes round and round while no time passes.

    It is no Exception, so that what is simulated does not catch it.
    """


class World:
    """Time, chance, and the events to come. It plays the module `time` for what is simulated.

    Args:
        seed: what all chance comes from.
        ends_at: the time at which the run must be over.

    Attributes:
        now: seconds.
        chance: the only random numbers of the run.
        ends_at: the time at which the run must be over; raises EndlessRunError there.
    """

    def __init__(self, seed: int, ends_at: float = math.inf) -> None:
        self.now = 1000.0
        self.chance = random.Random(seed)  # noqa: S311  # the same run each time
        self.ends_at = ends_at
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._idle_rounds = 0  # events, and looks at the clock, since it last went on

    # -- events

    def at(self, when: float, happens: Callable[[], None]) -> None:
        """Schedule an event, after those of the same time; at infinity it never happens."""
        if when < math.inf:
            heapq.heappush(self._events, (when, next(self._number), happens))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Schedule an event in so many seconds."""
        self.at(self.now + seconds, happens)

    def step(self, until: float) -> bool:
        """Run the next event, or advance to `until` and return False."""
        if self._events and self._events[0][0] <= until:
            when, _, happens = heapq.heappop(self._events)
            self._go_to(when)
            self._count()
            happens()
            return True
        if until < math.inf:
            self._go_to(until)
        return False

    def run(self, done: Callable[[], bool], until: float) -> None:
        """Run events until something is true, and at most until this time."""
        while not done() and self.step(until):
            pass

    def finish(self) -> None:
        """Run all scheduled events."""
        while self._events:
            self.step(self._events[0][0])

    def _count(self) -> None:
        self._idle_rounds += 1
        if self._idle_rounds > _MOST_ROUNDS:
            raise EndlessRunError(f"it goes round and round at {self.now:.3f} s")

    def _go_to(self, when: float) -> None:
        if when > self.now:
            self.now = when
            self._idle_rounds = 0
            if when > self.ends_at:
                raise EndlessRunError(f"it is still running at {when:.0f} s")

    # -- what is used of the module `time`

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        self._count()
        return self.now

    def sleep(self, seconds: float) -> None:
        """Run the events of so many seconds."""
        until = self.now + seconds
        while self.step(until):
            pass

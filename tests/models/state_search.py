"""All states that can be reached from a first one, in the order of the number of steps."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class BrokenModelError(Exception):
    """What must always hold does not hold."""


class Model(Protocol):
    """A state, and what can happen in it."""

    def key(self) -> Hashable:
        """Return the key that identifies this state."""

    def choices(self) -> Iterable[tuple[Any, ...]]:
        """Return what can happen now."""

    def do(self, choice: tuple[Any, ...]) -> None:
        """Let it happen.

        Args:
            choice: one of the choices.
        """

    def check_end(self) -> str:
        """Return the kind of this end, in which nothing can happen any more; raise where it is a wrong one."""


@dataclass
class Found:
    """What was explored.

    Attributes:
        states: how many different states were reached.
        steps: how many steps were tried.
        ends: how many of the states are ends, by kind.
        seconds: how long it took.
    """

    states: int
    steps: int
    ends: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.ends.items()))
        return f"{self.states:,} states, {self.steps:,} steps, ends: {kinds} ({self.seconds:.0f} s)"


def searched(first: Model) -> Found:
    """Go through all states and return how many there are.

    Args:
        first: the state to begin with.

    Raises:
        BrokenModelError: an invariant does not hold; the error lists the steps that lead there.
    """
    began = time.monotonic()
    result = Found(0, 0, {}, 0.0)
    seen: dict[Hashable, tuple[Hashable | None, str]] = {first.key(): (None, "begin")}
    frontier = deque([(first.key(), pickle.dumps(first, protocol=5))])
    while frontier:
        key, packed = frontier.popleft()
        model: Model = pickle.loads(packed)  # noqa: S301  # our own bytes
        choice: tuple[Any, ...] = ("the end",)
        try:
            choices = list(model.choices())
            if not choices:
                kind = model.check_end()
                result.ends[kind] = result.ends.get(kind, 0) + 1
            for choice in choices:
                world: Model = pickle.loads(packed)  # noqa: S301
                result.steps += 1
                world.do(choice)
                after = world.key()
                if after not in seen:
                    seen[after] = (key, str(choice))
                    frontier.append((after, pickle.dumps(world, protocol=5)))
        except BrokenModelError as broken:
            raise BrokenModelError("\n".join([str(broken), *_way(seen, key), str(choice)])) from None
    result.states, result.seconds = len(seen), time.monotonic() - began
    return result


def _way(seen: dict[Hashable, tuple[Hashable | None, str]], key: Hashable | None) -> list[str]:
    steps: list[str] = []
    while key is not None:
        key, step = seen[key]
        steps.append(step)
    return steps[::-1]

"""Which keys are heavy, in bounded memory: a sketch that counts a stream of keys of any length.

This is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT
2005), with counts from 1. It has a fixed number of counters, k. A new key that finds no free counter takes over the smallest
one, and with it that count, which is then what the key may be counted too much.

After N messages:

- a key that has a counter was seen at most `most` and at least `least` times;
- a key that has none was seen at most as often as the smallest counter says, which is at most N/k;
- so each key with more than N/k messages has a counter;
- the j heaviest keys aside, no error is larger than the messages of all other keys divided by k - j, for each j below k
  (Berinde, Cormode, Indyk, Strauss: Space-optimal Heavy Hitters with Strong Error Bounds, PODS 2009). With a few heavy keys
  and a long tail that is far below N/k.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from heapq import heappush, heapreplace, nlargest
from typing import Any

from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How often a key was seen: a number between two bounds.

    Attributes:
        key: the key.
        least: the fewest times that it was seen.
        most: the most times that it was seen.
    """

    key: Any
    least: int
    most: int


class KeySketch:
    """The heavy keys of a stream. It holds a fixed number of keys, however many there are.

    Args:
        counters: how many keys it holds.

    Raises:
        InputError: there is not at least one counter.
    """

    def __init__(self, counters: int = 1000) -> None:
        if not is_whole(counters, 1):
            raise InputError(
                f"a sketch with {counters!r:.40} counters holds no key: give a whole number from 1"
            )
        self._size = counters
        self._most: dict[Hashable, int] = {}
        self._taken_over: dict[Hashable, int] = {}
        # Each key once, with what its counter said when it came here, which is at most what it says now.
        self._smallest: list[tuple[int, int, Hashable]] = []
        self._order = 0
        self.messages = 0

    @property
    def unseen_at_most(self) -> int:
        """How often a key can have been seen that the sketch does not hold."""
        return 0 if len(self._most) < self._size else self._least_counter()[0]

    def add(self, key: Hashable, messages: int = 1) -> None:
        """Count a key.

        Args:
            key: the key.
            messages: how many messages have it, from 1.
        """
        self.messages += messages
        if key in self._most:
            self._most[key] += messages
            return
        before = 0
        self._order += 1
        if len(self._most) < self._size:
            heappush(self._smallest, (messages, self._order, key))
        else:
            before, _, replaced = self._least_counter()
            del self._most[replaced], self._taken_over[replaced]
            heapreplace(self._smallest, (before + messages, self._order, key))
        self._most[key] = before + messages
        self._taken_over[key] = before

    def add_all(self, counts: Mapping[Hashable, int]) -> None:
        """Count many keys, the heaviest first, which makes the sketch more exact than any other order.

        Args:
            counts: how many messages have each key.
        """
        for key, messages in sorted(counts.items(), key=lambda count: -count[1]):
            self.add(key, messages)

    def heaviest(self, keys: int) -> tuple[KeyCount, ...]:
        """Return the keys that were seen most often, the heaviest first, by the bound that is sure.

        Args:
            keys: how many.
        """
        counts = (KeyCount(key, most - self._taken_over[key], most) for key, most in self._most.items())
        return tuple(nlargest(keys, counts, key=lambda count: (count.least, count.most)))

    def _least_counter(self) -> tuple[int, int, Hashable]:
        """Return the smallest counter, after the heap has caught up with it."""
        while True:
            noted, order, key = self._smallest[0]
            now = self._most[key]
            if noted == now:
                return self._smallest[0]
            heapreplace(self._smallest, (now, order, key))

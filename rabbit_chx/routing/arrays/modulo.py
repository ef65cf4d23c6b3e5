"""The flows between two maps that take a hash modulo the number of their destinations."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.flows import Flows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ModuloFlows(Flows):
    """The share of the hashes of each pair of destinations before and after, of two sequences of numbered destinations.

    A hash h has the number h modulo the length of each sequence. Shares are computed when they are read, because two sequences without a
    common divisor have a flow for each pair. Without numbers all hashes are in the place None.

    Args:
        before: the destination of each number before the change.
        after: the same after it.
        hashes: how many values the hash has.
    """

    def __init__(self, before: Sequence[Place], after: Sequence[Place], hashes: int) -> None:
        self._sides = before, after = tuple(before) or (None,), tuple(after) or (None,)
        sizes = len(before), len(after)
        self._hashes = hashes
        self._common = math.gcd(*sizes)
        self._period = math.lcm(*sizes)
        self._inverse = pow(sizes[0] // self._common, -1, sizes[1] // self._common)
        self._numbers: tuple[dict[Place, list[int]], ...] = ({}, {})
        for side, numbers in zip(self._sides, self._numbers, strict=True):
            for number, place in enumerate(side):
                numbers.setdefault(place, []).append(number)
        self.before, self.after = map(tuple, self._numbers)
        #: How many pairs of numbers have a hash.
        self.pairs_of_numbers = min(self._period, hashes)
        self._is_one_to_one = all(
            len(side) == len(numbers) for side, numbers in zip(self._sides, self._numbers, strict=True)
        )

    def _count(self, source: Place, target: Place) -> int:
        """Return the number of hashes of a pair of destinations."""
        by_rest: dict[int, list[int]] = {}
        for new in self._numbers[1].get(target, ()):
            by_rest.setdefault(new % self._common, []).append(new)
        size, other = map(len, self._sides)
        count = 0
        for old in self._numbers[0].get(source, ()):
            for new in by_rest.get(old % self._common, ()):
                # The first hash with these two remainders, by the Chinese remainder theorem.
                first = old + size * ((new - old) // self._common * self._inverse % (other // self._common))
                count += max((self._hashes - first + self._period - 1) // self._period, 0)
        return count

    def __getitem__(self, pair: tuple[Place, Place]) -> float:
        if count := self._count(*pair):
            return count / self._hashes
        raise KeyError(pair)

    def __iter__(self) -> Iterator[tuple[Place, Place]]:
        for source in self._numbers[0]:
            for target in self._row(source).nonzero()[0].tolist():
                yield source, self.after[target]

    def __len__(self) -> int:
        if self._is_one_to_one:
            return self.pairs_of_numbers
        return sum(len(self._row(source).nonzero()[0]) for source in self._numbers[0])

    @property
    def moved(self) -> float:
        """The share of the hashes whose destination changes."""
        return 1 - sum(self._count(place, place) for place in self._numbers[0]) / self._hashes

    def _totals(self, side: int) -> dict[Place, float]:
        whole, rest = divmod(self._hashes, len(self._sides[side]))
        return {
            place: sum(whole + (number < rest) for number in numbers) / self._hashes
            for place, numbers in self._numbers[side].items()
        }

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return the largest flows to another destination, with their shares, the largest first."""
        if self._is_one_to_one:
            # The pairs of the first hashes have one hash more than the others.
            pairs = ((h % len(self._sides[0]), h % len(self._sides[1])) for h in range(self.pairs_of_numbers))
            places = ((self._sides[0][old], self._sides[1][new]) for old, new in pairs)
            different = islice(((source, to) for source, to in places if source != to), most)
            return [(source, to, self[source, to]) for source, to in different]
        largest: list[tuple[Place, Place, float]] = []
        indices = {place: n for n, place in enumerate(self.after)}
        for source in self._numbers[0]:
            row = self._row(source)
            if source in indices:
                row[indices[source]] = 0
            if largest and len(largest) == most and row.max() <= largest[-1][2]:
                continue
            first = (-row).argsort(kind="stable")[:most].tolist()
            moves = [(source, self.after[index], float(row[index])) for index in first if row[index]]
            largest = heapq.nlargest(most, [*largest, *moves], key=itemgetter(2))
        return [(source, to, self[source, to]) for source, to, _ in largest]

    def _row(self, source: Place) -> NDArray[np.float64]:
        """Return the number of hashes of a destination by their destination after the change, in the order of `_targets`."""
        size, other = map(len, self._sides)
        whole, rest = divmod(self._hashes, self._period)
        row = np.zeros(len(self.after))
        for old in self._numbers[0][source]:
            first = np.arange(old, self.pairs_of_numbers, size)
            targets = self._column[first % other]
            row += np.bincount(targets, float(whole) + (first < rest), len(row))
        return row

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        """The index in `_targets` of each number after the change."""
        indices = {place: n for n, place in enumerate(self.after)}
        return np.array([indices[place] for place in self._sides[1]])

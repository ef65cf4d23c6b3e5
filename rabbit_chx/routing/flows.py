"""The flows of keys between destinations, when one map or one release becomes another. Every share is a sum of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from rabbit_chx.lazy_names import shown_by
from rabbit_chx.routing.bindings import Destination, Place


class Flows(Mapping[tuple[Place, Place], float]):
    """The amount of each ``(destination before, destination after)``, without zeros. The place None means no destination, as at a hole.

    The amounts are exact shares of all hashes, or whole numbers of keys. Those of rings are floats k/2^21, which add up without an error.

    Attributes:
        before: the destinations before, in ring order; None last, if something is there.
        after: the destinations after, in the same order.
    """

    _repr_html_ = shown_by("rabbit_chx.analysis.report_parts", "matrix_report")

    def __init__(
        self,
        before: Iterable[Place],
        after: Iterable[Place],
        amounts: Mapping[tuple[Place, Place], float],
    ) -> None:
        self._amounts = amounts
        self.before = _places(before, is_nowhere=any(source is None for source, _ in amounts))
        self.after = _places(after, is_nowhere=any(target is None for _, target in amounts))

    def __getitem__(self, pair: tuple[Place, Place]) -> float:
        return self._amounts[pair]

    def __iter__(self) -> Iterator[tuple[Place, Place]]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @property
    def moved(self) -> float:
        """How much changes its destination."""
        return sum(amount for (source, target), amount in self.items() if source != target)

    @property
    def move_count(self) -> int:
        """How many flows change the destination."""
        return len(self) - sum((place, place) in self for place in self.before)

    @property
    def least(self) -> float:
        """How much must move in any case, so that each destination gets its new amount: the ideal."""
        after = self.after_totals()
        return sum(max(0, amount - after.get(place, 0)) for place, amount in self.before_totals().items())

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The amounts as a list of ``{"from": ..., "to": ..., "amount": ...}``."""
        return [{"from": source, "to": to, "amount": amount} for (source, to), amount in self.items()]

    def as_json(self) -> dict[str, Any]:
        """Return the document of the flows, for `to_json`."""
        return {"moved": self.moved, "least": self.least, "cells": self.cells}

    def before_totals(self) -> dict[Place, float]:
        """Return how much each destination has before."""
        return self._totals(0)

    def after_totals(self) -> dict[Place, float]:
        """Return how much each destination has after."""
        return self._totals(1)

    def _totals(self, side: int) -> dict[Place, float]:
        totals: dict[Place, float] = dict.fromkeys((self.before, self.after)[side], 0)
        for pair, amount in self.items():
            totals[pair[side]] += amount
        return totals

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return ``(from, to, how much)`` of the flows that change the destination, the largest first.

        Args:
            most: how many are returned at most.
        """
        moves = ((source, target, amount) for (source, target), amount in self.items() if source != target)
        return heapq.nlargest(most, moves, key=itemgetter(2))

    def moves(self) -> list[tuple[Place, Place, float]]:
        """Return all flows that change the destination, as `largest_moves` does."""
        return self.largest_moves(self.move_count)

    def sorted_by(self, key: Callable[[Destination], Any]) -> Flows:
        """Return the flows with their destinations in another order. The place None stays last.

        Args:
            key: the sort key of a destination.
        """
        before, after = (
            sorted((place for place in side if place is not None), key=key)
            for side in (self.before, self.after)
        )
        return Flows(before, after, self).row_by_row()

    def row_by_row(self) -> Flows:
        """Return the flows in the order of the destinations before, and of each in that of the destinations after."""
        row, column = ({place: n for n, place in enumerate(side)} for side in (self.before, self.after))
        ordered = sorted(self.items(), key=lambda cell: (row[cell[0][0]], column[cell[0][1]]))
        return Flows(self.before, self.after, dict(ordered))


def _places(destinations: Iterable[Place], *, is_nowhere: bool) -> tuple[Place, ...]:
    places = dict.fromkeys(destinations)
    places.pop(None, None)
    return (*places, None) if is_nowhere else tuple(places)

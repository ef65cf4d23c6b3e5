"""The movement of keys between destinations, when one ring or one release becomes another."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rabbit_chx.routing import Destination
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap, check_key_map

if TYPE_CHECKING:
    from rabbit_chx.routing.arrays import ModuloFlows


#: Up to this number of pairs, all flows of a movement are held in memory.
_FEW = 1 << 14


@dataclass(frozen=True, slots=True)
class MovementMatrix:
    """The amount that moves from each destination to each other one. The place None means no destination, as at a hole.

    Attributes:
        before: the destinations before, in ring order; None last, if something is there.
        after: the destinations after, in the same order.
        amounts: the amount of each ``(from, to)``, row by row, without zeros: exact shares k/2^21, which floats hold and add up without an
            error, or whole numbers of keys.
    """

    before: tuple[Place, ...]
    after: tuple[Place, ...]
    amounts: Mapping[tuple[Place, Place], float]

    @property
    def moved(self) -> float:
        """How much changes its destination."""
        return sum(amount for (source, target), amount in self.amounts.items() if source != target)

    @property
    def move_count(self) -> int:
        """How many flows change the destination."""
        return sum(source != target for source, target in self.amounts)

    @property
    def least(self) -> float:
        """How much must move in any case, so that each destination gets its new amount: the ideal."""
        after = self.after_totals()
        return sum(max(0, amount - after.get(place, 0)) for place, amount in self.before_totals().items())

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The amounts as a list of ``{"from": ..., "to": ..., "amount": ...}``."""
        return [{"from": source, "to": to, "amount": amount} for (source, to), amount in self.amounts.items()]

    def as_json(self) -> dict[str, Any]:
        """Return the document of the matrix, for `to_json`."""
        return {"moved": self.moved, "least": self.least, "cells": self.cells}

    def before_totals(self) -> dict[Place, float]:
        """Return how much each destination has before."""
        totals: dict[Place, float] = dict.fromkeys(self.before, 0)
        for (source, _), amount in self.amounts.items():
            totals[source] += amount
        return totals

    def after_totals(self) -> dict[Place, float]:
        """Return how much each destination has after."""
        totals: dict[Place, float] = dict.fromkeys(self.after, 0)
        for (_, target), amount in self.amounts.items():
            totals[target] += amount
        return totals

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return ``(from, to, how much)`` of the flows that change the destination, the largest first.

        Args:
            most: how many are returned at most.
        """
        moves = (
            (source, target, amount) for (source, target), amount in self.amounts.items() if source != target
        )
        return heapq.nlargest(most, moves, key=itemgetter(2))

    def moves(self) -> list[tuple[Place, Place, float]]:
        """Return all flows that change the destination, as `largest_moves` does."""
        return self.largest_moves(self.move_count)

    def sorted_by(self, key: Callable[[Destination], Any]) -> MovementMatrix:
        """Return the matrix with its destinations in another order. The place None stays last.

        Args:
            key: the sort key of a destination.
        """
        before, after = (_sort(side, key) for side in (self.before, self.after))
        return MovementMatrix(before, after, _row_by_row(self.amounts, before, after))


def movement(before: KeyMap, after: KeyMap) -> MovementMatrix:
    """Return the exact movement between two key maps.

    It holds for whatever has the same hash on both: routing keys, message ids, and headers as long as both releases hash them alike. A map
    without destinations has all hashes in the place None.

    Args:
        before: the map before the change.
        after: the map after it, of the same kind of hash.

    Returns:
        Shares of all hashes; those of rings are floats k/2^21.

    Raises:
        InputError: keys are hashed differently in the two.
        NotDeterminedError: one of the releases does not determine the destination of a key.
    """
    from rabbit_chx.routing.arrays import ModuloFlows

    check_key_map(before, after)
    flows = before.flows(after)
    if isinstance(flows, ModuloFlows) and flows.pairs_of_numbers > _FEW:
        rows, columns = (tuple(dict.fromkeys(side.destinations)) or (None,) for side in (before, after))
        return _LargeMovement(rows, columns, flows)
    return matrix_of(dict(flows), before, after)


class _LargeMovement(MovementMatrix):
    """The movement between two exchanges with many flows, which are not held in memory."""

    amounts: ModuloFlows

    @property
    def moved(self) -> float:
        return 1 - self.amounts.staying

    @property
    def move_count(self) -> int:
        return len(self.amounts) - sum((place, place) in self.amounts for place in self.before)

    def before_totals(self) -> dict[Place, float]:
        return self.amounts.totals(0)

    def after_totals(self) -> dict[Place, float]:
        return self.amounts.totals(1)

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        return self.amounts.largest_moves(most)


def matrix_of(amounts: Mapping[tuple[Place, Place], float], before: KeyMap, after: KeyMap) -> MovementMatrix:
    """Return the matrix of amounts that were counted already, by destinations of the two key maps.

    Args:
        amounts: the amount of each ``(from, to)``.
        before: the map before the change.
        after: the map after it.
    """

    def places(key_map: KeyMap, reached: Iterable[Place]) -> tuple[Place, ...]:
        named = tuple(dict.fromkeys(key_map.destinations))
        return (*named, None) if None in reached else named

    rows = places(before, {source for source, _ in amounts})
    columns = places(after, {target for _, target in amounts})
    return MovementMatrix(rows, columns, _row_by_row(amounts, rows, columns))


def _sort(side: tuple[Place, ...], key: Callable[[Destination], Any]) -> tuple[Place, ...]:
    named = sorted((place for place in side if place is not None), key=key)
    return (*named, None) if None in side else tuple(named)


def _row_by_row(
    amounts: Mapping[tuple[Place, Place], float], rows: Sequence[Place], columns: Sequence[Place]
) -> dict[tuple[Place, Place], float]:
    row, column = ({place: n for n, place in enumerate(side)} for side in (rows, columns))
    return dict(sorted(amounts.items(), key=lambda cell: (row[cell[0][0]], column[cell[0][1]])))

"""Pictures of a table, for a renderer that can draw: a strip, bars, flows, a grid. Each is what the table says, for the eye.

Names are those of places; an empty name is a place that keeps nothing. Shares are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TypeAlias

#: The most bars, and the most places on a side of flows. The table has them all.
MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class Strip:
    """Places of equal width in order, such as the buckets of a ring.

    Attributes:
        title: what is drawn.
        places: the name of each place.
        notes: what is known about a name, such as its share.
    """

    title: str
    places: Sequence[str]
    notes: Mapping[str, str]

    def runs(self) -> Iterator[tuple[str, int, int]]:
        """Yield neighbours of one name as one: the name, the first place, and the number of places."""
        start = 0
        for name, run in groupby(self.places):
            width = sum(1 for _ in run)
            yield name, start, width
            start += width

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys(self.places)


@dataclass(frozen=True, slots=True)
class Bar:
    """A share.

    Attributes:
        name: who has it.
        share: the share.
        ideal: the share that it should be.
        real: the share of the traffic; None if it is not known.
    """

    name: str
    share: float
    ideal: float
    real: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares beside each other, the first `MOST_BARS` of them."""

    title: str
    bars: Sequence[Bar]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn."""
        return [bar.name for bar in self.bars[:MOST_BARS]]

    def scale(self) -> float:
        """Return the largest share that is drawn; 1 if all are 0."""
        drawn = [value for bar in self.bars[:MOST_BARS] for value in (bar.share, bar.ideal, bar.real or 0.0)]
        return max(drawn, default=0.0) or 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """A flow as an area between two strips. Its edges are shares from the left."""

    source: str
    target: str
    share: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Flows:
    """What moves between the places of two moments.

    Attributes:
        title: what is drawn.
        headline: the share that moves, in large letters, and what it is a share of.
        amounts: the share of each way, also of what stays; empty: there are more than one can follow.
    """

    title: str
    headline: tuple[str, str]
    amounts: Mapping[tuple[str, str], float]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys((*self.before(), *self.after()))

    def before(self) -> dict[str, float]:
        """Return the share of each place before."""
        return self._totals(0)

    def after(self) -> dict[str, float]:
        """Return the share of each place after: those of before in their order, then the new ones."""
        totals = self._totals(1)
        kept = {name: totals[name] for name in self.before() if name in totals}
        return kept | totals

    def bands(self) -> list[Band]:
        """Return the flows as areas."""
        tops, bottoms = (
            dict(zip(totals, accumulate(totals.values(), initial=0.0), strict=False))
            for totals in (self.before(), self.after())
        )
        placed: list[Band] = []
        for source in self.before():
            for target in self.after():
                if share := self.amounts.get((source, target), 0.0):
                    placed.append(Band(source, target, share, tops[source], bottoms[target]))
                    tops[source] += share
                    bottoms[target] += share
        return placed

    def _totals(self, side: int) -> dict[str, float]:
        totals: dict[str, float] = {}
        for way, share in self.amounts.items():
            totals[way[side]] = totals.get(way[side], 0.0) + share
        return totals


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a grid.

    Attributes:
        label: its name.
        name: who has it.
        depth: how full it is, from 0 to 1; None if it is not known.
    """

    label: str
    name: str
    depth: float | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of equal size in order, such as slots."""

    title: str
    cells: Sequence[Cell]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys(cell.name for cell in self.cells)


Picture: TypeAlias = "Strip | Bars | Flows | Grid"

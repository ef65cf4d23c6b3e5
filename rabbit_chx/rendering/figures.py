"""What figures show: strips, heat maps and bars, as values. `rabbit_chx.rendering.svg` draws them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import groupby
from typing import TypeAlias

#: How many runs of buckets a table names of a destination.
_MOST_RUNS = 8
#: The part of a cell that is an error of rounding.
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a strip.

    Attributes:
        name: who has it; None for nobody.
        amount: how much of the strip it is.
        says: what it is, in words.
        marked: whether a line below it says that something about it is different.
    """

    name: str | None
    amount: float
    says: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class StripRow:
    """One strip.

    Attributes:
        label: what it is.
        segments: its pieces, left to right.
        note: a remark at its right end.
        loud: whether the remark is an alarm.
    """

    label: str
    segments: Sequence[Segment]
    note: str = ""
    loud: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """Strips, one below the other, in one scale.

    Attributes:
        rows: the strips.
        unit: what an amount of 1 is, in the singular; None where amounts are shares of a whole.
        mark: what the line below a piece says.
    """

    rows: Sequence[StripRow]
    unit: str | None = "bucket"
    mark: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """How much goes from where to where.

    Attributes:
        rows: where it comes from, top to bottom.
        columns: where it goes to, left to right.
        amounts: the amount of each ``(from, to)``.
        form: how an amount is written: a format specification.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    amounts: Mapping[tuple[str, str], float]
    form: str = ".1%"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar.

    Attributes:
        name: what it is of.
        value: its length.
        text: its length in words.
        expected: what is expected; None for nothing.
        owner: the destination in whose colour it is; None for nobody, empty for the colour of all bars.
    """

    name: str
    value: float
    text: str
    expected: float | None = None
    owner: str | None = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars, one below the other, in one scale.

    Attributes:
        bars: the bars.
        expected: what the tick at a bar is; empty where no bar has one.
        limit: a line across all bars, and what it is; None for none.
    """

    bars: Sequence[Bar]
    expected: str = ""
    limit: tuple[float, str] | None = None


Drawing: TypeAlias = "Strip | HeatMap | Bars"


def owners_strip(*rows: tuple[str, Sequence[str | None]], unit: str = "bucket") -> Strip:
    """Return the strips of who has which bucket. A bucket that has another owner than in the first strip is marked.

    Args:
        rows: the label of each strip, and the owner of each bucket.
        unit: what is owned, in the singular.
    """
    first = rows[0][1]
    strips = [
        StripRow(label, list(_runs(owners, first, unit)), _counted(owners, unit)) for label, owners in rows
    ]
    return Strip(strips, unit, "another owner than before" if len(rows) > 1 else "")


def owners_rows(strip: Strip) -> list[tuple[str, ...]]:
    """Return the numbers of an `owners_strip` as rows: each owner with its buckets in each strip."""
    names = dict.fromkeys(segment.name for row in strip.rows for segment in row.segments)
    held = [_held(row.segments) for row in strip.rows]
    return [(name or "(nobody)", *(of_row.get(name, "") for of_row in held)) for name in names]


def folded(strip: Strip, most: int) -> tuple[Strip, float]:
    """Return strips of no more pieces than fit, and how much each piece is; 0 where nothing had to be folded.

    A folded piece is the part of whoever has most of it. Strips of whole units are folded alike, so that they can be compared.

    Args:
        strip: the strips.
        most: how many pieces of each fit.
    """
    if all(len(row.segments) <= most for row in strip.rows):
        return strip, 0
    total = max(sum(segment.amount for segment in row.segments) for row in strip.rows)
    size = float(-(-total // most)) if strip.unit else total / most
    rows = [
        replace(row, segments=_cells(row.segments, size)) if strip.unit or len(row.segments) > most else row
        for row in strip.rows
    ]
    return replace(strip, rows=rows), size


def lightened(heat: HeatMap, most: int) -> HeatMap:
    """Return a heat map with the heaviest rows and columns, and the others summed up.

    Args:
        heat: the heat map.
        most: how many rows and columns fit.
    """
    moves = {ends: amount for ends, amount in heat.amounts.items() if ends[0] != ends[1]}
    rows = _heaviest(heat.rows, [(source, amount) for (source, _), amount in moves.items()], most)
    columns = _heaviest(heat.columns, [(to, amount) for (_, to), amount in moves.items()], most)
    amounts = {
        ends: amount
        for ends, amount in heat.amounts.items()
        if rows.get(ends[0]) == columns.get(ends[1]) == ends[0] == ends[1]
    }
    for (source, to), amount in moves.items():
        ends = rows[source], columns[to]
        amounts[ends] = amounts.get(ends, 0) + amount
    return replace(
        heat,
        rows=[*dict.fromkeys(rows.values())],
        columns=[*dict.fromkeys(columns.values())],
        amounts=amounts,
    )


def _heaviest(names: Sequence[str], moves: Iterable[tuple[str, float]], most: int) -> dict[str, str]:
    """Return what each name is shown as: itself, or one of the others, which are last."""
    weights = dict.fromkeys(names, 0.0)
    for name, amount in moves:
        weights[name] += amount
    kept = {*(names if len(names) <= most else nlargest(most - 1, names, key=weights.__getitem__))}
    others = f"{len(names) - len(kept):,} others"
    return {name: name for name in names if name in kept} | {
        name: others for name in names if name not in kept
    }


def _cells(segments: Sequence[Segment], size: float) -> list[Segment]:
    cells: list[list[tuple[float, Segment]]] = []
    filled = 0.0
    for segment in segments:
        left = segment.amount
        while left > size * _NOTHING:
            if not cells or filled > size * (1 - _NOTHING):
                cells.append([])
                filled = 0.0
            part = min(left, size - filled)
            cells[-1].append((part, segment))
            filled, left = filled + part, left - part
    return [_cell(cell) for cell in cells]


def _cell(parts: Sequence[tuple[float, Segment]]) -> Segment:
    held: dict[str | None, float] = defaultdict(float)
    for amount, segment in parts:
        held[segment.name] += amount
    says = parts[0][1].says if len(parts) == 1 else f"{parts[0][1].says} to {parts[-1][1].says}"
    return Segment(
        max(held, key=held.__getitem__), sum(held.values()), says, any(part.marked for _, part in parts)
    )


def _runs(owners: Sequence[str | None], first: Sequence[str | None], unit: str) -> Iterator[Segment]:
    def kind(place: int) -> tuple[str | None, bool]:
        return owners[place], place >= len(first) or owners[place] != first[place]

    for (name, marked), run in groupby(range(len(owners)), kind):
        places = list(run)
        numbers = f"{unit} {places[0]}" if len(places) == 1 else f"{unit}s {places[0]}-{places[-1]}"
        yield Segment(name, len(places), f"{name or 'nobody'}: {numbers}", marked)


def _counted(owners: Sequence[str | None], unit: str) -> str:
    return f"{len(owners):,} {unit}{'' if len(owners) == 1 else 's'}"


def _held(segments: Sequence[Segment]) -> dict[str | None, str]:
    """Return the runs of each owner, as in ``3 (0-1, 5)``."""
    runs: dict[str | None, list[tuple[int, int]]] = {}
    place = 0
    for segment in segments:
        end = place + int(segment.amount)
        of_owner = runs.setdefault(segment.name, [])
        if of_owner and of_owner[-1][1] == place:
            of_owner[-1] = (of_owner[-1][0], end)
        else:
            of_owner.append((place, end))
        place = end
    return {name: _run_text(of_owner) for name, of_owner in runs.items()}


def _run_text(runs: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{a}-{b - 1}" if b - a > 1 else f"{a}" for a, b in runs[:_MOST_RUNS])
    return f"{sum(b - a for a, b in runs):,} ({shown}{', ...' if len(runs) > _MOST_RUNS else ''})"

"""Figures of rings and of what moves between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.analysis.wording import place_text, plural
from rabbit_chx.rendering.blocks import Block, Facts, Figure, Line, Table
from rabbit_chx.rendering.figures import HeatMap, owners_rows, owners_strip
from rabbit_chx.rendering.html import html_piece
from rabbit_chx.rendering.table import TableColumn
from rabbit_chx.routing import KeyMap, Place, queue_behind, ring_beneath

_MOST_COLUMNS = 12
_MOST_MOVES = 50
_MOST_RINGS = 10


def ring_strip(*rings: tuple[str, KeyMap | ModuloMap]) -> Figure:
    """Return the figure of who has which bucket, in one ring or before and after a change.

    Args:
        rings: the label of each ring, and the ring.
    """
    unit = "partition" if isinstance(rings[0][1], ModuloMap) else "bucket"
    strip = owners_strip(*((label, _owners(ring)) for label, ring in rings), unit=unit)
    labels = [label for label, _ in rings]
    columns = [TableColumn(text, numeric=False) for text in ("destination", *labels)]
    words = f"The {unit}s in the order in which the hash counts them."
    title = f"Who has which {unit}"
    if len(rings) > 1:
        title = f"{title}, {labels[0]} and {labels[-1]}"
        words = f"{words} A marked {unit} has another owner than before: even keys that stay in it move."
    return Figure(title, words, strip, Table(columns, owners_rows(strip)), page_only=True)


def _owners(ring: KeyMap | ModuloMap) -> list[str | None]:
    places: tuple[Place, ...] = (
        ring.numbered
        if isinstance(ring, ModuloMap)
        else tuple(queue_behind(ring, place) for place in ring_beneath(ring).buckets)
    )
    return list(map(owner_of, places))


def owner_of(place: Place) -> str | None:
    """Return a destination's name, by which figures give it a colour; None for nobody."""
    return None if place is None else str(place)


def movement_figure(
    matrix: MovementMatrix, shown: Callable[[Any], object], *, most_moves: int = _MOST_MOVES
) -> Figure:
    """Return a movement matrix as a heat map of what moves.

    Args:
        matrix: the matrix.
        shown: formats an amount as a cell of the table.
        most_moves: how many moves the table has at most where it is a list; the others are summed up.
    """
    moves = matrix.moves()
    sources, targets = ({move[end] for move in moves} for end in (0, 1))
    heat = HeatMap(
        [place_text(place) for place in matrix.before if place in sources],
        [place_text(place) for place in matrix.after if place in targets],
        {(place_text(source), place_text(to)): amount for (source, to), amount in matrix.amounts.items()},
        "," if shown is int else ".1%",
    )
    words = "Only what moves has a colour, the more the stronger; what stays is grey."
    return Figure(
        "What moves from where to where", words, heat, matrix_table(matrix, shown, most_moves=most_moves)
    )


def matrix_table(
    matrix: MovementMatrix, shown: Callable[[Any], object], *, most_moves: int = _MOST_MOVES
) -> Table:
    """Return a movement matrix as a table, or where that is too wide, its moves as a list, the largest first.

    Args:
        matrix: the matrix.
        shown: formats an amount as a cell.
        most_moves: how many moves a list has at most; the others are summed up.
    """
    moves = _moves_table(matrix, shown, most_moves)
    if len(matrix.after) > _MOST_COLUMNS:
        return moves
    before, after = matrix.before_totals(), matrix.after_totals()
    rows = [
        [
            place_text(source),
            *(shown(matrix.amounts[source, to]) if (source, to) in matrix.amounts else "" for to in after),
            shown(total),
        ]
        for source, total in before.items()
    ]
    columns = [
        TableColumn("from \\ to", numeric=False, code=True),
        *map(TableColumn, (*map(place_text, after), "all")),
    ]
    total = ["", *map(shown, after.values()), shown(sum(after.values()))]
    return Table(columns, rows, total, narrow=moves)


def _moves_table(matrix: MovementMatrix, shown: Callable[[Any], object], most: int) -> Table:
    moves = matrix.moves()
    rows = [(place_text(source), place_text(to), shown(amount)) for source, to, amount in moves[:most]]
    if rest := moves[most:]:
        rows.append((f"{len(rest):,} more", "", shown(sum(amount for _, _, amount in rest))))
    names = [TableColumn(heading, numeric=False, code=True) for heading in ("from", "to")]
    return Table([*names, TableColumn("moves")], rows)


def rings_piece(facts: Sequence[tuple[str, str]], rings: Mapping[str, KeyMap]) -> str:
    """Return facts and the strips of rings for a notebook.

    Args:
        facts: names and values.
        rings: the rings, by exchange.
    """
    shown = list(rings.items())[:_MOST_RINGS]
    blocks: list[Block] = [Facts(facts), *(ring_strip((name, ring)) for name, ring in shown)]
    if rest := len(rings) - len(shown):
        blocks.append(Line(f"and {plural(rest, 'more ring')}"))
    return html_piece(blocks)

"""Tables for a terminal, plain where the output goes elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

__all__ = ["WIDE", "Column", "printable", "render_table", "table_width"]

WIDE = 100_000  # for what is no terminal: nothing is cut or broken


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers."""

    heading: str
    numeric: bool = True


def render_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    total: Sequence[object] = (),
    *,
    width: int = WIDE,
) -> str:
    """A table as text; whole numbers get thousands separators.

    Args:
        columns: headings, left to right.
        rows: cells, as many per row as there are columns.
        total: cells of a last row, set apart.
        width: into how many characters it has to fit; text is folded for it, numbers are not.
    """
    console = _console(max(width, table_width(columns, [], total)))
    with console.capture() as capture:
        console.print(_table(columns, rows, total))
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def table_width(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], total: Sequence[object] = ()
) -> int:
    """How many characters wide the table is where nothing is folded."""
    return _console(WIDE).measure(_table(columns, rows, total)).maximum


def _console(width: int) -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise MissingExtraError("tables need rich: pip install 'rabbit-chx[cli]'") from None
    return Console(color_system=None, force_terminal=False, width=width, markup=False, highlight=False)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[object]], total: Sequence[object]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_footer=bool(total), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(
            column.heading,
            justify="right" if column.numeric else "left",
            footer=_cell(total[i]) if total else "",
            no_wrap=column.numeric,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))  # a Text is no markup: names may have brackets
    return table


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str) -> str:
    """The text with control characters escaped: a name may hold what would drive the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

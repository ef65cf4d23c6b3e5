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

_ASCII_HEAD = "    \n    \n -- \n    \n    \n    \n    \n    \n"
"""As rich's SIMPLE_HEAD, for where there is no line to draw."""

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
    encoding: str = "utf-8",
) -> str:
    """A table as text; whole numbers get thousands separators.

    Args:
        columns: headings, left to right.
        rows: cells, as many per row as there are columns.
        total: cells of a last row, set apart.
        width: into how many characters it has to fit; text is folded for it, numbers are not.
        encoding: that of the output; what it lacks is escaped.
    """
    console = _console(max(width, table_width(columns, [], total, encoding)))
    with console.capture() as capture:
        console.print(_table(columns, rows, total, encoding))
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def table_width(
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    total: Sequence[object] = (),
    encoding: str = "utf-8",
) -> int:
    """How many characters wide the table is where nothing is folded."""
    return _console(WIDE).measure(_table(columns, rows, total, encoding)).maximum


def _console(width: int) -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise MissingExtraError("tables need rich: pip install 'rabbit-chx[cli]'") from None
    return Console(color_system=None, force_terminal=False, width=width, markup=False, highlight=False)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], total: Sequence[object], encoding: str
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = box.SIMPLE_HEAD if printable("─", encoding) == "─" else box.Box(_ASCII_HEAD, ascii=True)
    table = Table(box=lines, show_footer=bool(total), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(
            printable(column.heading, encoding),
            justify="right" if column.numeric else "left",
            footer=_cell(total[i], encoding) if total else "",
            no_wrap=column.numeric,
            overflow="fold",
        )
    for row in rows:
        table.add_row(
            *(Text(_cell(value, encoding)) for value in row)
        )  # a Text is no markup: names may have brackets
    return table


def _cell(value: object, encoding: str) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value), encoding)


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text with control characters escaped, as a name may hold what would drive the terminal.

    Args:
        text: any.
        encoding: that of the output; what it lacks is escaped too, before anything is measured.
    """
    if not text.isprintable():
        text = "".join(
            char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
            for char in text
        )
    return text.encode(encoding, "backslashreplace").decode(encoding)

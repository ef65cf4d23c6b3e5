"""Tables as text, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import MissingExtraError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_ASCII_HEAD = "    \n    \n -- \n    \n    \n    \n    \n    \n"
"""As rich's SIMPLE_HEAD, where the output has no character for the line."""

WIDE = 100_000  # columns of what is not a terminal, so that nothing is cut or broken


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column.

    Attributes:
        heading: the text above the column.
        numeric: whether the cells are numbers, which are aligned to the right and never folded.
        code: whether the cells are names and values, which a page sets as code.
    """

    heading: str
    numeric: bool = True
    code: bool = False


def render_table(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[object]],
    total: Sequence[object] = (),
    *,
    width: int = WIDE,
    encoding: str = "utf-8",
) -> str:
    """Return a table as text; whole numbers get thousands separators.

    Args:
        columns: the columns, left to right.
        rows: the cells of each row, one for each column.
        total: the cells of a last row, set apart; empty for none.
        width: the width in characters to fit into; text is folded, numbers are not.
        encoding: the encoding of the output; characters that it lacks are escaped.
    """
    plain = _plain_lines(columns, rows, total, encoding)
    if plain is not None and len(plain[1]) < width:
        return "\n".join(line.rstrip() for line in plain if line.strip())
    console = _console(max(width, table_width(columns, [], total, encoding)))
    with console.capture() as capture:
        console.print(_table(columns, rows, total, encoding))
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def table_width(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[object]],
    total: Sequence[object] = (),
    encoding: str = "utf-8",
) -> int:
    """Return the width of the table in characters where nothing is folded; see `render_table`."""
    plain = _plain_lines(columns, rows, total, encoding)
    if plain is not None:
        return len(plain[1]) + 1
    return _console(WIDE).measure(_table(columns, rows, total, encoding)).maximum


def _plain_lines(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[object]], total: Sequence[object], encoding: str
) -> list[str] | None:
    """Return the lines of a table of ASCII as rich has them where nothing is folded; None for other text.

    Loading rich takes longer than most commands.
    """
    head = [printable(column.heading, encoding) for column in columns]
    cells = [[_cell(value, encoding) for value in row] for row in (*rows, *([total] if total else []))]
    if not columns or not all(text.isascii() for row in (head, *cells) for text in row):
        return None
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    rule = printable("─", encoding)
    line = (rule if rule == "─" else "-") * (sum(widths) + 3 * (len(widths) - 1))

    def aligned(row: Sequence[str]) -> str:
        padded = (
            text.rstrip().rjust(width) if column.numeric else text.ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        )
        return f" {'   '.join(padded)}"

    return [aligned(head), f" {line}", *map(aligned, cells)]


def _console(width: int) -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise MissingExtraError("tables need rich: pip install 'rabbit-chx[cli]'") from None
    return Console(color_system=None, force_terminal=False, width=width, markup=False, highlight=False)


def _table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[object]], total: Sequence[object], encoding: str
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
    """Return the text with control characters escaped, since a name may contain what would drive the
    terminal.

    Args:
        text: any text.
        encoding: the encoding of the output; characters that it lacks are escaped too.
    """
    if not text.isprintable():
        text = "".join(
            char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
            for char in text
        )
    return text.encode(encoding, "backslashreplace").decode(encoding)

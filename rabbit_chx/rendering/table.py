"""Tables as text, for a terminal or a file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: The width for output that is not a terminal, so that nothing is cut or folded.
WIDE = 100_000
_LEAST_TEXT = 8


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column.

    Attributes:
        heading: the text above the column.
        numeric: whether the cells are numbers, which are aligned to the right and never folded.
        code: whether the cells are names and values, which Markdown shows as code.
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
        total: the cells of a last row; empty for none.
        width: the width in characters to fit into; text is folded, numbers are not.
        encoding: the encoding of the output; characters that it lacks are escaped.
    """
    head, *cells = _texts(columns, rows, total, encoding)
    widths = _natural_widths([head, *cells])
    excess = _total_width(widths) - width
    while excess > 0:
        i = max(
            (i for i, column in enumerate(columns) if not column.numeric),
            key=widths.__getitem__,
            default=None,
        )
        if i is None or widths[i] <= max(_LEAST_TEXT, cell_width(head[i])):
            break
        widths[i] -= 1
        excess -= 1
    rule = "─" if printable("─", encoding) == "─" else "-"
    lines = [*_align(columns, head, widths), f" {rule * (sum(widths) + 3 * (len(widths) - 1))}"]
    for row in cells:
        lines += _align(columns, row, widths)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def table_width(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[object]],
    total: Sequence[object] = (),
    encoding: str = "utf-8",
) -> int:
    """Return the width in characters of a table without folded cells; `columns`, `rows`, `total` and `encoding` are as in `render_table`."""
    return _total_width(_natural_widths(_texts(columns, rows, total, encoding)))


def cell_width(text: str) -> int:
    """Return how many columns of a terminal `text` takes: two for a wide East Asian character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _texts(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[object]], total: Sequence[object], encoding: str
) -> list[list[str]]:
    head = [printable(column.heading, encoding) for column in columns]
    return [
        head,
        *([_cell(value, encoding) for value in row] for row in (*rows, *([total] if total else []))),
    ]


def _natural_widths(texts: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_width, column)) for column in zip(*texts, strict=True)]


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * (len(widths) - 1) + 2


def _align(columns: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row: several if a text is folded."""
    folded = [
        [text.rstrip()] if column.numeric else _fold(text, width)
        for column, text, width in zip(columns, row, widths, strict=True)
    ]
    for i in range(max(map(len, folded), default=0)):
        padded = []
        for column, texts, width in zip(columns, folded, widths, strict=True):
            text = texts[i] if i < len(texts) else ""
            space = " " * (width - cell_width(text))
            padded.append(space + text if column.numeric else text + space)
        yield f" {'   '.join(padded)}"


def _fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most this width, between words where that is possible."""
    if cell_width(text) <= width:
        return [text]
    lines = []
    line = ""
    for word in re.findall(r"\s*\S+", text):
        if line and cell_width(line + word) > width:
            lines.append(line)
            line = word.lstrip()
        else:
            line += word
        while cell_width(line) > width:
            size = next(n for n in range(len(line), 0, -1) if cell_width(line[:n]) <= width)
            lines.append(line[:size])
            line = line[size:]
    return [*lines, line]


def _cell(value: object, encoding: str) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value), encoding)


def printable(text: str, encoding: str = "utf-8") -> str:
    """Return the text with control characters escaped, because a name may contain terminal sequences.

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

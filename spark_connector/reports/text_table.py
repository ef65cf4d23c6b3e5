"""Tables of plain text. An executor loads this, so it does not use the renderers of `rabbit_chx.rendering`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table_of(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned columns.

    The first column and all texts are aligned to the left, other numbers to the right. Numbers have commas
    between thousands.

    Args:
        headings: the first line; it is left out if all headings are empty.
        rows: the cells of each further line, as many as there are headings.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [list(headings), *cells] if any(headings) else cells
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    right = [all(_is_number(row[i]) for row in cells) and i > 0 for i in range(len(headings))]
    return "\n".join(
        " "
        + "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in shown
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").isdigit()

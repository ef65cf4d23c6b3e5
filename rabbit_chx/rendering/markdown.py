"""Results as Markdown, as GitHub and GitLab show it: for a pull request."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rabbit_chx.rendering.blocks import (
    Block,
    Facts,
    Line,
    Lines,
    Report,
    Section,
    Table,
    Verbatim,
)
from rabbit_chx.rendering.output import Record
from rabbit_chx.rendering.table import TableColumn, printable

#: What means something anywhere in a line. GitHub sets text between dollar signs as mathematics.
_ACTIVE = re.compile(r"([\\`*\[\]<|~$])")
#: An underline at the edge of a word. Within a word it is text.
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: What would become a link to a person or to an issue; a comment in between prevents it.
_LINK = re.compile(r"(?<![A-Za-z0-9_])([@#])(?=[A-Za-z0-9_])")
#: What would begin a heading, a quotation or a list.
_BEGINNING = re.compile(r"^([0-9]*)([#>+=.)-])")
_BACKTICKS = re.compile("`+")
_FIRST_LEVEL = 3


class MarkdownOutput:
    """For pages: paragraphs, lists, tables, and sections that unfold.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def show(self, report: Report) -> None:
        """Write the blocks, with an empty line between them.

        Args:
            report: the result to write.
        """
        parts = [part for block in report.blocks() for part in _parts(block, _FIRST_LEVEL)]
        self._stream.write("\n\n".join(parts) + "\n")

    def show_each(self, records: Iterable[Record]) -> None:
        """Write a line of a list for each record.

        Args:
            records: the results to write.
        """
        for record in records:
            self._stream.write(f"- {_escaped(record.as_line())}\n")
        self._stream.flush()


def _parts(block: Block, level: int) -> Iterator[str]:
    """Yield the paragraphs of a block."""
    if isinstance(block, Section):
        inner = [part for child in block.blocks for part in _parts(child, level + 1)]
        if block.folded:
            yield f"<details>\n<summary>{_escaped(block.title)}</summary>"
            yield from inner
            yield "</details>"
        else:
            yield f"{'#' * level} {_escaped(block.title)}"
            yield from inner
    elif isinstance(block, Line):
        yield _paragraph(block.text)
    elif isinstance(block, Lines):
        if text := "\n".join(block.texts):
            yield _fenced(text)
    elif isinstance(block, Verbatim):
        yield _fenced(block.text.rstrip("\n"))
    elif isinstance(block, Facts):
        if block.pairs:
            yield "\n".join(_listed(block.pairs))
    else:
        yield "\n".join(_rows(block))


def _paragraph(text: str) -> str:
    return _BEGINNING.sub(r"\1\\\2", _escaped(text))


def _listed(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        yield f"- **{_escaped(name)}**: {_escaped(value)}" if name else f"  <br>{_escaped(value)}"


def _rows(table: Table) -> Iterator[str]:
    yield _row([_escaped(column.heading) for column in table.columns])
    yield _row(["---:" if column.numeric else "---" for column in table.columns])
    for row in table.rows:
        yield _row([_cell(column, value) for column, value in zip(table.columns, row, strict=True)])
    if table.total:
        yield _row([f"**{text}**" if (text := _cell(None, value)) else "" for value in table.total])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: TableColumn | None, value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return _code(text).replace("|", "\\|") if column is not None and column.code else _escaped(text)


def _code(text: str) -> str:
    """Return the text between backticks, of which there are more than in the text."""
    text = printable(text)
    if not text.strip():
        return text.strip()
    ticks = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return "\n".join([fence, *map(printable, text.splitlines()), fence])


def _escaped(text: str) -> str:
    """Return the text so that it is shown as it is, on one line."""
    text = _ACTIVE.sub(r"\\\1", printable(text).replace("&", "&amp;"))
    return _LINK.sub(r"\1<!-- -->", _EDGE.sub(r"\\_", text))

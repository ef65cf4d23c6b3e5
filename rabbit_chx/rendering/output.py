"""Where results go: the renderers for people and for programs."""

from __future__ import annotations

import codecs
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TextIO

from rabbit_chx.rendering.blocks import Block, Facts, Line, Lines, Report, Section, Table, Verbatim
from rabbit_chx.rendering.table import WIDE, printable, render_table, table_width

#: The width in columns from which on a file has the narrow form of a table, if there is one.
_PAGE = 100


class Record(Protocol):
    """One of many results that are shown as they come."""

    def as_line(self) -> str:
        """Return what people and line tools read, with tabs between the fields."""

    def as_json(self) -> dict[str, Any]:
        """Return what programs read, in JSON's own types."""


def write_utf8(stream: TextIO, text: str) -> None:
    """Write the text as it is, in UTF-8, whatever the encoding of the stream."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(text)
    else:
        stream.flush()
        buffer.write(text.encode())
        buffer.flush()


class ConsoleOutput:
    """For people: as wide as the terminal. Elsewhere no line is folded, and a table that has a narrow form is not wider than a page.

    Args:
        stream: where to write; None for stdout.
        width: the width in columns; None for that of the terminal.
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        self._stream = stream or sys.stdout
        self._encoding = self._stream.encoding or "utf-8"
        if width is None:
            width = shutil.get_terminal_size().columns if self._stream.isatty() else WIDE
        self._width = width
        self._page = _PAGE if width == WIDE else width

    def show(self, report: Report) -> None:
        """Write the blocks as they come, with an empty line between them.

        Args:
            report: the result to write.
        """
        written = False
        for block in _unfolded(report.blocks()):
            if isinstance(block, Verbatim) and not self._stream.isatty():
                write_utf8(self._stream, block.text)
                continue
            gap = "\n" if written else ""
            for text in self._rendered(block):
                self._stream.write(f"{gap}{text}\n")
                self._stream.flush()
                gap, written = "", True

    def show_each(self, records: Iterable[Record]) -> None:
        """Write a line for each record.

        Args:
            records: the results to write.
        """
        for record in records:
            self._stream.write(f"{record.as_line()}\n")
        self._stream.flush()

    def _rendered(self, block: Line | Lines | Facts | Table | Verbatim) -> Iterator[str]:
        if isinstance(block, Lines):
            yield from map(self._printable, block.texts)
        elif isinstance(block, Verbatim):
            yield from map(self._printable, block.text.splitlines())
        elif text := self._text_of(block):
            yield text

    def _text_of(self, block: Line | Facts | Table) -> str:
        if isinstance(block, Line):
            return _wrapped(self._printable(block.text), self._width)
        if isinstance(block, Facts):
            margin = max((len(name) for name, _ in block.pairs), default=0) + 2
            lines = (
                f"{name:<{margin}}{_wrapped(self._printable(value), self._width - margin, margin)}"
                for name, value in block.pairs
            )
            return "\n".join(lines)
        table = block
        while (
            table.narrow and table_width(table.columns, table.rows, table.total, self._encoding) > self._page
        ):
            table = table.narrow
        return render_table(
            table.columns, table.rows, table.total, width=self._width, encoding=self._encoding
        )

    def _printable(self, text: str) -> str:
        return printable(text, self._encoding)


class JsonOutput:
    """For programs: one JSON document, or a document on each line where results are shown as they come.

    Characters are escaped where the stream is not UTF-8.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._ascii = codecs.lookup(self._stream.encoding or "utf-8").name != "utf-8"

    def show(self, report: Report) -> None:
        """Write the document, indented.

        Args:
            report: the result to write.
        """
        self._stream.write(f"{json.dumps(report.as_json(), indent=2, ensure_ascii=self._ascii)}\n")

    def show_each(self, records: Iterable[Record]) -> None:
        """Write a document on each line.

        Args:
            records: the results to write.
        """
        for record in records:
            self._stream.write(f"{json.dumps(record.as_json(), ensure_ascii=self._ascii)}\n")
        self._stream.flush()


def _unfolded(blocks: Iterable[Block]) -> Iterator[Line | Lines | Facts | Table | Verbatim]:
    """Yield the blocks of sections one by one, each section with its title before them."""
    for block in blocks:
        if isinstance(block, Section):
            yield Line(block.title)
            yield from _unfolded(block.blocks)
        else:
            yield block


def _wrapped(text: str, width: int, margin: int = 0) -> str:
    """Break lines between words; a word that is too long stays whole."""
    lines = [
        wrapped
        for line in text.splitlines()
        for wrapped in textwrap.wrap(line, max(width, 20), break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
    return f"\n{' ' * margin}".join(lines)

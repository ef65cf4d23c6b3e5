"""A result as blocks (lines, facts, tables, sections), and its renderers: text, JSON, Markdown and Prometheus metrics.

Markdown is as GitHub and GitLab show it. The metrics are in the "Text-based format" 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/, for the textfile collector of a node exporter.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO, TypeAlias, cast

from rabbit_chx.rendering.table import WIDE, TableColumn, cell_width, printable, render_table, table_width
from rabbit_chx.result_fields import described, is_empty

#: The width in columns from which on a file has the narrow form of a table, if there is one.
_PAGE = 100

_WORD = r"""(?:[^\s;,`'"()]|,(?!\s|$)|'[^']*'|"[^"]*")+"""
#: A command in a sentence. It ends before a semicolon, a backtick, a parenthesis, a comma with a blank, or the end of the text.
_COMMAND = re.compile(
    rf"rabbit-chx (?:(?:group|ring|shards|slots|stream|topology) )?(?!completion)[a-z]+(?: {_WORD})*"
)
#: What no line break may divide: a command, and a number from its unit.
_WHOLE = re.compile(rf"{_COMMAND.pattern}|\brabbitmq[a-z-]* [a-z_]+|\b[0-9](?:[0-9,.]*[0-9])? [a-z%]+")
#: A blank in it. Texts are printable, so they do not have this character.
_BLANK = "\0"
#: What follows a character of two columns while lines are broken.
_SECOND_COLUMN = "\1"

#: Characters with a meaning anywhere in a line. GitHub sets text between dollar signs as mathematics.
_ACTIVE = re.compile(r"([\\`*\[\]<|~$])")
#: An underline at the edge of a word. Within a word it is text.
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: The beginning of a link to a person or to an issue; a comment in between prevents it.
_LINK = re.compile(r"(?<![A-Za-z0-9_])([@#])(?=[A-Za-z0-9_])")
#: The beginning of a heading, a quotation or a list.
_BEGINNING = re.compile(r"^([0-9]*)([#>+=.)-])")
_BACKTICKS = re.compile("`+")
_FIRST_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or two; a renderer breaks them into lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that a renderer never breaks, and may show one by one."""

    texts: Iterable[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: headings, left to right.
        rows: cells, as many per row as there are columns.
        total: cells of a last row, set apart.
        narrow: a narrower form of the table, for where this one does not fit.
    """

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[object]]
    total: Sequence[object] = ()
    narrow: Table | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading.

    Attributes:
        title: the heading.
        blocks: the blocks below it.
        folded: whether Markdown shows only the heading until the reader unfolds it.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """The text of a file. It is written unchanged, except for control characters on a terminal."""

    text: str


Block: TypeAlias = "Line | Lines | Facts | Table | Section | Verbatim"


class Report(Protocol):
    """A result that can be shown: to people as blocks, to programs as JSON."""

    def blocks(self) -> Iterable[Block]:
        """Return the blocks for people, in order."""

    def as_json(self) -> dict[str, Any]:
        """Return the document for programs, in JSON types."""


class Record(Protocol):
    """One of many results that are shown one by one."""

    def as_row(self) -> Sequence[tuple[str, str]]:
        """Return the names and values of the fields, for people and line tools."""

    def as_json(self) -> dict[str, Any]:
        """Return the document for programs, in JSON types."""


def write_utf8(stream: TextIO, text: str) -> None:
    """Write the text in UTF-8, independent of the encoding of the stream."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(text)
    else:
        stream.flush()
        buffer.write(text.encode())
        buffer.flush()


class ConsoleOutput:
    """For people: as wide as the terminal; elsewhere as wide as the environment variable COLUMNS.

    Elsewhere and without that variable, prose is as wide as a page, a table that has a narrow form is not wider, and other tables are not
    folded.

    Args:
        stream: where to write; None for stdout.
        width: the width in columns; None for that of the terminal.
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        self._stream = stream or sys.stdout
        self._encoding = self._stream.encoding or "utf-8"
        is_terminal = self._stream.isatty()
        if width is None and (is_terminal or "COLUMNS" in os.environ):
            width = shutil.get_terminal_size((80 if is_terminal else 0, 24)).columns
        self._width = width or _PAGE
        self._table_width = width or WIDE

    def show(self, report: Report) -> None:
        """Write each block at once, with an empty line between them.

        Args:
            report: the result to write.
        """
        written = False
        for block in _unfold(report.blocks()):
            if isinstance(block, Verbatim) and not self._stream.isatty():
                write_utf8(self._stream, block.text)
                continue
            gap = "\n" if written else ""
            for text in self._render(block):
                self._stream.write(f"{gap}{text}\n")
                self._stream.flush()
                gap, written = "", True

    def show_each(self, records: Iterable[Record]) -> None:
        """Write a line for each record, with tabs between the values.

        Args:
            records: the results to write.
        """
        for record in records:
            values = (self._printable(value) for _, value in record.as_row())
            self._stream.write("\t".join(values) + "\n")
        self._stream.flush()

    def _render(self, block: Line | Lines | Facts | Table | Verbatim) -> Iterator[str]:
        if isinstance(block, Lines):
            yield from map(self._printable, block.texts)
        elif isinstance(block, Verbatim):
            yield from map(self._printable, block.text.splitlines())
        elif text := self._text_of(block):
            yield text

    def _text_of(self, block: Line | Facts | Table) -> str:
        if isinstance(block, Line):
            return wrap(self._printable(block.text), self._width)
        if isinstance(block, Facts):
            margin = max((cell_width(name) for name, _ in block.pairs), default=0) + 2
            lines = (
                f"{name}{' ' * (margin - cell_width(name))}{wrap(self._printable(value), self._width - margin, margin)}"
                for name, value in block.pairs
            )
            return "\n".join(lines)
        table = block
        while (
            table.narrow and table_width(table.columns, table.rows, table.total, self._encoding) > self._width
        ):
            table = table.narrow
        return render_table(
            table.columns, table.rows, table.total, width=self._table_width, encoding=self._encoding
        )

    def _printable(self, text: str) -> str:
        return printable(text, self._encoding)


class JsonOutput:
    """For programs: one JSON document, or a document on each line for incremental results.

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


def _unfold(blocks: Iterable[Block]) -> Iterator[Line | Lines | Facts | Table | Verbatim]:
    """Yield the blocks of sections one by one, each section with its title before them."""
    for block in blocks:
        if isinstance(block, Section):
            yield Line(block.title)
            yield from _unfold(block.blocks)
        else:
            yield block


def wrap(text: str, width: int, margin: int = 0) -> str:
    """Break lines between words; a command, and a word that is too long, stay whole.

    Args:
        text: the text, without control characters other than line breaks.
        width: the width in columns.
        margin: the number of blanks before each line but the first.
    """
    kept = _WHOLE.sub(lambda whole: whole[0].replace(" ", _BLANK), text)
    if not kept.isascii():  # textwrap counts characters
        kept = "".join(char + _SECOND_COLUMN * (cell_width(char) - 1) for char in kept)
    lines = [
        wrapped.replace(_BLANK, " ").replace(_SECOND_COLUMN, "")
        for line in kept.splitlines()
        for wrapped in textwrap.wrap(line, max(width, 20), break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
    return f"\n{' ' * margin}".join(lines)


class MarkdownOutput:
    """For pages: paragraphs, lists, tables, and sections that unfold.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_in_table = False

    def show(self, report: Report) -> None:
        """Write the blocks, with an empty line between them.

        Args:
            report: the result to write.
        """
        if text := "\n\n".join(_parts(report.blocks(), _FIRST_LEVEL)):
            self._stream.write(f"{text}\n")

    def show_each(self, records: Iterable[Record]) -> None:
        """Write a row of a table for each record; the first one determines the headings.

        Args:
            records: the results to write.
        """
        for record in records:
            row = record.as_row()
            if not self._is_in_table:
                self._is_in_table = True
                self._stream.write(f"{_row(_escape(name) for name, _ in row)}\n{_row(['---'] * len(row))}\n")
            self._stream.write(f"{_row(_escape(value) for _, value in row)}\n")
        self._stream.flush()


def _parts(blocks: Iterable[Block], level: int) -> Iterator[str]:
    previous: Block | None = None
    for block in blocks:
        if isinstance(previous, Facts) and isinstance(block, Facts):
            yield "<!-- -->"  # without text in between, two lists are shown as one
        yield from _parts_of(block, level)
        previous = block


def _parts_of(block: Block, level: int) -> Iterator[str]:
    if isinstance(block, Section):
        inner = _parts(block.blocks, level + 1)
        if block.folded:
            yield f"<details>\n<summary>{_escape(block.title)}</summary>"
            yield from inner
            yield "</details>"
        else:
            yield f"{'#' * level} {_escape(block.title)}"
            yield from inner
    elif isinstance(block, Line):
        yield _paragraph(block.text)
    elif isinstance(block, Lines):
        if lines := list(block.texts):
            yield _fence(lines)
    elif isinstance(block, Verbatim):
        yield _fence(block.text.splitlines())
    elif isinstance(block, Facts):
        if block.pairs:
            yield "\n".join(_list_items(block.pairs))
    else:
        yield "\n".join(_markdown_rows(block))


def _paragraph(text: str) -> str:
    return _BEGINNING.sub(r"\1\\\2", _escape(text))


def _list_items(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        yield f"- **{_escape(name)}**: {_escape(value)}" if name else f"  <br>{_escape(value)}"


def _markdown_rows(table: Table) -> Iterator[str]:
    yield _row([_escape(column.heading) for column in table.columns])
    yield _row(["---:" if column.numeric else "---" for column in table.columns])
    for row in table.rows:
        yield _row([_cell(column, value) for column, value in zip(table.columns, row, strict=True)])
    if table.total:
        yield _row([f"**{text}**" if (text := _cell(None, value)) else "" for value in table.total])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: TableColumn | None, value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return _code(text).replace("|", "\\|") if column is not None and column.code else _escape(text)


def _code(text: str) -> str:
    """Return the text between backticks, of which there are more than in the text."""
    text = printable(text)
    if not text.strip():
        return text.strip()
    ticks = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _fence(lines: Sequence[str]) -> str:
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0))
    return "\n".join([fence, *map(printable, lines), fence])


def _escape(text: str) -> str:
    """Return the text escaped for Markdown, on one line."""
    text = _ACTIVE.sub(r"\\\1", printable(text).replace("&", "&amp;"))
    return _LINK.sub(r"\1<!-- -->", _EDGE.sub(r"\\_", text))


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric with its values.

    Attributes:
        name: its name, of ``[a-zA-Z_:][a-zA-Z0-9_:]*``.
        help: its description, with its unit.
        samples: labels and value, one for each set of labels.
    """

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


class MeasuredReport(Protocol):
    """A result that has metrics."""

    def metrics(self) -> Iterable[Gauge]:
        """Return the metrics, each name once."""


class PrometheusOutput:
    """For the textfile collector. The text is UTF-8, as Prometheus requires, whatever the encoding of the stream.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def show(self, report: Report) -> None:
        """Write the metrics of a result that has some.

        Args:
            report: the result to write, a `MeasuredReport`.
        """
        write_utf8(self._stream, metrics_text(cast("MeasuredReport", report).metrics()))

    def show_each(self, records: Iterable[Record]) -> None:
        """Raise an error: incremental results do not have metrics.

        Args:
            records: the results.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{records!r:.60} does not have metrics")


def metrics_text(metrics: Iterable[Gauge]) -> str:
    """Return metrics as text."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape_help(metric.help)}")
        lines.append(f"# TYPE {metric.name} gauge")
        for labels, value in metric.samples:
            pairs = ",".join(f'{name}="{_escape_label(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{pairs}}} {value!r}" if pairs else f"{metric.name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape_help(text).replace('"', '\\"')


# -- the formats


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format of results.

    Attributes:
        output: the class that writes it.
        use: its use, as the help of ``--output`` continues it after the name; empty for none.
        takes: what it writes of a result: its blocks or its document, which each result has, or its metrics.
    """

    output: type[ConsoleOutput | JsonOutput | MarkdownOutput | PrometheusOutput]
    use: str = ""
    takes: Literal["report", "metrics"] = "report"


#: The formats by name, in the order of the help.
FORMATS: Mapping[str, OutputFormat] = {
    "table": OutputFormat(ConsoleOutput),
    "json": OutputFormat(JsonOutput),
    "markdown": OutputFormat(MarkdownOutput, "is for a pull request"),
    "prometheus": OutputFormat(
        PrometheusOutput, "for the textfile collector of a node exporter", takes="metrics"
    ),
}


# -- results that declare their fields


def table_of(kind: type, rows: Sequence[Any], *, total: bool = False, skip: int = 0) -> Table:
    """Return a table with a row for each result.

    Args:
        kind: the dataclass of the results.
        rows: the results.
        total: whether a last row has the sums.
        skip: the number of columns that are left out at the left.
    """
    columns = [
        (name, how)
        for name, how in described(kind)
        if how.label is not None and not (how.sparse and all(is_empty(getattr(row, name)) for row in rows))
    ][skip:]
    sums = [
        sum(getattr(row, name) or 0 for row in rows) if how.summed else "" if at else "all"
        for at, (name, how) in enumerate(columns)
    ]
    return Table(
        [TableColumn(how.label or "", how.number) for _, how in columns],
        [[how.form(getattr(row, name)) for name, how in columns] for row in rows],
        sums if total else (),
    )


def gauges_of(kind: type, rows: Sequence[tuple[Mapping[str, str], Any]]) -> Iterator[Gauge]:
    """Yield the metrics of `rows` of a `kind`, each with its labels; a metric that no row has is left out."""
    for name, how in described(kind):
        if how.metric is not None:
            values = [
                (labels, how.metric.of(value))
                for labels, row in rows
                if (value := getattr(row, name)) is not None
            ]
            if values or not rows:
                yield Gauge(how.metric.name, how.metric.help, values)

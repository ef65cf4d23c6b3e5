"""The forms of a document: text, JSON, Markdown and Prometheus metrics.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO

from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.rendering.document import (
    MOST_BARS,
    WIDE,
    Batch,
    Block,
    Document,
    Facts,
    Gauge,
    Line,
    Lines,
    Section,
    Table,
    TableColumn,
    Verbatim,
    cell_width,
    printable,
    render_table,
    table_width,
)
from rabbit_chx.text import COMMAND

if TYPE_CHECKING:
    from jinja2 import Environment

#: The width in columns from which on a file has the narrow form of a table, if there is one.
_PAGE = 100

#: A command with what divides it from the rest of the sentence; not one in parentheses.
_ALONE = re.compile(rf"(?<!\(){COMMAND.pattern}(?!\))[,;.]?[ ]?")
#: A command, or other code: an option, or Python in parentheses. Other backticks may be those of a name.
_CODE = re.compile(rf"{COMMAND.pattern}|`(--[^`]+)`|(?<=\()`([^`]+)`(?=\))")
#: What no line break may divide: code, a command of the broker, and a number from its unit.
_WHOLE = re.compile(r"`[^`]{1,80}`|\brabbitmq[a-z-]* [a-z_]+|\b[0-9](?:[0-9,.]*[0-9])? [a-z%]+")
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
#: A label of a metric. Names that begin with two underscores are those of Prometheus itself.
_LABEL = re.compile("(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def write_utf8(stream: TextIO, text: str) -> None:
    """Write `text` in UTF-8, independent of the encoding of `stream`."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(text)
    else:
        stream.flush()
        buffer.write(text.encode())
        buffer.flush()


class Output(ABC):
    """A form of a document.

    Args:
        stream: where to write; None for stdout.

    `use` is its use, as the help of ``--output`` continues it after the name; empty for none. `takes` is what it writes of a result: its
    parts, its parts with their pictures, or its metrics.
    """

    use: ClassVar[str] = ""
    takes: ClassVar[Literal["report", "pictures", "metrics"]] = "report"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    @abstractmethod
    def show(self, document: Document) -> None:
        """Write a document.

        Args:
            document: the result to write.
        """

    def show_each(self, batch: Batch) -> None:
        """Write some of many results. Without such a form it raises a TypeError: no command that has them offers it.

        Args:
            batch: the results to write.
        """
        raise TypeError(f"{batch.name} has no such form")


class ConsoleOutput(Output):
    """For people: as wide as the terminal; elsewhere as wide as the environment variable COLUMNS.

    Elsewhere and without that variable, prose is as wide as a page, a table that has a narrow form is not wider, and other tables are not
    folded.

    Args:
        stream: where to write; None for stdout.
        width: the width in columns; None for that of the terminal.
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        super().__init__(stream)
        self._encoding = self._stream.encoding or "utf-8"
        is_terminal = self._stream.isatty()
        if width is None and (is_terminal or "COLUMNS" in os.environ):
            width = shutil.get_terminal_size((80 if is_terminal else 0, 24)).columns
        self._width = width or _PAGE
        self._table_width = width or WIDE

    def show(self, document: Document) -> None:
        """Write each block at once, with an empty line between them.

        Args:
            document: the result to write.
        """
        written = False
        for block in unfold(document.blocks()):
            if isinstance(block, Verbatim) and not self._stream.isatty():
                write_utf8(self._stream, block.text)
                continue
            gap = "\n" if written else ""
            for text in self._render(block):
                self._stream.write(f"{gap}{text}\n")
                self._stream.flush()
                gap = ""
                written = True

    def show_each(self, batch: Batch) -> None:
        """Write a line for each record, with tabs between the values.

        Args:
            batch: the results to write.
        """
        for row in batch.table.rows:
            self._stream.write("\t".join(self._printable(str(value)) for value in row) + "\n")
        self._stream.flush()

    def _render(self, block: Line | Lines | Facts | Table | Verbatim) -> Iterator[str]:
        if isinstance(block, Lines):
            for text in block.texts:
                yield self._printable(_without_backticks(text))
        elif isinstance(block, Verbatim):
            yield from map(self._printable, block.text.splitlines())
        elif shown := self._text_of(block):
            yield shown

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


class JsonOutput(Output):
    """For programs: one JSON document, or a document on each line for incremental results.

    Characters are escaped where the stream is not UTF-8.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._ascii = codecs.lookup(self._stream.encoding or "utf-8").name != "utf-8"

    def show(self, document: Document) -> None:
        """Write the document, indented.

        Args:
            document: the result to write.
        """
        self._stream.write(f"{json.dumps(document.as_json(), indent=2, ensure_ascii=self._ascii)}\n")

    def show_each(self, batch: Batch) -> None:
        """Write a document on each line.

        Args:
            batch: the results to write.
        """
        for record in batch.as_json():
            self._stream.write(f"{json.dumps(record, ensure_ascii=self._ascii)}\n")
        self._stream.flush()


def unfold(blocks: Iterable[Block]) -> Iterator[Line | Lines | Facts | Table | Verbatim]:
    """Yield `blocks`, those of sections one by one, each section with its title before them; what has to be folded is left out."""
    for block in blocks:
        if isinstance(block, Section) and block.needs_folding:
            continue
        if isinstance(block, Section):
            yield Line(block.title)
            yield from unfold(block.parts)
        else:
            yield block


def find_code(text: str) -> Iterator[tuple[str, Literal["text", "code", "command"]]]:
    """Yield the pieces of `text`, and what each is: code and commands are without their backticks."""
    end = 0
    for found in _CODE.finditer(text):
        yield text[end : found.start()], "text"
        if found[1] is not None:
            yield found[1], "command"
        else:
            yield found[2] or found[3], "code"
        end = found.end()
    yield text[end:], "text"


def _without_backticks(line: str) -> str:
    """Return a line that is never broken without the backticks of its commands, which are copied from it."""
    return COMMAND.sub(r"\1", line)


def wrap(text: str, width: int, margin: int = 0) -> str:
    """Break lines between words; a word that is too long stays whole, and a command is alone on its line, where it can be copied.

    Args:
        text: the text, without control characters other than line breaks.
        width: the width in columns.
        margin: the number of blanks before each line but the first.
    """
    apart = _ALONE.sub(lambda command: f"\n{command[1].replace(' ', _BLANK)}\n", text)
    apart = apart.strip("\n").replace(" \n", "\n").replace("\n\n", "\n")
    kept = _WHOLE.sub(lambda whole: whole[0].replace(" ", _BLANK), apart)
    if not kept.isascii():  # textwrap counts characters
        kept = "".join(char + _SECOND_COLUMN * (cell_width(char) - 1) for char in kept)
    lines = [
        wrapped.replace(_BLANK, " ").replace(_SECOND_COLUMN, "")
        for line in kept.splitlines()
        for wrapped in textwrap.wrap(line, max(width, 20), break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
    return f"\n{' ' * margin}".join(lines)


class MarkdownOutput(Output):
    """For pages: paragraphs, lists, tables, and sections that unfold."""

    use = "is for a pull request"
    _is_in_table = False

    def show(self, document: Document) -> None:
        """Write the blocks, with an empty line between them.

        Args:
            document: the result to write.
        """
        if text := "\n\n".join(_parts(document.blocks(), _FIRST_LEVEL)):
            self._stream.write(f"{text}\n")

    def show_each(self, batch: Batch) -> None:
        """Write a row of a table for each record; the first batch determines the headings.

        Args:
            batch: the results to write.
        """
        columns = batch.table.columns
        rows = batch.table.rows
        if rows and not self._is_in_table:
            self._is_in_table = True
            headings = _row(_escape(column.heading) for column in columns)
            self._stream.write(f"{headings}\n{_row(['---'] * len(columns))}\n")
        for row in rows:
            self._stream.write(f"{_row(_escape(str(value)) for value in row)}\n")
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
        inner = _parts(block.parts, level + 1)
        if block.folded:
            yield f"<details>\n<summary>{_escape(block.title)}</summary>"
            yield from inner
            yield "</details>"
        else:
            yield f"{'#' * level} {_escape(block.title)}"
            yield from inner
    elif isinstance(block, Line):
        text = _BEGINNING.sub(r"\1\\\2", _sentence(block.text))
        yield f"**{text}**" if block.is_alarm else text
    elif isinstance(block, Lines):
        if lines := list(map(_without_backticks, block.texts)):
            yield _fence(lines)
    elif isinstance(block, Verbatim):
        yield _fence(block.text.splitlines())
    elif isinstance(block, Facts):
        if block.pairs:
            yield "\n".join(_list_items(block.pairs))
    elif isinstance(block, Table):
        yield "\n".join(_markdown_rows(block))


def _list_items(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        yield f"- **{_escape(name)}**: {_sentence(value)}" if name else f"  <br>{_sentence(value)}"


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


def _sentence(text: str) -> str:
    """Return the text escaped for Markdown, on one line; what is between backticks is code."""
    return "".join(_escape(piece) if kind == "text" else _code(piece) for piece, kind in find_code(text))


def _escape(text: str) -> str:
    """Return the text escaped for Markdown, on one line."""
    text = _ACTIVE.sub(r"\\\1", printable(text).replace("&", "&amp;"))
    return _LINK.sub(r"\1<!-- -->", _EDGE.sub(r"\\_", text))


class PrometheusOutput(Output):
    """For the textfile collector. The text is UTF-8, as Prometheus requires, whatever the encoding of the stream."""

    use = "for the textfile collector of a node exporter"
    takes = "metrics"

    def show(self, document: Document) -> None:
        """Write the metrics of a result that has some.

        Args:
            document: the result to write.
        """
        write_utf8(self._stream, metrics_text(document.gauges))


def metrics_text(metrics: Iterable[Gauge]) -> str:
    """Return `metrics` as text; an InputError for the name of a label that Prometheus does not take."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape_help(metric.help)}")
        lines.append(f"# TYPE {metric.name} {'counter' if metric.only_grows else 'gauge'}")
        for labels, value in metric.samples:
            pairs = ",".join(f'{_check_label(name)}="{_escape_label(of)}"' for name, of in labels.items())
            lines.append(f"{metric.name}{{{pairs}}} {value!r}" if pairs else f"{metric.name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _check_label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise InputError(
            f"the name of a label is {name!r:.60}, with which Prometheus refuses all metrics: use letters, digits and _, "
            "and begin with a letter"
        )
    return name


def _escape_label(value: object) -> str:
    text = str(value).encode(errors="replace").decode()  # a surrogate is no UTF-8
    return _escape_help(text).replace('"', '\\"')


# -- A document as HTML: one page that needs nothing else, a part of a page for a notebook, or the body for a page of the browser
# The markup is in `templates/`, written by Jinja2 with autoescape: names of queues are input. Pictures are SVG without texts, so that they
# stretch to any width; what they show is in their tooltips, in the legend and in the table below them.


TEMPLATES = files("rabbit_chx.rendering") / "templates"
#: The colours of `style.css`; names beyond them share colours.
_COLOURS = 20
#: The most names of a legend.
_MOST_NAMES = 40


class HtmlOutput(Output):
    """For a browser: one page with its style, without scripts."""

    use = "is one file for a browser"
    takes = "pictures"

    def show(self, document: Document) -> None:
        """Write the page, in UTF-8 whatever the encoding of the stream.

        Args:
            document: the result to write.
        """
        page = environment().get_template("page.html")
        title = document.title or f"rabbit-chx {document.name}".strip()
        head = {"title": title, "about": document.about, "lead": document.lead}
        write_utf8(self._stream, page.render(**head, style=_style(), **body_of(document)))


def part_of_page(make: Callable[[], Document]) -> str | None:
    """Return the document that `make` makes as a part of a page, with its style; None without Jinja2, and if there is no document: a notebook then shows the text of the value."""
    try:
        template = environment().get_template("notebook.html")
        return template.render(style=_style(), **body_of(make()))
    except RabbitChxError:
        return None


def _style() -> str:
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


def body_of(document: Document) -> dict[str, Any]:
    """Return what the template ``blocks.html`` needs for the blocks of a `document`: the blocks, their pictures, and the colour of each name."""
    blocks = list(document.blocks())
    pictures = {id(block): block.pictures() for block in unfold(blocks) if isinstance(block, (Facts, Table))}
    names = dict.fromkeys(
        name for drawn in pictures.values() for picture in drawn for name in picture.names()
    )
    colours = {name: number % _COLOURS for number, name in enumerate(filter(None, names))}
    return {"blocks": blocks, "look": {"pictures": pictures, "colours": colours}}


@cache
def environment(*packages: str) -> Environment:
    """Return the templates of this package, and before them those of the folder `templates` of other packages.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    from rabbit_chx.text import percent
    from rabbit_chx.version import missing_extra

    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ModuleNotFoundError:
        raise missing_extra("a page in HTML", "jinja2", "cli") from None

    folders = [*(files(package) / "templates" for package in packages), TEMPLATES]

    def text_of(name: str) -> str | None:
        for folder in folders:
            if (folder / name).is_file():
                return (folder / name).read_text(encoding="utf-8")
        return None

    made = Environment(
        autoescape=True,
        loader=FunctionLoader(text_of),  # the package may be in an archive
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "kind": lambda value: type(value).__name__,
        "id": id,
        "pieces": find_code,
        "percent": percent,
        "cell": _html_cell,
        "printable": printable,
    }
    made.globals |= {"MOST_BARS": MOST_BARS, "MOST_NAMES": _MOST_NAMES}
    return made


def _html_cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


# -- The forms of a document, by the name that a user types


#: The formats by name, in the order of the help.
FORMATS: Mapping[str, type[Output]] = {
    "table": ConsoleOutput,
    "json": JsonOutput,
    "markdown": MarkdownOutput,
    "html": HtmlOutput,
    "prometheus": PrometheusOutput,
}

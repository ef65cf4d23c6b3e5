"""A result as a value: its fields, which are its JSON, and the parts that people see of it as text, Markdown or HTML; and its metrics."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Any, TypeAlias

from rabbit_chx.result_fields import columns_of, described, document, heading, is_empty, to_json

# -- Pictures of a table, for a renderer that can draw: a strip, bars, flows, a grid. Each is what the table says, for the eye
# Names are those of places; an empty name is a place that keeps nothing. Shares are from 0 to 1.

#: The most bars, and the most places on a side of flows. The table has them all.
MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class Strip:
    """Places of equal width in order, such as the buckets of a ring.

    Attributes:
        title: what is drawn.
        places: the name of each place.
        notes: what is known about a name, such as its share.
    """

    title: str
    places: Sequence[str]
    notes: Mapping[str, str]

    def runs(self) -> Iterator[tuple[str, int, int]]:
        """Yield neighbours of one name as one: the name, the first place, and the number of places."""
        start = 0
        for name, run in groupby(self.places):
            width = sum(1 for _ in run)
            yield name, start, width
            start += width

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys(self.places)


@dataclass(frozen=True, slots=True)
class Bar:
    """A share.

    Attributes:
        name: who has it.
        share: the share.
        ideal: the share that it should be.
        real: the share of the traffic; None if it is not known.
    """

    name: str
    share: float
    ideal: float
    real: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares beside each other, the first `MOST_BARS` of them."""

    title: str
    bars: Sequence[Bar]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn."""
        return [bar.name for bar in self.bars[:MOST_BARS]]

    def scale(self) -> float:
        """Return the largest share that is drawn; 1 if all are 0."""
        drawn = [value for bar in self.bars[:MOST_BARS] for value in (bar.share, bar.ideal, bar.real or 0.0)]
        return max(drawn, default=0.0) or 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """A flow as an area between two strips. Its edges are shares from the left."""

    source: str
    target: str
    share: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Flows:
    """What moves between the places of two moments.

    Attributes:
        title: what is drawn.
        headline: the share that moves, in large letters, and what it is a share of.
        amounts: the share of each way, also of what stays; empty: there are more than one can follow.
    """

    title: str
    headline: tuple[str, str]
    amounts: Mapping[tuple[str, str], float]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys((*self.before(), *self.after()))

    def before(self) -> dict[str, float]:
        """Return the share of each place before."""
        return self._totals(0)

    def after(self) -> dict[str, float]:
        """Return the share of each place after: those of before in their order, then the new ones."""
        totals = self._totals(1)
        kept = {name: totals[name] for name in self.before() if name in totals}
        return kept | totals

    def bands(self) -> list[Band]:
        """Return the flows as areas."""
        tops, bottoms = (
            dict(zip(totals, accumulate(totals.values(), initial=0.0), strict=False))
            for totals in (self.before(), self.after())
        )
        placed: list[Band] = []
        for source in self.before():
            for target in self.after():
                if share := self.amounts.get((source, target), 0.0):
                    placed.append(Band(source, target, share, tops[source], bottoms[target]))
                    tops[source] += share
                    bottoms[target] += share
        return placed

    def _totals(self, side: int) -> dict[str, float]:
        totals: dict[str, float] = {}
        for way, share in self.amounts.items():
            totals[way[side]] = totals.get(way[side], 0.0) + share
        return totals


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a grid.

    Attributes:
        label: its name.
        name: who has it.
        depth: how full it is, from 0 to 1; None if it is not known.
    """

    label: str
    name: str
    depth: float | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of equal size in order, such as slots."""

    title: str
    cells: Sequence[Cell]

    def names(self) -> Iterable[str]:
        """Return the names that are drawn, each once."""
        return dict.fromkeys(cell.name for cell in self.cells)


Picture: TypeAlias = "Strip | Bars | Flows | Grid"


# -- Tables as text, for a terminal or a file

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


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or two; a renderer breaks them into lines.

    Attributes:
        text: the sentences.
        of_rest: True if it is about rows that only a form that folds shows, which leaves it out.
        is_alarm: True if it is the first that a reader has to see, as that a plan is refused.
    """

    text: str
    of_rest: bool = False
    is_alarm: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that a renderer never breaks, and may show one by one."""

    texts: Iterable[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values, for people.

    Attributes:
        pairs: the names, each with its value.
        pictures: makes pictures of them, for a form that can draw.
    """

    pairs: Sequence[tuple[str, str]]
    pictures: Callable[[], Sequence[Picture]] = tuple


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: headings, left to right.
        rows: cells, as many per row as there are columns.
        total: cells of a last row, set apart.
        narrow: a narrower form of the table, for where this one does not fit.
        whole: the table with the rows that `rows` leaves out, for a form that folds.
        pictures: makes pictures of it, for a form that can draw.
    """

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[object]]
    total: Sequence[object] = ()
    narrow: Table | None = None
    whole: Table | None = None
    pictures: Callable[[], Sequence[Picture]] = tuple

    @classmethod
    def of(
        cls,
        kind: type,
        rows: Iterable[Any],
        *,
        headings: Mapping[str, str] | None = None,
        most: int | None = None,
        total: bool = False,
        skip: int = 0,
    ) -> Table:
        """Return a table with a row for each result.

        Args:
            kind: the dataclass of the results.
            rows: the results.
            headings: the headings of columns that are not those of the dataclass, by the names of the fields.
            most: the number of rows that are shown; None for all.
            total: whether a last row has the sums.
            skip: the number of columns that are left out at the left.
        """
        rows = list(rows)
        headings = headings or {}
        seen = [
            column
            for column in columns_of(kind)
            if column.how.label is not None
            and not (column.how.sparse and all(is_empty(column.value_of(row)) for row in rows))
        ][skip:]
        sums: list[object] = ["all"]
        for column in seen[1:]:
            figures = [column.value_of(row) for row in rows]
            if not column.how.summed:
                sums.append("")
            elif None in figures:  # the sum of the others would be too small
                sums.append("-")
            else:
                sums.append(sum(figures))
        return cls(
            [
                TableColumn(headings.get(column.name, column.how.label or ""), column.how.number)
                for column in seen
            ],
            [[column.how.form(column.value_of(row)) for column in seen] for row in rows[:most]],
            sums if total else (),
        )


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading.

    Attributes:
        title: the heading; empty: people see the parts without one.
        parts: the parts below it.
        folded: whether Markdown shows only the heading until the reader unfolds it.
        needs_folding: True if a form that cannot fold leaves it out.
    """

    title: str
    parts: Sequence[Block]
    folded: bool = False
    needs_folding: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """The text of a file. It is written unchanged, except for control characters on a terminal."""

    text: str


#: What people see of a document.
Block: TypeAlias = "Line | Lines | Facts | Table | Section | Verbatim"


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric with its values.

    Attributes:
        name: its name, of ``[a-zA-Z_:][a-zA-Z0-9_:]*``.
        help: its description, with its unit.
        samples: labels and value, one for each set of labels. The value of a label may be of any type; its text is shown.
        only_grows: whether it is a counter.
    """

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, object], float]]
    only_grows: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A result.

    Attributes:
        name: the name of its format, which is ``rabbit-chx/NAME`` in JSON; empty: the JSON does not name its format.
        parts: what people see of it, in order.
        result: what programs read: a dataclass whose fields are those of the JSON; or what makes its fields, where that takes time.
        gauges: its metrics, each name once.
        title: what a page of it is called.
        about: the broker and the time, which a page shows below its title.
        lead: the sentence with which a page begins.
        change_text: makes each text of the JSON from that of the result; None: it is the same.
    """

    name: str
    parts: Sequence[Block]
    result: object = field(default_factory=dict)
    gauges: Sequence[Gauge] = ()
    title: str = ""
    about: str = ""
    lead: str = ""
    change_text: Callable[[str], str] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the document for programs, in JSON types."""
        found = to_json(self.result() if callable(self.result) else self.result)
        if self.change_text is not None:
            found = _changed_json(found, self.change_text)
        return {**(heading(self.name) if self.name else {}), **found}

    @property
    def is_determined(self) -> bool:
        """False if the result says that it depends on something which is not known."""
        return bool(getattr(self.result, "determined", True))

    def blocks(self) -> Iterator[Block]:
        """Yield what people see, in order."""
        return _blocks(self.parts)

    def with_texts(self, change: Callable[[str], str]) -> Document:
        """Return the document with each of its texts as `change` returns it; those of files stay as they are."""
        before = self.change_text
        return replace(
            self,
            parts=[_changed(part, change) for part in self.parts],
            lead=change(self.lead),
            change_text=change if before is None else lambda text: change(before(text)),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Some of many results that are shown one by one, each a row.

    Attributes:
        name: the name of the format of each.
        table: the results for people.
        results: the results for programs.
    """

    name: str
    table: Table
    results: Sequence[object] = ()

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the document of each result."""
        return (document(self.name, result) for result in self.results)


def _changed(part: Block, change: Callable[[str], str]) -> Block:
    """Return a part with its texts as `change` returns them."""
    if isinstance(part, Section):
        return replace(part, parts=[_changed(inner, change) for inner in part.parts])
    if isinstance(part, Table):
        rows = [[change(cell) if isinstance(cell, str) else cell for cell in row] for row in part.rows]
        return replace(part, rows=rows)
    if isinstance(part, Facts):
        return replace(part, pairs=[(name, change(value)) for name, value in part.pairs])
    if isinstance(part, Lines):
        return replace(part, texts=map(change, part.texts))
    return replace(part, text=change(part.text)) if isinstance(part, Line) else part


def _changed_json(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _changed_json(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_changed_json(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _blocks(parts: Iterable[Block]) -> Iterator[Block]:
    for part in parts:
        if not isinstance(part, Section):
            yield part
            continue
        inner = list(_blocks(part.parts))
        if part.title:
            yield replace(part, parts=inner)
        else:
            yield from inner


def gauges_of(kind: type, rows: Sequence[tuple[Mapping[str, object], Any]]) -> Iterator[Gauge]:
    """Yield the metrics of `rows` of a `kind`, each with its labels; a metric that no row has is left out."""
    for name, how in described(kind):
        if how.metric is not None:
            values = [
                (labels, how.metric.of(value))
                for labels, row in rows
                if (value := getattr(row, name)) is not None
            ]
            if values or not rows:
                yield Gauge(how.metric.name, how.metric.help, values, only_grows=how.metric.only_grows)

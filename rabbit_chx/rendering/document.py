"""A result as a value: a document of named parts, from which text, JSON, Markdown and metrics follow.

A part knows its name in JSON, its form for people, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from rabbit_chx.rendering.pictures import Picture
from rabbit_chx.rendering.table import TableColumn
from rabbit_chx.result_fields import (
    Shown,
    described,
    document,
    is_empty,
    json_row,
    to_json,
)


@dataclass(frozen=True, slots=True)
class Data:
    """Values that only programs read, by their names in JSON; or what makes them, where that takes time."""

    values: Mapping[str, object] | Callable[[], Mapping[str, object]]


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
    """Lines that a renderer never breaks, and may show one by one.

    Attributes:
        texts: the lines.
        key: their name in JSON; None: only people read them.
    """

    texts: Iterable[str]
    key: str | None = None


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
        columns: headings, left to right; without columns only programs read the table.
        rows: cells, as many per row as there are columns.
        total: cells of a last row, set apart.
        narrow: a narrower form of the table, for where this one does not fit.
        whole: the table with the rows that `rows` leaves out, for a form that folds.
        key: its name in JSON; None: only people read it.
        value: makes its value in JSON.
        pictures: makes pictures of it, for a form that can draw.
    """

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[object]]
    total: Sequence[object] = ()
    narrow: Table | None = None
    whole: Table | None = None
    key: str | None = None
    value: Callable[[], Any] = list
    pictures: Callable[[], Sequence[Picture]] = tuple

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Shown] | type,
        rows: Iterable[Any],
        *,
        key: str | None = None,
        most: int | None = None,
        total: bool = False,
        skip: int = 0,
    ) -> Table:
        """Return a table with a row for each result.

        Args:
            columns: the columns by name, or the dataclass of the results.
            rows: the values of each row, one for each column; or results of the dataclass.
            key: the name in JSON.
            most: the number of rows that people see; None for all.
            total: whether a last row has the sums.
            skip: the number of columns that are left out at the left.
        """
        if isinstance(columns, type):
            named = described(columns)
            cells = [[getattr(row, name) for name, _ in named] for row in rows]
        else:
            named = tuple(columns.items())
            cells = list(map(list, rows))
        seen = [
            at
            for at, (_, how) in enumerate(named)
            if how.label is not None and not (how.sparse and all(is_empty(row[at]) for row in cells))
        ][skip:]
        sums: list[object] = ["all"]
        for at in seen[1:]:
            figures = [row[at] for row in cells]
            if not named[at][1].summed:
                sums.append("")
            elif None in figures:  # the sum of the others would be too small
                sums.append("-")
            else:
                sums.append(sum(figures))
        return cls(
            [TableColumn(named[at][1].label or "", named[at][1].number) for at in seen],
            [[named[at][1].form(row[at]) for at in seen] for row in cells[:most]],
            sums if total else (),
            key=key,
            value=lambda: [json_row(named, row) for row in cells],
        )

    def for_people(self, reason: object) -> Table:
        """Return the table; without columns, so that only programs read it, if there is no `reason`: it is False, None or empty."""
        return self if reason else replace(self, columns=())


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading.

    Attributes:
        title: the heading; empty: people see the parts without one.
        parts: the parts below it.
        folded: whether Markdown shows only the heading until the reader unfolds it.
        needs_folding: True if a form that cannot fold leaves it out.
        key: the name in JSON of an object of the parts; None: they are those of the document itself.
    """

    title: str
    parts: Sequence[Part]
    folded: bool = False
    needs_folding: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Verbatim:
    """The text of a file. It is written unchanged, except for control characters on a terminal."""

    text: str


#: What people see of a document.
Block: TypeAlias = "Line | Lines | Facts | Table | Section | Verbatim"
Part: TypeAlias = "Block | Data"


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
        parts: its parts, in the order of both people and programs.
        gauges: its metrics, each name once.
        title: what a page of it is called.
        about: the broker and the time, which a page shows below its title.
        lead: the sentence with which a page begins.
    """

    name: str
    parts: Sequence[Part]
    gauges: Sequence[Gauge] = ()
    title: str = ""
    about: str = ""
    lead: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the document for programs, in JSON types."""
        fields = _fields(self.parts)
        found: dict[str, Any] = document(self.name, **fields) if self.name else to_json(fields)
        return found

    @property
    def is_determined(self) -> bool:
        """False if a part says that it depends on something which is not known."""
        return _is_determined(self.parts)

    def blocks(self) -> Iterator[Block]:
        """Yield what people see, in order."""
        return _blocks(self.parts)

    def with_texts(self, change: Callable[[str], str]) -> Document:
        """Return the document with each of its texts as `change` returns it; those of files stay as they are."""
        return replace(self, parts=[_changed(part, change) for part in self.parts], lead=change(self.lead))


@dataclass(frozen=True, slots=True)
class Batch:
    """Some of many results that are shown one by one, each a row.

    Attributes:
        name: the name of the format of each.
        table: the results; its value in JSON is a list of their fields.
        shared: fields that all have, the last in JSON.
    """

    name: str
    table: Table
    shared: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the document of each result."""
        return (document(self.name, **fields, **self.shared) for fields in self.table.value())


def _fields(parts: Iterable[Part]) -> dict[str, object]:
    found: dict[str, object] = {}
    for part in parts:
        if isinstance(part, Data):
            found |= part.values() if callable(part.values) else part.values
        elif isinstance(part, Section):
            inner = _fields(part.parts)
            found |= inner if part.key is None else {part.key: inner}
        elif isinstance(part, Table) and part.key is not None:
            found[part.key] = part.value()
        elif isinstance(part, Lines) and part.key is not None:
            found[part.key] = list(part.texts)
    return found


def _is_determined(parts: Iterable[Part]) -> bool:
    return all(
        _is_determined(part.parts)
        if isinstance(part, Section)
        else not isinstance(part, Data) or callable(part.values) or part.values.get("determined", True)
        for part in parts
    )


def _changed(part: Part, change: Callable[[str], str]) -> Part:
    """Return a part with its texts as `change` returns them."""
    if isinstance(part, Data):
        return _changed_data(part, change)
    if isinstance(part, Section):
        return replace(part, parts=[_changed(inner, change) for inner in part.parts])
    if isinstance(part, Table):
        rows = [[change(cell) if isinstance(cell, str) else cell for cell in row] for row in part.rows]
        return replace(part, rows=rows, value=lambda: _changed_json(to_json(part.value()), change))
    if isinstance(part, Facts):
        return replace(part, pairs=[(name, change(value)) for name, value in part.pairs])
    if isinstance(part, Lines):
        return replace(part, texts=map(change, part.texts))
    return replace(part, text=change(part.text)) if isinstance(part, Line) else part


def _changed_data(data: Data, change: Callable[[str], str]) -> Data:
    make = data.values
    if callable(make):
        return Data(lambda: _changed_json(to_json(make()), change))
    return Data(_changed_json(to_json(make), change))


def _changed_json(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _changed_json(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_changed_json(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _blocks(parts: Iterable[Part]) -> Iterator[Block]:
    for part in parts:
        if isinstance(part, Data) or (isinstance(part, Table) and not part.columns):
            continue
        if isinstance(part, Section):
            inner = list(_blocks(part.parts))
            if part.title:
                yield replace(part, parts=inner)
            else:
                yield from inner
        else:
            yield part


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

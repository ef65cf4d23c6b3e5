"""The parts of a result that people read: lines, facts, tables, sections. A renderer decides how they look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from rabbit_chx.rendering.table import TableColumn


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or two; a renderer breaks them into lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that a renderer never breaks, and may show one by one as they come."""

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
        narrow: a table that says the same in less width, for where this table does not fit; None for none.
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
        blocks: what is below it.
        folded: whether Markdown shows only the heading until the reader unfolds it.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """The text of a file. It is written as it is, but for what would drive a terminal.

    Attributes:
        text: the text.
    """

    text: str


Block: TypeAlias = "Line | Lines | Facts | Table | Section | Verbatim"


class Report(Protocol):
    """A result that can be shown: to people as blocks, to programs as JSON."""

    def blocks(self) -> Iterable[Block]:
        """Return what people read, in order."""

    def as_json(self) -> dict[str, Any]:
        """Return what programs read, in JSON's own types."""

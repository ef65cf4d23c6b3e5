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

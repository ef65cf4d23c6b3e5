"""The parts of a result that people read: lines, facts, tables, figures, sections. A renderer decides how they look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from rabbit_chx.rendering.figures import Drawing
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
        folded: whether a page shows only the heading until somebody asks for more.
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


@dataclass(frozen=True, slots=True)
class Figure:
    """A table, and on a page the picture of its numbers.

    Attributes:
        title: what the picture shows, in a few words.
        words: what to see in it, in a sentence.
        drawing: the picture.
        numbers: the table. A text has it in the place of the figure.
        page_only: whether a text has nothing in its place, as the numbers are elsewhere in it.
    """

    title: str
    words: str
    drawing: Drawing
    numbers: Table
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Ways:
    """Alternatives, of which a page shows one at a time.

    Attributes:
        title: the heading.
        words: what to see, in a sentence.
        ways: the name of each, and its blocks; only a page asks for them.
        numbers: what a text has in their place; None for nothing.
    """

    title: str
    words: str
    ways: Iterable[tuple[str, Iterable[Block]]]
    numbers: Table | None = None


TextBlock: TypeAlias = "Line | Lines | Facts | Table | Section | Verbatim"
Block: TypeAlias = "TextBlock | Figure | Ways"


def in_text(blocks: Iterable[Block]) -> Iterator[TextBlock]:
    """Yield what a text has of blocks: of a figure its numbers.

    Args:
        blocks: the blocks.
    """
    for block in blocks:
        if not isinstance(block, Figure | Ways):
            yield block
        elif block.numbers and not (isinstance(block, Figure) and block.page_only):
            yield block.numbers


class Report(Protocol):
    """A result that can be shown: to people as blocks, to programs as JSON."""

    def blocks(self) -> Iterable[Block]:
        """Return what people read, in order."""

    def as_json(self) -> dict[str, Any]:
        """Return what programs read, in JSON's own types."""

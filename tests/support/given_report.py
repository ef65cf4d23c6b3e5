"""A report of given blocks, and what people read of a report."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.rendering import Block, ConsoleOutput, Report


@dataclass(frozen=True, slots=True)
class Given:
    """A report of given blocks, whose document says how many there are."""

    given: Sequence[Block] = ()
    second: str = "b"

    def blocks(self) -> Iterable[Block]:
        """The given."""
        return self.given

    def as_json(self) -> dict[str, Any]:
        """How many."""
        return {"é": len(self.given)}

    def as_row(self) -> list[tuple[str, str]]:
        """Two fields, with a tab and a bar in the first."""
        return [("key", "a\t|"), ("to", self.second)]


def console_text(report: Report, width: int = 200) -> str:
    """Return a report as the console shows it, so many columns wide."""
    stream = io.StringIO()
    ConsoleOutput(stream, width).show(report)
    return stream.getvalue()

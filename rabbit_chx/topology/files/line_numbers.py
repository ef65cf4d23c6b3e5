"""On which line of a topology file a field is, found by its headings: ``tomllib`` does not tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["line_of"]

_HEADING = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_KEY = re.compile(r"""\s*(?:\[\s*\w+\s*\.\s*)?["']?([\w-]+)["']?\s*(?:=|\.|\])""")
_PATH = re.compile(r"(\w+)(?:\[(\d+)\])?(?:\.([\w-]+))?(?:\[(\d+)\])?")


def line_of(path: str, lines: list[str], document: Mapping[str, Any]) -> int | None:
    """Return the number of the line, counted from 1; None where it cannot be found.

    Args:
        path: the field's path, such as ``exchanges[2].ring[0].weight``.
        lines: the lines of the file.
        document: what they say.
    """
    match = _PATH.match(path)
    if match is None:
        return None
    table, index, key, item = match.groups()
    if index is None:
        end = next((n for n, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
        return _key_line(table, lines, 0, end) or _first_heading(table, lines)
    headings = [n for n, line in enumerate(lines) if (found := _HEADING.match(line)) and found[1] == table]
    entries = document.get(table)
    if not isinstance(entries, list) or len(headings) != len(entries):
        return None
    start = headings[int(index)]
    end = next((n for n in range(start + 1, len(lines)) if _HEADING.match(lines[n])), len(lines))
    at = _key_line(key, lines, start + 1, end) if key else None
    if at is None:
        return start + 1
    return at if item is None else _item_line(int(item), lines, at, end, entries[int(index)].get(key))


def _first_heading(table: str, lines: list[str]) -> int | None:
    heading = re.compile(rf"\s*\[+\s*{re.escape(table)}\b")
    return next((n + 1 for n, line in enumerate(lines) if heading.match(line)), None)


def _key_line(key: str, lines: list[str], start: int, end: int) -> int | None:
    return next(
        (n + 1 for n in range(start, end) if (found := _KEY.match(lines[n])) and found[1] == key), None
    )


def _item_line(item: int, lines: list[str], at: int, end: int, items: Any) -> int:  # noqa: ANN401
    """Return the line of an item of a list, if each is on a line of its own; else that of the list."""
    own = []
    for n in range(at, end):
        if _KEY.match(lines[n]):
            break
        if lines[n].lstrip().startswith("{"):
            own.append(n + 1)
    return own[item] if isinstance(items, list) and len(own) == len(items) else at

"""Where each value is in the text of a TOML file, which ``tomllib`` does not tell. For text that ``tomllib`` has read."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Span", "ValuePath", "value_spans"]

#: The way to a value: names of tables and keys, and numbers within arrays.
ValuePath: TypeAlias = "tuple[str | int, ...]"

_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_BLANK = re.compile(r"(?:[\s\ufeff]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n\r]*[^,\]}#\n\r\s]")


class Span(NamedTuple):
    """A part of a text.

    Attributes:
        start: where it begins.
        end: where it has ended.
    """

    start: int
    end: int


def value_spans(text: str) -> Mapping[ValuePath, Span]:
    """Return where each value is: of a key, and of an item of an array.

    Args:
        text: the text of the file, without mistakes.
    """
    return _Scanner(text).spans


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.spans: dict[ValuePath, Span] = {}
        self._counts: dict[ValuePath, int] = {}
        table: ValuePath = ()
        while self._blank():
            if self._found("[["):
                table = self._next_of_array(self._key())
                self._at += len("]]")
            elif self._found("["):
                table = self._resolved(self._key())
                self._at += len("]")
            else:
                self._pair(table)

    def _found(self, mark: str) -> bool:
        if self._text.startswith(mark, self._at):
            self._at += len(mark)
            return True
        return False

    def _blank(self) -> bool:
        """Skip blanks and comments; return whether there is more."""
        self._skip(_BLANK)
        return self._at < len(self._text)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"this is not TOML, at character {self._at}")
        self._at = found.end()
        return found.group()

    def _key(self) -> ValuePath:
        """Return a key, which may have dots."""
        parts = []
        while True:
            self._skip(_SPACE)
            if self._text[self._at] in "\"'":
                parts.append(str(tomllib.loads(f"x = {self._skip(_STRING)}")["x"]))
            else:
                parts.append(self._skip(_BARE))
            self._skip(_SPACE)
            if not self._found("."):
                return tuple(parts)

    def _next_of_array(self, key: ValuePath) -> ValuePath:
        """Return the path of a table that a heading with double brackets begins."""
        array = (*self._resolved(key[:-1]), key[-1])
        self._counts[array] = self._counts.get(array, -1) + 1
        return (*array, self._counts[array])

    def _resolved(self, key: ValuePath) -> ValuePath:
        """Return the path of a heading: of an array of tables, its last one is meant."""
        path: ValuePath = ()
        for part in key:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _pair(self, table: ValuePath) -> None:
        key = self._key()
        self._at += len("=")
        self._value((*table, *key))

    def _value(self, path: ValuePath) -> None:
        self._skip(_SPACE)
        start = self._at
        if self._found("["):
            self._array(path)
        elif self._found("{"):
            self._inline_table(path)
        elif self._text[start] in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_SCALAR)
        self.spans[path] = Span(start, self._at)

    def _array(self, path: ValuePath) -> None:
        count = 0
        while True:
            self._blank()
            if self._found("]"):
                return
            if not self._found(","):
                self._value((*path, count))
                count += 1

    def _inline_table(self, path: ValuePath) -> None:
        while True:
            self._blank()
            if self._found("}"):
                return
            if not self._found(","):
                self._pair(path)

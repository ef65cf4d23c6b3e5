"""Other orders of rings, written into the text of a topology file. Everything else stays as it is, to the byte.

``tomllib`` does not tell where a value is, so this finds it, in text that ``tomllib`` has read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rabbit_chx.topology.fields import FileEntry, read_document
from rabbit_chx.topology.objects import FILE
from rabbit_chx.topology.toml_file import member_texts, members_text

if TYPE_CHECKING:
    from rabbit_chx.topology.objects import RingMember

__all__ = ["rearranged"]

_EXCHANGE_PATH = re.compile(r"exchanges\[([0-9]+)\]")
_MEMBER_PATH = re.compile(r"exchanges\[[0-9]+\]\.ring\[([0-9]+)\]")
#: What may be on the line of a member behind it, and on lines of their own before it.
_BEHIND = re.compile(r"(?:[ \t]*(,))?([ \t]*(?:#[^\n]*)?\r?)")
_BEFORE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*")

Order = Sequence["RingMember"]
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


@dataclass(frozen=True, slots=True)
class RingText:
    """The text of a file with other orders.

    Attributes:
        text: the text.
        unwritten: the exchanges whose order could not be written: one entry stands for several exchanges, and they need
            different orders.
        uncommented: the exchanges from whose ring a comment is gone.
    """

    text: str
    unwritten: tuple[str, ...] = ()
    uncommented: tuple[str, ...] = ()


class _Item(NamedTuple):
    """An item of a ring as it is written, and the members that it stands for."""

    span: Span
    members: tuple[RingMember, ...]


class _Line(NamedTuple):
    """An item on a line of its own: what is before it, and what is behind its comma."""

    before: str
    item: str
    behind: str


def rearranged(text: str, orders: Mapping[str, Order]) -> RingText:
    """Return the text of a topology file with the members of some rings in another order.

    A member keeps its text, and the comments on its line and above it. Only a range that the order takes apart is written
    anew.

    Args:
        text: the file's text, without mistakes.
        orders: the members in their new order, by the name of the exchange.
    """
    spans = value_spans(text)
    entries: dict[int, list[FileEntry]] = {}
    for entry in read_document(tomllib.loads(text.removeprefix("\ufeff")), FILE).exchanges:
        found = _EXCHANGE_PATH.fullmatch(entry.path)
        if found is not None and entry.value.ring is not None:
            entries.setdefault(int(found[1]), []).append(entry)
    unwritten: list[str] = []
    uncommented: list[str] = []
    parts: list[tuple[Span, str]] = []
    for number, alike in entries.items():
        changed = [name for entry in alike if _differs(entry, orders.get(name := entry.value.name))]
        wanted = {tuple(orders.get(entry.value.name, entry.value.ring)) for entry in alike}
        if not changed:
            continue
        if len(wanted) > 1:
            unwritten += changed
            continue
        path: ValuePath = ("exchanges", number, "ring")
        new, kept = _ring(text, spans[path], _items(alike[0], spans, path), wanted.pop())
        parts.append((spans[path], new))
        uncommented += [] if kept else changed
    for span, new in sorted(parts, reverse=True):
        text = text[: span.start] + new + text[span.end :]
    return RingText(text, tuple(unwritten), tuple(uncommented))


def _differs(entry: FileEntry, order: Order | None) -> bool:
    return order is not None and tuple(order) != entry.value.ring


def _items(entry: FileEntry, spans: Mapping[ValuePath, Span], path: ValuePath) -> list[_Item]:
    members: dict[int, list[RingMember]] = {}
    for member in entry.members:
        found = _MEMBER_PATH.fullmatch(member.path)
        if found is not None:
            members.setdefault(int(found[1]), []).append(member.value)
    return [_Item(spans[*path, number], tuple(of_item)) for number, of_item in members.items()]


def _ring(text: str, span: Span, items: list[_Item], order: Order) -> tuple[str, bool]:
    """Return the text of the ring in the order, and whether all comments are kept."""
    pieces = list(_pieces(items, order))
    if (lines := _lines(text, span, items)) is not None:
        return _on_lines(text, span, items[-1].span.end, lines, pieces), _keeps_comments(lines, pieces)
    texts = [text[slice(*items[one].span)] if isinstance(one, int) else one for one in pieces]
    if len(texts) == len(items):  # each takes a place that is there, with whatever is between the places
        done, at = [], span.start
        for item, new in zip(items, texts, strict=True):
            done += [text[at : item.span.start], new]
            at = item.span.end
        return "".join([*done, text[at : span.end]]), True
    newline = "\r\n" if "\r\n" in text else "\n"
    return members_text(texts).replace("\n", newline), "#" not in _between(text, span, items)


def _pieces(items: Sequence[_Item], order: Order) -> Iterator[int | str]:
    """Yield the number of an item where the order has all its members together, else the text of a new one."""
    first = {item.members[0]: number for number, item in enumerate(items) if item.members}
    alone: list[RingMember] = []
    at = 0
    while at < len(order):
        number = first.get(order[at])
        size = 0 if number is None else len(items[number].members)
        if number is not None and tuple(order[at : at + size]) == items[number].members:
            yield from member_texts(alone)
            alone.clear()
            yield number
            at += size
        else:
            alone.append(order[at])
            at += 1
    yield from member_texts(alone)


def _lines(text: str, span: Span, items: Sequence[_Item]) -> list[_Line] | None:
    """Return the items with what is around them, if each has a line of its own."""
    lines: list[_Line] = []
    at = span.start + 1
    for number, item in enumerate(items):
        last = number == len(items) - 1
        until = span.end - 1 if last else items[number + 1].span.start
        if number == 0:
            head, newline, before = text[at : item.span.start].partition("\n")
            if not newline or not _BEHIND.fullmatch(head):
                return None
        rest, newline, after = text[item.span.end : until].partition("\n")
        behind = _BEHIND.fullmatch(rest)
        if not newline or behind is None or _BEFORE.fullmatch(before) is None:
            return None
        lines.append(_Line(before, text[slice(*item.span)], behind[2]))
        before = after
    return lines or None


def _on_lines(text: str, span: Span, end: int, lines: Sequence[_Line], pieces: Sequence[int | str]) -> str:
    """Return the ring with its items in another order; the last one of the text has ended at `end`."""
    inner = text[span.start + 1 : span.end - 1]
    head = inner.partition("\n")[0]
    indent = lines[0].before.rpartition("\n")[2]
    return_ = "\r" if "\r\n" in inner else ""
    new = [lines[one] if isinstance(one, int) else _Line(indent, one, return_) for one in pieces]
    last, _, rest = text[end : span.end - 1].partition("\n")
    ends_with_comma = last.lstrip().startswith(",")
    done = [f"[{head}\n"]
    for number, line in enumerate(new):
        comma = "," if ends_with_comma or number < len(new) - 1 else ""
        done.append(f"{line.before}{line.item}{comma}{line.behind}\n")
    return "".join([*done, rest, "]"])


def _keeps_comments(lines: Sequence[_Line], pieces: Sequence[int | str]) -> bool:
    return not any(
        "#" in line.before or "#" in line.behind for number, line in enumerate(lines) if number not in pieces
    )


def _between(text: str, span: Span, items: Sequence[_Item]) -> str:
    """Return what is written around the items."""
    edges = [span.start, *(edge for item in items for edge in item.span), span.end]
    return "".join(text[edges[n] : edges[n + 1]] for n in range(0, len(edges), 2))


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

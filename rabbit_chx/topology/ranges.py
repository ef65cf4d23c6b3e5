"""Ranges in names: ``orders.{1..40}`` expands to forty names, and forty such names are written as a range.

- ``{1..3}`` is 1, 2, 3; ``{01..10}`` is 01, 02, ... 10: if a bound begins with 0, all numbers have the width of the longer bound.
- All ranges of one entry advance together: queue ``a.{1..4}`` with the routing key ``k.{1..4}`` is four bindings. Ranges with different
  bounds are an error; padding may differ.
- A list that is the value of a variable expands with the ranges of its entry: queue ``a.{1..3}`` with a weight of three numbers.
- ``{{1..3}}`` is the text ``{1..3}``. ``{1-3}``, ``{1:3}`` and ``{a,b}`` are an error. Other braces are plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

#: How many numbers a range may have.
MAX_RANGE = 100_000

# A range, or a probable mistake for one, such as {1-4} or a list of names.
_BRACES = re.compile(r"(\{+)([^{}]*\.\.[^{}]*|[\w.-]+(?: *, *[\w.-]+)+|[0-9]+ *[-:] *[0-9]+)(\}+)")
_BOUNDS = re.compile(r"([0-9]+)\.\.([0-9]+)")
# A longer number is text.
_NUMBER = re.compile(r"(?<![0-9])([0-9]{1,9})(?![0-9])")

Entry = Mapping[str, Any]


class RangeError(ValueError):
    """An invalid range.

    Attributes:
        field: the field of the entry.
        text: the text that contains the range.
        rule: the fault.
        remedy: the remedy.
    """

    def __init__(self, field: str, text: object, rule: str, remedy: str) -> None:
        super().__init__(f"{rule}; {remedy}")
        self.field = field
        self.text = text
        self.rule = rule
        self.remedy = remedy


class _Range(NamedTuple):
    first: int
    last: int
    width: int


#: The parts of the text of each field; of a table, the field is ``arguments.x``.
_Parts = Mapping[str, Sequence[str | _Range]]


def escape(text: str) -> str:
    """Escape a text for a field with ranges: ``{1..3}`` becomes ``{{1..3}}``."""
    return _BRACES.sub(r"{\1\2\3}", text)


def expand(entry: Entry, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries of an entry with ranges in `fields`; without a range, one. In a table, the texts directly below it count.

    Raises:
        RangeError: a range is invalid, or two ranges differ.
    """
    texts = _texts(entry, fields)
    parts = {field: _parts(field, text) for field, text in texts.items()}
    ranges = [
        (field, piece) for field, pieces in parts.items() for piece in pieces if isinstance(piece, _Range)
    ]
    if not ranges:
        return [_number(entry, parts, 0)]
    first_field, (first, last, _) = ranges[0]
    for field, piece in ranges:
        if (piece.first, piece.last) != (first, last):
            rule = f"ranges of one entry expand together, and {first_field} has {{{first}..{last}}}"
            remedy = "use the same numbers in all ranges, or write an entry for each"
            raise RangeError(field, texts[field], rule, remedy)
    return [_number(entry, parts, number) for number in range(first, last + 1)]


def fold(entries: Sequence[Entry], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return entries with ranges in `fields` that expand to exactly these entries, in this order."""
    written = [
        _with_texts(entry, {field: escape(text) for field, text in _texts(entry, fields).items()})
        for entry in entries
    ]
    result: list[dict[str, Any]] = []
    start = 0
    while start < len(written):
        run, count = _longest_run(written, start, fields)
        if count > 1 and not _expands_to(run, fields, entries[start : start + count]):
            run = written[start]
            count = 1
        result.append(run)
        start += count
    return result


def fold_names(names: Iterable[str]) -> list[str]:
    """Return the names with ranges instead of consecutive names, such as ``orders.{1..40}``."""
    return [entry["name"] for entry in fold([{"name": name} for name in names], ["name"])]


def _longest_run(written: Sequence[Entry], start: int, fields: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Return an entry with ranges for all following entries that count up together, and their number."""
    first = written[start]
    parts = _find_counting_parts(first, written[start + 1], fields) if start + 1 < len(written) else {}
    ranges = [piece for pieces in parts.values() for piece in pieces if isinstance(piece, _Range)]
    if len({piece.first for piece in ranges}) != 1:
        return dict(first), 1
    number = ranges[0].first
    # A padded number that grows wider would end its range; ranges have at most nine digits.
    limit = min(MAX_RANGE, len(written) - start, 10 ** min(piece.width or 9 for piece in ranges) - number)
    count = 1
    while count < limit and repr(written[start + count]) == repr(_number(first, parts, number + count)):
        count += 1
    if count == 1:
        return dict(first), 1
    last = number + count - 1
    return _fill(first, parts, lambda width: f"{{{number:0{width}d}..{last:0{width}d}}}"), count


def _find_counting_parts(first: Entry, second: Entry, fields: Sequence[str]) -> _Parts:
    following = _texts(second, fields)
    result: dict[str, list[str | _Range]] = {}
    for field, text in _texts(first, fields).items():
        parts = _NUMBER.split(text)
        next_parts = _NUMBER.split(following.get(field, ""))
        if len(parts) != len(next_parts):
            return {}
        pieces: list[str | _Range] = []
        for n, (part, next_part) in enumerate(zip(parts, next_parts, strict=True)):
            is_counting = n % 2 and part != next_part  # each second part is a number
            pieces.append(_Range(int(part), int(part), _width_of(part)) if is_counting else part)
        result[field] = pieces
    return result


def _width_of(number: str) -> int:
    """Return the width of a number with leading zeros, else 0."""
    has_zeros = len(number) > 1 and number[0] == "0"
    return len(number) if has_zeros else 0


def _expands_to(run: Entry, fields: Sequence[str], entries: Sequence[Entry]) -> bool:
    try:
        return repr(expand(run, fields)) == repr([dict(entry) for entry in entries])
    except RangeError:
        return False


def _fill(entry: Entry, parts: _Parts, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return an entry with the text of a range's width in the place of each range."""
    texts = {
        field: "".join(text_of(piece.width) if isinstance(piece, _Range) else piece for piece in pieces)
        for field, pieces in parts.items()
    }
    return _with_texts(entry, texts)


def _number(entry: Entry, parts: _Parts, number: int) -> dict[str, Any]:
    return _fill(entry, parts, lambda width: f"{number:0{width}d}")


def _texts(entry: Entry, fields: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for field in fields:
        value = entry.get(field)
        values = (
            {f"{field}.{name}": text for name, text in value.items()}
            if isinstance(value, Mapping)
            else {field: value}
        )
        texts |= {name: text for name, text in values.items() if isinstance(text, str)}
    return texts


def _with_texts(entry: Entry, texts: Mapping[str, str]) -> dict[str, Any]:
    result = dict(entry)
    for place, text in texts.items():
        field, in_table, name = place.partition(".")
        result[field] = {**result[field], name: text} if in_table else text
    return result


def _parts(field: str, text: str) -> list[str | _Range]:
    parts: list[str | _Range] = []
    end = 0
    for match in _BRACES.finditer(text):
        opened, inner, closed = match.groups()
        parts.append(text[end : match.start()])
        if len(opened) > 1 and len(closed) > 1:
            parts.append(match.group()[1:-1])
        else:
            parts += [opened[1:], _range(field, text, inner), closed[1:]]
        end = match.end()
    return [*parts, text[end:]]


def _range(field: str, text: str, inner: str) -> _Range:
    def refuse(rule: str, remedy: str) -> RangeError:
        return RangeError(field, text, f"{{{inner}}} {rule}", remedy)

    bounds = _BOUNDS.fullmatch(inner)
    if bounds is None:
        remedy = "write a range as {1..40}, each name of a list by itself, or literal braces as {{...}}"
        raise refuse("is not a range of integers", remedy)
    low, high = bounds.groups()
    if max(len(low), len(high)) > len(str(MAX_RANGE)) + 9:
        raise refuse("has bounds that are too large", "write smaller numbers")
    first = int(low)
    last = int(high)
    if first > last:
        raise refuse("counts down", f"write {{{high}..{low}}}, or an entry for each")
    if last - first >= MAX_RANGE:
        rule = f"expands to {last - first + 1} names, and a range has at most {MAX_RANGE}"
        raise refuse(rule, "write a smaller range")
    padded = any(len(bound) > 1 and bound[0] == "0" for bound in (low, high))
    return _Range(first, last, max(len(low), len(high)) if padded else 0)

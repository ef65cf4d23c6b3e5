"""Ranges in names: ``orders.{1..40}`` stands for forty names, and forty such names for it.

- ``{1..3}`` is 1, 2, 3; ``{01..10}`` is 01, 02, ... 10: if a bound begins with 0, all numbers are as wide as the longer
  bound.
- All ranges of one entry go together: queue ``a.{1..4}`` with the routing key ``k.{1..4}`` is four bindings. Ranges
  from or to another number are an error; padding may differ.
- ``{{1..3}}`` is the text ``{1..3}``. ``{1-3}``, ``{1,3}`` and ``{1:3}`` are an error. Other braces are text as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["MAX_RANGE", "RangeError", "escaped", "expanded", "folded"]

#: How many numbers a range may have.
MAX_RANGE = 100_000

# A range, or what was probably meant as one, such as {1-4}.
_BRACES = re.compile(r"(\{+)([^{}]*\.\.[^{}]*|[0-9]+ *[-,:] *[0-9]+)(\}+)")
_BOUNDS = re.compile(r"([0-9]+)\.\.([0-9]+)")
# A longer number is text: nobody counts so far.
_NUMBER = re.compile(r"(?<![0-9])([0-9]{1,9})(?![0-9])")
_LEAST_TO_FOLD = 2

Entry = Mapping[str, Any]
#: Where a text is in an entry: the field, and within a table the name.
_Place = tuple[str, str | None]


class RangeError(ValueError):
    """A range that stands for nothing.

    Attributes:
        field: the field of the entry that holds the range.
        text: the text that holds it.
        rule: what is wrong.
        remedy: what to write instead.
    """

    def __init__(self, field: str, text: str, rule: str, remedy: str) -> None:
        super().__init__(f"{rule}; {remedy}")
        self.field = field
        self.text = text
        self.rule = rule
        self.remedy = remedy


class _Range(NamedTuple):
    first: int
    last: int
    width: int


def escaped(text: str) -> str:
    """Return the text as it is written where ranges are read: ``{1..3}`` as ``{{1..3}}``."""
    return _BRACES.sub(r"{\1\2\3}", text)


def expanded(entry: Entry, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries that an entry with ranges stands for; without a range, one.

    Args:
        entry: the entry.
        fields: the fields that may hold ranges. In a table, the texts directly below it count.

    Raises:
        RangeError: a range is wrong, or two ranges differ.
    """
    parts = {place: _parts(place, text) for place, text in _texts(entry, fields)}
    bounds: tuple[int, int] | None = None
    first_at: tuple[_Place, str] | None = None
    for place, found in parts.items():
        for part in found:
            if not isinstance(part, _Range):
                continue
            if bounds is None or first_at is None:
                bounds, first_at = (part.first, part.last), (place, f"{{{part.first}..{part.last}}}")
            elif bounds != (part.first, part.last):
                raise RangeError(
                    _named(place),
                    _text_at(entry, place),
                    f"ranges of one entry go together, and {_named(first_at[0])} has {first_at[1]}",
                    "give all ranges the same numbers, or write one entry for each",
                )
    numbers = [0] if bounds is None else range(bounds[0], bounds[1] + 1)
    return [
        _with_texts(entry, {place: _filled(found, number) for place, found in parts.items()})
        for number in numbers
    ]


def folded(entries: Sequence[Entry], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return entries with ranges that stand for exactly these entries, in this order.

    Args:
        entries: the entries, without ranges.
        fields: the fields that may hold ranges, as in `expanded`.
    """
    written = [
        _with_texts(entry, {place: escaped(text) for place, text in _texts(entry, fields)})
        for entry in entries
    ]
    split = [
        (repr(_with_texts(entry, dict.fromkeys(texts, ""))), texts)
        for entry in written
        for texts in [{place: _NUMBER.split(text) for place, text in _texts(entry, fields)}]
    ]
    result: list[dict[str, Any]] = []
    start = 0
    while start < len(written):
        end = _end_of_run(split, start)
        run = _as_range(written[start], split[start][1], split[end - 1][1])
        if end - start < _LEAST_TO_FOLD or not _stands_for(run, fields, entries[start:end]):
            run, end = written[start], start + 1
        result.append(run)
        start = end
    return result


def _end_of_run(split: Sequence[tuple[str, Mapping[_Place, list[str]]]], start: int) -> int:
    """Return the end of the run in which the same numbers count up by one, all of them together."""
    counting: frozenset[tuple[_Place, int]] | None = None
    end = start
    while end + 1 < len(split) and end + 1 - start < MAX_RANGE:
        found = _counting(split[end], split[end + 1])
        if not found or counting not in (None, found):
            break
        if not all(
            _same_padding(split[start][1][place][n], split[end + 1][1][place][n]) for place, n in found
        ):
            break
        counting = found
        end += 1
    return end + 1


def _same_padding(first: str, other: str) -> bool:
    """Return whether a range from the first to the other number writes both as they are."""
    if len(first) > 1 and first.startswith("0"):
        return len(other) == len(first)
    return not (len(other) > 1 and other.startswith("0"))


def _counting(
    one: tuple[str, Mapping[_Place, list[str]]], two: tuple[str, Mapping[_Place, list[str]]]
) -> frozenset[tuple[_Place, int]] | None:
    """Return the places of the numbers that are one more in the second entry; None if anything else differs."""
    if one[0] != two[0] or one[1].keys() != two[1].keys():
        return None
    places = set()
    values = set()
    for place, parts in one[1].items():
        others = two[1][place]
        if len(parts) != len(others):
            return None
        for n, (part, other) in enumerate(zip(parts, others, strict=True)):
            if part != other:
                if not n % 2 or int(other) != int(part) + 1:
                    return None
                places.add((place, n))
                values.add(int(part))
    return frozenset(places) if len(values) == 1 else None


def _as_range(
    entry: Entry, first: Mapping[_Place, list[str]], last: Mapping[_Place, list[str]]
) -> dict[str, Any]:
    return _with_texts(
        entry,
        {
            place: "".join(
                part if part == other else f"{{{part}..{other}}}"
                for part, other in zip(parts, last[place], strict=True)
            )
            for place, parts in first.items()
        },
    )


def _stands_for(run: Entry, fields: Sequence[str], entries: Sequence[Entry]) -> bool:
    try:
        return repr(expanded(run, fields)) == repr([dict(entry) for entry in entries])
    except RangeError:
        return False


def _texts(entry: Entry, fields: Sequence[str]) -> Iterator[tuple[_Place, str]]:
    for field in fields:
        value = entry.get(field)
        if isinstance(value, str):
            yield (field, None), value
        elif isinstance(value, Mapping):
            for name, text in value.items():
                if isinstance(text, str):
                    yield (field, name), text


def _with_texts(entry: Entry, texts: Mapping[_Place, str]) -> dict[str, Any]:
    result = dict(entry)
    for (field, name), text in texts.items():
        if name is None:
            result[field] = text
        else:
            result[field] = {**result[field], name: text}
    return result


def _text_at(entry: Entry, place: _Place) -> str:
    field, name = place
    return str(entry[field] if name is None else entry[field][name])


def _named(place: _Place) -> str:
    field, name = place
    return field if name is None else f"{field}.{name}"


def _parts(place: _Place, text: str) -> list[str | _Range]:
    """Return the text and the ranges that a text consists of, braces undone."""
    parts: list[str | _Range] = []
    done = 0
    for match in _BRACES.finditer(text):
        opened, inner, closed = match.groups()
        parts.append(text[done : match.start()])
        if len(opened) > 1 and len(closed) > 1:
            parts.append(match.group()[1:-1])
        else:
            parts += [opened[1:], _range(place, text, inner), closed[1:]]
        done = match.end()
    return [*parts, text[done:]]


def _range(place: _Place, text: str, inner: str) -> _Range:
    bounds = _BOUNDS.fullmatch(inner)
    if bounds is None:
        raise RangeError(
            _named(place),
            text,
            f"{{{inner}}} is not a range of whole numbers",
            "write a range as {1..40}, or {{...}} for the text itself",
        )
    low, high = bounds.groups()
    if max(len(low), len(high)) > len(str(MAX_RANGE)) + 9:
        raise RangeError(
            _named(place), text, f"{{{inner}}} has bounds that are too large", "give smaller numbers"
        )
    first, last = int(low), int(high)
    if first > last:
        raise RangeError(
            _named(place), text, f"{{{inner}}} counts down", f"write {{{high}..{low}}}, or one entry for each"
        )
    if last - first >= MAX_RANGE:
        raise RangeError(
            _named(place),
            text,
            f"{{{inner}}} stands for {last - first + 1} names, and a range has at most {MAX_RANGE}",
            "give a smaller range",
        )
    padded = any(len(bound) > 1 and bound[0] == "0" for bound in (low, high))
    return _Range(first, last, max(len(low), len(high)) if padded else 0)


def _filled(parts: Sequence[str | _Range], number: int) -> str:
    return "".join(f"{number:0{part.width}d}" if isinstance(part, _Range) else part for part in parts)

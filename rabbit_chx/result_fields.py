"""Results that declare their fields once: columns, facts, JSON and metrics follow from the declaration.

`rabbit_chx.rendering` makes the tables and metrics. It is not loaded here, since Spark's executors load results. A result is a frozen dataclass, and `shown` is the metadata of a field::

    @dataclass(frozen=True, slots=True)
    class QueueRow:
        name: str = field(metadata=shown("queue"))                             # column "queue", "name" in JSON
        type: str                                                              # only in JSON
        ready: int | None = field(metadata=shown("ready", number=True))        # a dash in the table, null in JSON
        consumers: int = field(metadata=shown("consumers", number=True, json=None))   # only in the table
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

#: The name in JSON of a field whose members become fields of the object itself.
SPREAD = "**"
_KEY = "shown"


class Metric(NamedTuple):
    """A metric of a field: its name, its description, and its value by that of the field."""

    name: str
    help: str
    of: Callable[[Any], float] = lambda value: value


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field is shown; `shown` describes it."""

    label: str | None = None
    form: Callable[[Any], object] = lambda value: value
    number: bool = False
    summed: bool = False
    json: str | None = ""
    as_json: Callable[[Any], Any] = lambda value: value
    optional: bool = False
    sparse: bool = False
    metric: Metric | None = None


_PLAIN = Shown()


def or_dash(value: object) -> object:
    """Return `value` for a table; a dash if it is not known."""
    return "-" if value is None else value


def shown(
    label: str | None = None,
    form: Callable[[Any], object] = or_dash,
    *,
    number: bool = False,
    summed: bool = False,
    json: str | None = "",
    as_json: Callable[[Any], Any] = _PLAIN.as_json,
    optional: bool = False,
    sparse: bool = False,
    metric: Metric | None = None,
) -> dict[str, Shown]:
    """Return the metadata of a dataclass field.

    Args:
        label: the heading of its column, or the name of its fact; None: only programs see it.
        form: its form for people.
        number: whether it is aligned as a number.
        summed: whether the last row of a table has the sum.
        json: its name in JSON; empty for that of the field, None to leave it out, `SPREAD` for an object whose members take its place.
        as_json: its form in JSON.
        optional: whether JSON and facts leave it out while it is None or empty.
        sparse: whether a table leaves its column out if no row has a value.
        metric: its metric.
    """
    return {_KEY: Shown(label, form, number, summed, json, as_json, optional, sparse, metric)}


@cache
def described(kind: Any) -> tuple[tuple[str, Shown], ...]:
    """Return the fields of a dataclass of results, each with its description."""
    return tuple((field.name, field.metadata.get(_KEY, _PLAIN)) for field in fields(kind))


def is_empty(value: object) -> bool:
    """Return whether a field of a result holds nothing."""
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def facts_of(result: Any) -> list[tuple[str, str]]:
    """Return the names and values of the fields of `result` that have a label; an optional field only if it has a value."""
    return [
        (how.label, str(how.form(value)))
        for name, how in described(result.__class__)
        if how.label is not None and not (is_empty(value := getattr(result, name)) and how.optional)
    ]


def json_fields(result: Any) -> dict[str, Any]:
    """Return the fields of `result` by their names in JSON; their values may be results themselves."""
    found: dict[str, Any] = {}
    for name, how in described(result.__class__):
        value = getattr(result, name)
        if how.json == SPREAD:
            found |= how.as_json(value)
        elif how.json is not None and not (how.optional and is_empty(value)):
            found[how.json or name] = how.as_json(value)
    return found

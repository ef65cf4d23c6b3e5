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

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, ParamSpec

#: The name in JSON of a field whose members become fields of the object itself.
SPREAD = "**"
_KEY = "shown"
_P = ParamSpec("_P")
#: The versions of the formats of documents that lost a field since version 1.
_VERSIONS = dict.fromkeys(("apply", "arrange", "check", "group", "plan", "repair"), 2) | {
    "compare": 3,
    "verify": 3,
}


class Metric(NamedTuple):
    """A metric of a field: its name, its description as a sentence, its value by that of the field, and whether it is a counter."""

    name: str
    help: str
    of: Callable[[Any], float] = lambda value: value
    only_grows: bool = False


def or_dash(value: object) -> object:
    """Return `value` for a table; a dash if it is not known."""
    return "-" if value is None else value


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field of a result, or a column of a table, is shown.

    Attributes:
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

    label: str | None = None
    form: Callable[[Any], object] = or_dash
    _: KW_ONLY
    number: bool = False
    summed: bool = False
    json: str | None = ""
    as_json: Callable[[Any], Any] = _same
    optional: bool = False
    sparse: bool = False
    metric: Metric | None = None


def _metadata_of(declare: Callable[_P, Shown]) -> Callable[_P, dict[str, Shown]]:
    return lambda *args, **kwargs: {_KEY: declare(*args, **kwargs)}


#: Makes the metadata of a dataclass field; the arguments are those of `Shown`.
shown = _metadata_of(Shown)
_PLAIN = Shown()


@cache
def described(kind: Any) -> tuple[tuple[str, Shown], ...]:
    """Return the fields of a dataclass of results, each with its description."""
    return tuple((field.name, field.metadata.get(_KEY, _PLAIN)) for field in fields(kind))


def is_empty(value: object) -> bool:
    """Return whether a field of a result holds nothing."""
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def json_fields(result: Any) -> dict[str, Any]:
    """Return the fields of `result` by their names in JSON; their values may be results themselves."""
    columns = described(result.__class__)
    return json_row(columns, [getattr(result, name) for name, _ in columns])


def json_row(columns: Sequence[tuple[str, Shown]], values: Sequence[object]) -> dict[str, Any]:
    """Return values by the names of their columns in JSON."""
    found: dict[str, Any] = {}
    for (name, how), value in zip(columns, values, strict=True):
        if how.json == SPREAD:
            found |= how.as_json(value)
        elif how.json is not None and not (how.optional and is_empty(value)):
            found[how.json or name] = how.as_json(value)
    return found


def to_json(value: Any) -> Any:
    """Return a value in JSON types.

    A named tuple becomes an object, a dataclass one of its fields as they are `shown`, or of its own `as_json`. A ring or a plan is in the format of its
    own `to_json`. A destination is as in the JSON of a ring: text is a queue, null is no destination.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "to_json"):
        return json.loads(value.to_json())
    if hasattr(value, "as_json"):
        value = value.as_json()
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = json_fields(value)
    if isinstance(value, Mapping):
        return {name: to_json(inner) for name, inner in value.items()}
    return list(map(to_json, value)) if isinstance(value, list | tuple) else value


def document(name: str, /, **parts: object) -> dict[str, Any]:
    """Return a JSON document of the format ``rabbit-chx/NAME`` with these fields."""
    return {"format": f"rabbit-chx/{name}", "format_version": _VERSIONS.get(name, 1), **to_json(parts)}

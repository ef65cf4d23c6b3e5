"""Results that declare their fields once: columns, facts, JSON, its schema and metrics follow from the declaration.

`rabbit_chx.rendering` makes the tables and metrics; it is not loaded here, since Spark's executors load results. `tools/output_schemas.py` makes the
JSON Schema, from the types of the fields and the section "Attributes" of the docstring. A result is a frozen dataclass, and `shown` is the metadata of a
field::

    @dataclass(frozen=True, slots=True)
    class QueueRow:
        name: str = field(metadata=shown("queue"))                             # column "queue", "name" in JSON
        type: str                                                              # only in JSON
        ready: int | None = field(metadata=shown("ready", number=True))        # a dash in the table, null in JSON
        consumers: int = field(metadata=shown("consumers", number=True, json=None))   # only in the table
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, ParamSpec

_KEY = "shown"
_P = ParamSpec("_P")
#: The versions of the formats of documents that lost a field since version 1.
_VERSIONS = dict.fromkeys(("apply", "arrange", "check", "group", "plan", "repair"), 2) | {
    "compare": 3,
    "verify": 3,
}


class Absent(Enum):
    """The value of a field that JSON leaves out, where null would mean something else."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


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
        json: its name in JSON; empty for that of the field, None to leave it out.
        as_json: its form in JSON. If that has another type than the field, it is a function that is annotated with it.
        optional: whether JSON and facts leave it out while it is None or empty.
        sparse: whether a table leaves its column out if no row has a value.
        metric: its metric.
        group: the type of a value whose fields take the place of this one, in tables and in JSON: a result, or a `TypedDict` of JSON alone. A value of
            None has no fields.
        values: the possible texts, each with what it means; empty for any.
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
    group: Any = None
    values: Mapping[str, str] = field(default_factory=dict)


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


class Column(NamedTuple):
    """A field of the rows of a table, also one of a group: how it is read from a row, and how it is shown."""

    name: str
    value_of: Callable[[Any], Any]
    how: Shown


@cache
def columns_of(kind: Any) -> tuple[Column, ...]:
    """Return the fields of a dataclass of rows, with those of its groups in their place."""
    return tuple(_columns(kind, ""))


def _columns(kind: Any, prefix: str) -> Iterator[Column]:
    for name, how in described(kind):
        if how.group is None:
            yield Column(name, attrgetter(prefix + name), how)
        elif is_dataclass(how.group):
            yield from _columns(how.group, f"{prefix}{name}.")


def json_fields(result: Any) -> dict[str, Any]:
    """Return the fields of `result` by their names in JSON; their values may be results themselves."""
    found: dict[str, Any] = {}
    for name, how in described(result.__class__):
        value = getattr(result, name)
        if value is ABSENT or how.json is None or (how.optional and is_empty(value)):
            continue
        if how.group is None:
            found[how.json or name] = how.as_json(value)
        elif value is not None:
            group = how.as_json(value)
            found |= group if isinstance(group, Mapping) else json_fields(group)
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
    return list(map(to_json, value)) if isinstance(value, list | tuple | Iterator) else value


def heading(name: str) -> dict[str, Any]:
    """Return the first fields of a JSON document of the format ``rabbit-chx/NAME``."""
    return {"format": f"rabbit-chx/{name}", "format_version": _VERSIONS.get(name, 1)}


def document(name: str, result: object) -> dict[str, Any]:
    """Return a JSON document of the format ``rabbit-chx/NAME`` with the fields of a result."""
    return {**heading(name), **to_json(result)}

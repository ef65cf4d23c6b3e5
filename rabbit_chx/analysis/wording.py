"""Shares, counts and destinations in words and in JSON, the same in every finding and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.routing.bindings import Place

if TYPE_CHECKING:
    from rabbit_chx.analysis.findings import Finding

_LEAST_SHOWN = 0.000005
_NOWHERE = "(nowhere)"
#: The versions of the formats of documents that lost a field since version 1.
_VERSIONS = dict.fromkeys(
    ("apply", "balance", "check", "compare", "group", "plan", "repair", "shards", "verify"), 2
)
#: The attributes in JSON of values that do not name them in `json_fields`.
_FIELDS: dict[type, tuple[str, ...]] = {
    ExchangeRef: ("exchange=name",),
    Release: ("version", "store", "store_known"),
}


def percent(share: float) -> str:
    """Return a share, 0 to 1, in percent; a share above 0 is never shown as 0."""
    return "<0.001%" if 0 < share < _LEAST_SHOWN else f"{share:.3%}"


def listed(texts: Sequence[str], most: int, separator: Literal[",", ";"] = ",") -> str:
    """Return the first of some texts and the number of the others, such as ``a, b and 3 more``; use a semicolon for texts with commas."""
    more = len(texts) - most
    rest = f"{'' if separator == ',' else separator} and {more:,} more" if more > 0 else ""
    return f"{separator} ".join(texts[:most]) + rest


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)


def document(name: str, **parts: object) -> dict[str, Any]:
    """Return a JSON document of the format ``rabbit-chx/NAME`` with these fields."""
    return {"format": f"rabbit-chx/{name}", "format_version": _VERSIONS.get(name, 1), **to_json(parts)}


def entry(value: object, *names: str) -> dict[str, Any]:
    """Return attributes of a value as JSON; ``name=path`` is the attribute `path` under another name."""
    pairs = [name.partition("=") for name in names]
    return {name: to_json(attrgetter(path or name)(value)) for name, _, path in pairs}


def entries(values: Iterable[object], *names: str) -> list[dict[str, Any]]:
    """Return the `entry` of each value."""
    return [entry(value, *names) for value in values]


def finding_entry(finding: Finding, *names: str) -> dict[str, Any]:
    """Return a finding as JSON with these attributes, the message and the fix."""
    return entry(finding, *names, "message", "fix")


def refusal_entries(refusals: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the refusals of a plan as JSON."""
    return entries(refusals, "message", "fix", "allow_with")


def to_json(value: Any) -> Any:
    """Return a value in JSON types.

    A dataclass becomes an object of its fields, or of the attributes that its class names in `json_fields`. A ring or a plan is in
    the format of its own `to_json`. A destination is as in the JSON of a ring: text is a queue, null is no destination.
    """
    if isinstance(value, Mapping):
        return {name: to_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(to_json, value))
    if hasattr(value, "to_json"):
        return json.loads(value.to_json())
    names = getattr(value, "json_fields", _FIELDS.get(type(value)))
    if names is None and is_dataclass(value):
        names = [field.name for field in fields(value)]
    return value if names is None else entry(value, *names)

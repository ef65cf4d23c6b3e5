"""Shares, counts and destinations in words and in JSON, the same in every finding and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rabbit_chx.result_fields import json_fields
from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.routing.bindings import Place

if TYPE_CHECKING:
    from rabbit_chx.analysis.findings import Finding

_NOWHERE = "(nowhere)"
#: The versions of the formats of documents that lost a field since version 1.
_VERSIONS = dict.fromkeys(
    ("apply", "balance", "check", "compare", "group", "plan", "repair", "shards"), 2
) | {"verify": 3}


def rounded(value: float | None) -> float | None:
    """Return a share with nine digits; further digits may differ between machines."""
    return None if value is None else float(f"{value:.9g}")


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)


def moment_text(seconds: float | None) -> str:
    """Return a time in seconds since 1970 as UTC; a dash if it is not known."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def moment_as_json(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 for JSON, with milliseconds."""
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )


def document(name: str, /, **parts: object) -> dict[str, Any]:
    """Return a JSON document of the format ``rabbit-chx/NAME`` with these fields."""
    return {"format": f"rabbit-chx/{name}", "format_version": _VERSIONS.get(name, 1), **to_json(parts)}


def finding_as_json(finding: Finding, **subject: object) -> dict[str, Any]:
    """Return a finding as JSON: its kind, its subject, the message and the fix."""
    return {"kind": finding.kind, **to_json(subject), "message": finding.message, "fix": finding.fix}


def refusals_as_json(refusals: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the refusals of a plan as JSON."""
    return [{"message": it.message, "fix": it.fix, "allow_with": it.allow_with} for it in refusals]


def to_json(value: Any) -> Any:
    """Return a value in JSON types.

    A named tuple becomes an object, a dataclass one of its fields as they are `shown`, or of its own `as_json`. A ring or a plan is in the format of its
    own `to_json`. A destination is as in the JSON of a ring: text is a queue, null is no destination.
    """
    if hasattr(value, "to_json"):
        return json.loads(value.to_json())
    if isinstance(value, ExchangeRef):
        value = {"exchange": value.name}
    elif isinstance(value, Release):
        value = {"version": value.version, "store": value.store, "store_known": value.store_known}
    elif hasattr(value, "as_json"):
        value = value.as_json()
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = json_fields(value)
    if isinstance(value, Mapping):
        return {name: to_json(inner) for name, inner in value.items()}
    return list(map(to_json, value)) if isinstance(value, list | tuple) else value


class Document:
    """A dataclass whose fields are those of a JSON document, `rabbit-chx/` and `format_name`."""

    __slots__ = ()
    format_name: ClassVar[str]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this result."""
        return document(self.format_name, **json_fields(self))

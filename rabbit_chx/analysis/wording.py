"""Shares, counts and destinations in words and in JSON, the same in every finding and report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rabbit_chx.result_fields import to_json
from rabbit_chx.routing.bindings import Place

if TYPE_CHECKING:
    from rabbit_chx.analysis.findings import Finding

_NOWHERE = "(nowhere)"


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


def finding_as_json(finding: Finding, **subject: object) -> dict[str, Any]:
    """Return a finding as JSON: its kind and severity, its subject, the message and the fix."""
    about = {"kind": finding.kind, "severity": finding.severity, **to_json(subject)}
    return {**about, "message": finding.message, "fix": finding.fix}


def refusals_as_json(refusals: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the refusals of a plan as JSON."""
    return [
        {"message": refusal.message, "fix": refusal.fix, "allow_with": refusal.allow_with}
        for refusal in refusals
    ]

"""Times, as reports and records have them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(moment: datetime) -> str:
    """Return a time in ISO 8601 and UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

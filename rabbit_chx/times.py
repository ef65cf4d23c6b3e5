"""Times as users write them, and as reports and records have them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rabbit_chx.errors import InputError

_UNITS_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
#: A day with a time zone, for which Python takes the zone for a time.
_DAY = re.compile(r"^(\d{4}-\d\d-\d\d)(Z|[+-]\d\d:?\d\d)$")
TIME_HELP = "ISO 8601 with a time zone (2026-11-22T10:00:00Z), or a time ago: 90s, 30min, 2h, 7d."


def parse_time(name: str, text: str | None, now: datetime) -> datetime | None:
    """Return the time of an option; None if it is not given."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(seconds=float(ago[1]) * _UNITS_S[ago[2]])
        except OverflowError:
            raise InputError(f"{name} {text} is before the year 1: pass a later time") from None
    try:
        moment = datetime.fromisoformat(_DAY.sub(r"\1T00:00\2", text.strip()))
    except ValueError:
        raise InputError(f"{name} is {text!r:.60}: pass {TIME_HELP}") from None
    if moment.tzinfo is None:
        written = text.strip() if ":" in text else moment.isoformat(timespec="minutes")
        raise InputError(f"{name} {text} lacks a time zone: write {written}Z for UTC, or {written}+02:00")
    return moment


def time_text(moment: datetime) -> str:
    """Return a time in ISO 8601 and UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

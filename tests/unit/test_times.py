"""Times as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.times import parse_time

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("30min", NOW - timedelta(minutes=30)),
        ("1.5h", NOW - timedelta(minutes=90)),
        (" 7d ", NOW - timedelta(days=7)),
        ("2026-11-22T10:00:00Z", NOW - timedelta(hours=8)),
        ("2026-11-22T12:00+02:00", NOW - timedelta(hours=8)),
        ("2026-11-22Z", NOW - timedelta(hours=18)),
        ("2026-11-22+02:00", NOW - timedelta(hours=20)),
        ("2026-11-22-0500", NOW - timedelta(hours=13)),
    ],
)
def test_a_time_is_a_date_with_its_zone_or_how_long_ago(text: str, moment: datetime) -> None:
    assert parse_time("--since", text, NOW) == moment


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "--since is 'yesterday': pass ISO 8601 with a time zone"),
        ("2h30", "--since is '2h30'"),
        ("-2h", "--since is '-2h'"),
        ("2026-11-22T10:00", r"lacks a time zone: write 2026-11-22T10:00Z for UTC"),
        ("2026-11-22", "lacks a time zone"),
        ("9999999d", "before the year 1"),
    ],
)
def test_another_time_is_refused_and_the_remedy_named(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_time("--since", text, NOW)


@pytest.mark.parametrize(
    "text",
    ["2026-11-22", "20261122", "2026-W47", "2026-11-22 10", "2026-11-22T10:00", " 2026-11-22 10:00:05.5 "],
)
def test_the_advice_about_a_time_zone_is_accepted(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_time("--since", text, NOW)
    utc, other = re.findall(r"write (\S.*\S) for UTC, or (\S.*\S)", str(refused.value))[0]
    moments = [parse_time("--since", advice, NOW) for advice in (utc, other)]
    assert None not in moments
    assert moments[0] - moments[1] == timedelta(hours=2)  # type: ignore[operator]

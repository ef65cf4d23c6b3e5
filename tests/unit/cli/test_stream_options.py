"""The range and the addresses of a command about streams, as the user writes them."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rabbit_chx.cli import stream_options
from rabbit_chx.cli.stream_options import StreamOptions, parse_addresses, parse_time
from rabbit_chx.errors import InputError

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


def test_a_time_ago_is_the_same_for_all_streams_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return NOW.astimezone(tz) + timedelta(seconds=next(moments))

    monkeypatch.setattr(stream_options, "datetime", Clock)
    given = StreamOptions(since="90s", until="30s")
    assert given.range == (NOW - timedelta(seconds=90), NOW - timedelta(seconds=30))
    assert given.range == (NOW - timedelta(seconds=90), NOW - timedelta(seconds=30))


def test_addresses_are_pairs() -> None:
    assert parse_addresses(("Rabbit-0:5552=127.0.0.1:15552", "[0:0::1]:1=h:2", "FE80::1=h:3")) == {
        "rabbit-0:5552": "127.0.0.1:15552",
        "[::1]:1": "h:2",
        "[fe80::1]": "h:3",
    }
    for text in ("rabbit-0:5552", "rabbit-0=127.0.0.1:1", "a:1=b", "a:0=b:1", "a:1=b:65536"):
        with pytest.raises(InputError, match="as in rabbit-0:5552="):
            parse_addresses((text,))

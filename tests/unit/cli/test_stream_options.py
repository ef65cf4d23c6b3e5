"""The range and the addresses of a command about streams, as the user writes them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rabbit_chx.cli import stream_options
from rabbit_chx.cli.stream_options import StreamOptions, parse_addresses
from rabbit_chx.errors import InputError

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)


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

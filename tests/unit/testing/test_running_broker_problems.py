"""The warnings and errors of a broker's log since a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rabbit_chx.testing.pytest_plugin import in_words, shorten
from rabbit_chx.testing.running_broker import problems_in

#: Lines of 3.10.8 with colours, and of 3.8.9, whose messages have further lines without a time.
LOG = """\
2026-11-26 17:41:57.900000+00:00 [error] <0.1.0> before the test
2026-11-26 17:41:59.044584+00:00 [info] <0.2.0> accepting AMQP connection
\x1b[38;5;160m2026-11-26 17:41:59.044584+00:00 [error] <0.3.0> Channel error on connection\x1b[0m
2026-11-26 17:41:59.100 [error] <0.6625.1> Channel error:
operation exchange.declare caused a channel exception
2026-11-26 17:41:59.200 [info] <0.6.1> closing
of the connection
2026-11-26 18:42:00.000000+01:00 [warning] <0.4.0> closed abruptly
"""


def test_problems_are_the_warnings_and_errors_since_a_time_with_the_lines_that_continue_them() -> None:
    since = datetime(2026, 11, 26, 17, 41, 59, 500_000, tzinfo=UTC)
    assert problems_in(LOG, since) == [
        "2026-11-26 17:41:59.044584+00:00 [error] <0.3.0> Channel error on connection",
        "2026-11-26 17:41:59.100 [error] <0.6625.1> Channel error:",
        "operation exchange.declare caused a channel exception",
        "2026-11-26 18:42:00.000000+01:00 [warning] <0.4.0> closed abruptly",
    ]


def test_the_last_lines_are_shown() -> None:
    lines = [f"line {number}" for number in range(1, 31)]
    assert shorten(lines) == ["11 earlier lines", *lines[11:]]
    assert shorten(lines[:20]) == lines[:20]


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        (">=3.13", "3.13 or newer"),
        ("<4.0", "before 4.0"),
        (">=3.9,<4.3", "3.9 or newer and before 4.3"),
        ("~=4.0", "~=4.0"),
        ("==4.3.6", "4.3.6"),
    ],
)
def test_a_range_of_releases_is_shown_in_words(releases: str, words: str) -> None:
    assert in_words(releases) == words

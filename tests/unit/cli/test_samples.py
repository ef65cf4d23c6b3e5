"""Samples of keys."""

from __future__ import annotations

import pytest
from command_line import Ran

from rabbit_chx.cli.samples import SampleOptions


def test_a_count_alone_is_enough_where_there_is_a_pattern_by_default() -> None:
    few = SampleOptions(None, None, 5000, None).read_or_make("{n}")
    assert few == SampleOptions(None, "{n}", 5000, None).read_or_make("")
    assert len(few.keys) == 5000


@pytest.mark.parametrize(
    ("command", "shown"),
    [("verify", "10,000"), ("simulate", "100,000"), ("compare", "100,000")],
)
def test_the_help_reports_how_many_keys_a_pattern_makes(ran: Ran, command: str, shown: str) -> None:
    words = " ".join(ran(command, "--help-all")[1].split())
    assert f"The number of keys of the pattern. [default: {shown}]" in words

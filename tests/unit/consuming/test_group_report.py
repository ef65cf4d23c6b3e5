"""What the report of a group adds up."""

from __future__ import annotations

import pytest

from rabbit_chx.consuming.group_report import stream_group_report
from rabbit_chx.consuming.stream_status import StreamShare
from rabbit_chx.rendering.output import ConsoleOutput


def test_the_lag_of_a_stream_group_is_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    shares = [StreamShare(f"s{lag}", None, lag, 0.0, None) for lag in (4, 7, 2)]
    ConsoleOutput().show(stream_group_report("b:5552", "billing", "/", shares))
    (total,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["all"]]
    assert total == ["all", "13"]

"""What the report of a group adds up."""

from __future__ import annotations

import pytest

from rabbit_chx.checking.check import check
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.checking.group_status import GroupStatus, MemberStatus
from rabbit_chx.cli.show import group_report, stream_group_report
from rabbit_chx.consuming.stream_connection import StreamShare
from rabbit_chx.rendering.output import ConsoleOutput
from rabbit_chx.topology import LiveTopology


def test_the_lag_of_a_stream_group_is_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    shares = [StreamShare(f"s{lag}", None, lag, 0.0, None) for lag in (4, 7, 2)]
    ConsoleOutput().show(stream_group_report("b:5552", "billing", "/", shares))
    (total,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["all"]]
    assert total == ["all", "13"]


@pytest.mark.parametrize(
    ("members", "switches", "count"),
    [((), {}, None), ((), {"q": 1.0}, 0), ((MemberStatus("pod-1", None, (), ()),), {}, 1)],
    ids=["ordinary consumers", "a group whose members are gone", "a group"],
)
def test_members_are_counted_only_where_there_is_a_group(
    members: tuple[MemberStatus, ...], switches: dict[str, float], count: int | None
) -> None:
    """Where there is none, the alert for a group without members would be false."""
    live = LiveTopology()
    found = CheckReport("b:5672", {"/": check(live)}, (), 1.0)
    status = GroupStatus((), members)
    report = group_report(
        "b:5672", "orders", live, status, parked=None, ignored_entries=0, switches=switches, found=found
    )
    gauges = [gauge for gauge in report.gauges if gauge.name == "rabbit_chx_group_members"]
    assert [value for gauge in gauges for _, value in gauge.samples] == ([] if count is None else [count])

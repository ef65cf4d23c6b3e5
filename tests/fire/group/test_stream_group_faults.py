"""What happens to the broker, the members and the lines of a group of streams."""

from __future__ import annotations

import time
from typing import Any

import pytest
from broker_alarms import disk_alarm, memory_alarm
from delivery_checker import Judge
from fire_group import GroupFire

from rabbit_chx.consuming import GroupTiming

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.chx_broker(">=3.11"),
    pytest.mark.timeout(600),
]

GOES_ON = "No member ends. Every row is handled, each stream in order; a batch may be handled again."
ALARM_S = 45.0
#: A member ends its connections when it has missed two heartbeats of 10 s; it looks each quarter of a heartbeat.
NOTICE_S = 22.5
GROUP = {"streams": True}


@pytest.mark.representative
def test_a_killed_broker_loses_nothing(group: GroupFire, kept: Judge) -> None:
    figures = group.run(group.kill_broker, burst=2_000)
    kept(figures, fault="broker killed (SIGKILL) and started again after 1 s", promise=GOES_ON)


@pytest.mark.parametrize(("alarm", "resource"), [(memory_alarm, "memory"), (disk_alarm, "disk")])
def test_an_alarm_stops_no_member(group: GroupFire, kept: Judge, alarm: Any, resource: str) -> None:
    def raise_alarm() -> None:
        with alarm(group.site.broker):
            time.sleep(ALARM_S)

    figures = group.run(raise_alarm, burst=9_000, per_s=50, pause_s=0.04)
    kept(figures, fault=f"{resource} alarm for 45 s", promise=GOES_ON)


def test_ten_closed_connections_lose_nothing(group: GroupFire, kept: Judge) -> None:
    figures = group.run(group.close_connections, burst=6_000)
    kept(
        figures,
        fault="all connections of the members closed by rabbitmqctl, ten times within 30 s",
        promise=f"{GOES_ON} The group does not rest for more than 10 s.",
        pause_s=10.0,
    )


@pytest.mark.parametrize("is_killed", [False, True])
def test_others_take_over_from_a_frozen_or_killed_member(
    group: GroupFire, kept: Judge, *, is_killed: bool
) -> None:
    def kill() -> None:
        group.restart("b")
        time.sleep(5)

    figures = group.run(kill if is_killed else group.freeze_member)
    kept(
        figures,
        fault="a member killed (SIGKILL) and started again"
        if is_killed
        else "a member stopped (SIGSTOP) for 35 s, heartbeat 10 s",
        promise="Another member takes its streams when the broker closes its connections. Every row is handled, each stream in order; "
        "a batch may be handled again.",
    )


@pytest.mark.parametrize("lines", [1, 3])
def test_others_take_over_from_a_member_that_is_cut_off(group: GroupFire, kept: Judge, lines: int) -> None:
    """The advertised address is reached through the same line."""
    kept(
        group.run_cut_off(lines),
        fault=f"nothing comes through between {'all members' if lines == 3 else 'a member'} and the broker for 60 s; then new connections "
        "do, and old ones never",
        promise=GOES_ON,
        unheard_s=NOTICE_S,
    )


def test_others_take_over_from_a_member_whose_handler_blocks_the_event_loop(
    group: GroupFire, kept: Judge
) -> None:
    kept(
        group.run(group.block_event_loop),
        fault="the event loop of a member blocked for 90 s",
        promise="The member gives up its streams after 60 s (loop_timeout_s), and others take them. It does not end, and takes its "
        "share again. Every row is handled, each stream in order.",
        queue_pause_s=GroupTiming.loop_timeout_s,
    )

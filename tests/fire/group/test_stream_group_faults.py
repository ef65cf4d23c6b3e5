"""What happens to the broker, the members and the lines of a group of streams."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_alarms import disk_alarm, memory_alarm
from delivery_checker import Verdict
from fire_group import HANG_S, GroupFire, group_fire, keep
from publishing_support import through
from tcp_proxy import Proxy

from rabbit_chx.consuming import GroupTiming
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.chx_broker(">=3.11", restartable=True),
    pytest.mark.timeout(600),
]

GOES_ON = "No member ends. Every row is handled, each stream in order; rows after the stored offset may be handled again."
ALARM_S = 45.0
FROZEN_S = 35.0
HOLE_S = 60.0
#: A member ends its connections when it has missed two heartbeats of 10 s; it looks each quarter of a heartbeat.
NOTICE_S = 22.5
CLOSINGS = 10
BETWEEN_CLOSINGS_S = 3.0


@pytest.fixture
def group(vhost: RunningBroker, tmp_path: Path) -> Iterator[GroupFire]:
    """Exchange, streams and user; at the end no member is left."""
    with group_fire(vhost, tmp_path, streams=True) as stage_:
        yield stage_


@pytest.fixture
def kept(group: GroupFire, record: Callable[..., Verdict]) -> Callable[..., None]:
    """Checks what a group promises, and records it."""
    return partial(keep, group, record=record, path="StreamGroup")


@pytest.mark.representative
def test_a_killed_broker_loses_nothing(group: GroupFire, kept: Callable[..., None]) -> None:
    def kill() -> None:
        group.site.broker.kill()
        time.sleep(1)
        group.site.broker.start()

    figures = group.run(kill, burst=2_000)
    kept(figures, fault="broker killed (SIGKILL) and started again after 1 s", promise=GOES_ON)


@pytest.mark.parametrize(("alarm", "resource"), [(memory_alarm, "memory"), (disk_alarm, "disk")])
def test_an_alarm_stops_no_member(
    group: GroupFire, kept: Callable[..., None], alarm: Any, resource: str
) -> None:
    def raise_alarm() -> None:
        with alarm(group.site.broker):
            time.sleep(ALARM_S)

    figures = group.run(raise_alarm, burst=9_000, per_s=50, pause_s=0.04)
    kept(figures, fault=f"{resource} alarm for 45 s", promise=GOES_ON)


def test_ten_closed_connections_lose_nothing(group: GroupFire, kept: Callable[..., None]) -> None:
    def close_again_and_again() -> None:
        began = time.monotonic()
        for number in range(CLOSINGS):
            time.sleep(max(0.0, began + number * BETWEEN_CLOSINGS_S - time.monotonic()))
            group.site.broker.run("rabbitmqctl", "close_all_user_connections", group.site.user, "fire")

    figures = group.run(close_again_and_again, burst=6_000)
    kept(
        figures,
        fault="all connections of the members closed by rabbitmqctl, ten times within 30 s",
        promise=f"{GOES_ON} The group does not rest for more than 10 s.",
        pause_s=10.0,
    )


@pytest.mark.parametrize("is_killed", [False, True])
def test_others_take_over_from_a_frozen_or_killed_member(
    group: GroupFire, kept: Callable[..., None], *, is_killed: bool
) -> None:
    def freeze() -> None:
        member = group.processes["b"]
        member.send_signal(signal.SIGSTOP)
        try:
            time.sleep(FROZEN_S)
        finally:
            member.send_signal(signal.SIGCONT)

    def kill() -> None:
        group.restart("b")
        time.sleep(5)

    figures = group.run(kill if is_killed else freeze)
    kept(
        figures,
        fault="a member killed (SIGKILL) and started again"
        if is_killed
        else "a member stopped (SIGSTOP) for 35 s, heartbeat 10 s",
        promise="Another member takes its streams when the broker closes its connections. Every row is handled, each stream in order for a "
        "store that refuses lower generations; rows after the stored offset may be handled again.",
    )


@pytest.mark.parametrize("lines", [1, 3])
def test_others_take_over_from_a_member_that_is_cut_off(
    group: GroupFire, kept: Callable[..., None], lines: int
) -> None:
    """The advertised address is reached through the same line."""
    with ExitStack() as stack:
        ways = [stack.enter_context(closing(Proxy(group.member_url))) for _ in range(lines)]

        def swallow() -> None:
            for way in ways:
                way.freeze()
            time.sleep(HOLE_S)
            for way in ways:
                way.leave_frozen()

        urls = [through(group.member_url, way.port) for way in ways]
        figures = group.run(swallow, urls + [group.member_url] * (3 - lines))
    kept(
        figures,
        fault=f"nothing comes through between {'all members' if lines == 3 else 'a member'} and the broker for 60 s; then new connections "
        "do, and old ones never",
        promise=GOES_ON,
        unheard_s=NOTICE_S,
    )


def test_others_take_over_from_a_member_whose_handler_blocks_the_event_loop(
    group: GroupFire, kept: Callable[..., None]
) -> None:
    def hang() -> None:
        group.processes["b"].send_signal(signal.SIGUSR1)
        time.sleep(HANG_S)

    kept(
        group.run(hang),
        fault="the event loop of a member blocked for 90 s",
        promise="The member gives up its streams after 60 s (loop_timeout_s), and others take them. It does not end, and takes its "
        "share again. Every row is handled, each stream in order.",
        queue_pause_s=GroupTiming.loop_timeout_s,
    )

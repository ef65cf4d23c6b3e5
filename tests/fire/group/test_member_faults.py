"""What happens to the members of a group and their lines."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from fire_group import HANG_S, GroupFire
from publishing_support import through
from tcp_proxy import Proxy

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", restartable=True), pytest.mark.timeout(600)]

FROZEN_S = 35.0
HOLE_S = 60.0
#: The broker closes connections that have sent nothing for this time, with a heartbeat of 10 s.
MISSED_S = 30.0


def test_others_take_over_from_a_frozen_member(group: GroupFire, kept: Callable[..., None]) -> None:
    """When it goes on, it may still be in a handler of a queue that another member has: the store refuses that effect."""

    def freeze() -> None:
        member = group.processes["b"]
        member.send_signal(signal.SIGSTOP)
        try:
            time.sleep(FROZEN_S)
        finally:
            member.send_signal(signal.SIGCONT)

    kept(
        group.run(freeze),
        fault="a member stopped (SIGSTOP) for 35 s, heartbeat 10 s",
        promise="Another member takes its queues when the broker misses its heartbeats. It does not end, and takes its share again. Every "
        "message is handled, each queue in order for a store that refuses lower generations; what it held may be handled again.",
    )


def test_others_take_over_from_a_member_that_is_cut_off(group: GroupFire, kept: Callable[..., None]) -> None:
    with ExitStack() as stack:
        ways = [Proxy(group.site.url) for _ in range(3)]
        for way in ways:
            stack.callback(way.close)

        def swallow() -> None:
            for way in ways:
                way.freeze()
            time.sleep(HOLE_S)
            for way in ways:
                way.leave_frozen()

        figures = group.run(swallow, [through(group.site.url, way.port) for way in ways])
    kept(
        figures,
        fault="nothing comes through between all members and the broker for 60 s; then new connections do, and old ones never",
        promise="No member ends. Every message is handled, each queue in order; what members held may be handled again.",
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
        promise="Another member takes its queues when the broker misses its heartbeats. It does not end, and takes its "
        "share again. Every message is handled, each queue in order.",
        queue_pause_s=MISSED_S,
    )

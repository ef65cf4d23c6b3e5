"""What happens to the broker of a group: it is killed, short of memory, closes connections, or loses the journal."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from broker_alarms import disk_alarm, memory_alarm
from delivery_checker import Judge
from fire_group import GroupFire
from publishing_support import through
from tcp_proxy import Proxy

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(600),
]

GOES_ON = (
    "No member ends. Every message is handled, each queue in order; what members held may be handled again."
)
ALARM_S = 45.0
CUTS = 4
BETWEEN_CUTS_S = 6.0


@pytest.mark.representative
def test_a_killed_broker_loses_and_reorders_nothing(group: GroupFire, kept: Judge) -> None:
    figures = group.run(group.kill_broker, burst=2_000)
    kept(figures, fault="broker killed (SIGKILL) and started again after 1 s", promise=GOES_ON)


def test_a_broker_that_is_killed_twice_loses_and_reorders_nothing(group: GroupFire, kept: Judge) -> None:
    def kill_twice() -> None:
        for wait_s in (2, 0):
            group.kill_broker()
            time.sleep(wait_s)

    figures = group.run(kill_twice)
    kept(
        figures, fault="broker killed (SIGKILL) and started again, twice within some seconds", promise=GOES_ON
    )


def test_a_memory_alarm_stops_no_member(group: GroupFire, kept: Judge) -> None:
    """Consumers are what ends such an alarm, so they must go on."""

    def raise_alarm() -> None:
        with memory_alarm(group.site.broker):
            time.sleep(ALARM_S)

    figures = group.run(raise_alarm, burst=9_000, per_s=50, pause_s=0.04)
    kept(
        figures,
        fault="memory alarm for 45 s",
        promise="The group goes on with what waits in the queues. No member ends. Nothing is lost, repeated or out of order.",
        pause_s=5.0,
    )


def test_a_member_that_reconnects_during_a_disk_alarm_goes_on(
    group: GroupFire, kept: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    broker = group.site.broker
    with closing(Proxy(broker.url)) as line:
        group.urls = [through(broker.url, line.port)]

        def cut_during_an_alarm() -> None:
            with disk_alarm(broker):
                for _ in range(CUTS):
                    time.sleep(BETWEEN_CUTS_S)
                    line.cut()
                    group.close_connections_once()
                time.sleep(BETWEEN_CUTS_S)

        figures = group.run(cut_during_an_alarm, burst=6_000)
    kept(
        figures,
        fault=f"disk alarm for 30 s, during which all connections of the members and of the publisher are cut {CUTS} times",
        promise=f"{GOES_ON} A member that reconnects during the alarm handles messages when it is over.",
    )
    assert "the broker blocks publishers: low on disk" in caplog.text


def test_ten_closed_connections_lose_and_reorder_nothing(group: GroupFire, kept: Judge) -> None:
    figures = group.run(group.close_connections, burst=6_000)
    kept(
        figures,
        fault="all connections of the members closed by rabbitmqctl, ten times within 30 s",
        promise=f"{GOES_ON} The group does not rest for more than 10 s.",
        pause_s=10.0,
    )

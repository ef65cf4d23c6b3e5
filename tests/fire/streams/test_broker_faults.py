"""What happens to the broker while a named publisher writes to a stream, and a reader follows it."""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from typing import Any

import pytest
from broker_alarms import disk_alarm, memory_alarm
from broker_faults import faults_of
from delivery_checker import Judge
from fire_streams import StreamRun, delete_stream, kill_again_and_again, make_stream, published
from publishing_support import through
from tcp_proxy import Proxy

from rabbit_chx.errors import MismatchError
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(300),
]

ONCE = "Each row is stored once, in order, over a new connection. A reader is given each row once."
WAITS = "Each row is stored once, in order; the publisher waits and keeps its connection."
KILLS = 3
CUTS = 3
ROLL_OVER_KILLS = 5


def test_lost_confirms_repeat_no_row(home: RunningBroker, line: Proxy, kept: Judge) -> None:
    """The rows arrive, and nothing comes back: then the line is reset."""

    def swallow(_: StreamRun) -> None:
        for _time in range(4):
            line.to_client.held = True
            time.sleep(0.5)
            line.cut()
            line.to_client.held = False
            time.sleep(1)

    run = published(through(home.stream_url, line.port), swallow)
    kept(
        run,
        fault="confirms do not come for 0.5 s, then the connection is reset (RST), four times",
        promise=ONCE,
    )
    assert run.resent > 0
    assert run.reconnects >= 3


def test_a_broker_that_is_killed_again_loses_no_row(home: RunningBroker, kept: Judge) -> None:
    run = published(home.stream_url, kill_again_and_again(home, KILLS))
    kept(run, fault=f"broker killed (SIGKILL) and started again, {KILLS} times", promise=ONCE)
    assert run.reconnects == KILLS


def test_a_broker_that_is_killed_at_roll_overs_loses_no_row(vhost: RunningBroker, kept: Judge) -> None:
    make_stream(vhost, stream_max_segment_size_bytes="600")
    # In a large window more rows are in the batch that the broker loses.
    run = published(vhost.stream_url, kill_again_and_again(vhost, ROLL_OVER_KILLS), window=20_000)
    kept(
        run,
        fault=f"broker killed (SIGKILL) and started again, {ROLL_OVER_KILLS} times; each chunk begins a new segment",
        promise=f"{ONCE} Rows that the broker confirms and does not have are stored again.",
    )
    assert run.reconnects == ROLL_OVER_KILLS


def test_a_restart_loses_no_row(home: RunningBroker, kept: Judge) -> None:
    def restart(_: StreamRun) -> None:
        time.sleep(1)
        faults_of(home).restart()

    run = published(home.stream_url, restart)
    kept(run, fault="broker restarted in good order", promise=ONCE)
    assert run.reconnects >= 1


@pytest.mark.parametrize(
    ("alarm", "promise"),
    [
        (disk_alarm, WAITS),
        (memory_alarm, "Each row is stored once, in order. The broker takes rows of streams all the time."),
    ],
    ids=["disk", "memory"],
)
def test_an_alarm_delays_rows_and_loses_none(
    alarm: Any, promise: str, home: RunningBroker, kept: Judge
) -> None:
    lasted: list[tuple[float, float]] = []

    def raise_alarm(_: StreamRun) -> None:
        time.sleep(0.5)
        with alarm(home):
            began = time.monotonic()
            time.sleep(5)
            lasted.append((began, time.monotonic()))

    run = published(home.stream_url, raise_alarm)
    kept(run, fault=f"{alarm.__name__.replace('_', ' ')} for 5 s", promise=promise)
    assert run.reconnects == 0
    if alarm is disk_alarm:
        assert max(later - at for (at, _), (later, _) in pairwise(run.calls)) > 3
    else:
        ((began, ended),) = lasted
        assert any(began < at < ended for at, _ in run.calls)


def test_a_reconnect_during_a_disk_alarm_loses_no_row(
    home: RunningBroker, line: Proxy, kept: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rabbit_chx.streams")

    def cut_during_an_alarm(_: StreamRun) -> None:
        time.sleep(0.5)
        with disk_alarm(home):
            for _time in range(CUTS):
                time.sleep(3)
                line.cut()
            time.sleep(3)

    run = published(through(home.stream_url, line.port), cut_during_an_alarm)
    kept(
        run,
        fault=f"disk alarm for 12 s, during which the connections are reset (RST) {CUTS} times",
        promise=f"{ONCE} The publisher connects when the alarm is over.",
    )
    assert run.reconnects >= 1
    assert "probably a disk or memory alarm is on" in caplog.text


def test_a_stream_that_is_made_again_is_an_error(home: RunningBroker, kept: Judge) -> None:
    def make_again(_: StreamRun) -> None:
        time.sleep(1)
        delete_stream(home)
        make_stream(home)

    run = published(home.stream_url, make_again, follow=False)
    assert run.error is not None
    kept(
        run,
        fault="the stream deleted and made again",
        promise="PublishError, which names the last confirmed id: the rows went with the stream.",
        elsewhere=range(1, run.handed + 1),
    )
    assert isinstance(run.error.__cause__, MismatchError) or "does not exist" in str(run.error)

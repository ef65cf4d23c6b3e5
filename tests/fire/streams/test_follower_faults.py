"""What happens to a named reader that follows a stream, and to its broker."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from broker_alarms import disk_alarm, memory_alarm
from broker_faults import faults_of
from delivery_checker import Judge
from fire_followers import Follower, follow
from fire_streams import COORDINATOR_S, StreamRun
from publishing_support import through
from tcp_proxy import Proxy

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(300),
]

ONCE = "The reader continues. It is given each row once, in order; its offset is stored when it is closed."
ALARM_S = 5.0
CLOSINGS = 5
#: Two of these are missed before a connection ends.
HEARTBEAT = "?heartbeat=3"
SILENT_S = 12.0
KILLS = 2
LIVES_S = 7.0  # more than the 5 s after which an offset is stored


@pytest.fixture
def follower(home: RunningBroker, tmp_path: Path) -> Follower:
    """It connects to the broker itself."""
    return Follower([home.stream_url], tmp_path)


@pytest.mark.representative
def test_a_killed_broker_loses_and_repeats_no_row(
    home: RunningBroker, follower: Follower, record: Judge
) -> None:
    def kill(_: StreamRun) -> None:
        time.sleep(COORDINATOR_S)
        faults_of(home).kill()
        faults_of(home).start()

    words = {"fault": "broker killed (SIGKILL) and started again; a named reader follows", "promise": ONCE}
    follow(follower, home.stream_url, kill, record, **words)
    assert follower.interruptions


@pytest.mark.parametrize("alarm", [disk_alarm, memory_alarm], ids=["disk", "memory"])
def test_an_alarm_stops_no_reader(alarm: Any, home: RunningBroker, follower: Follower, record: Judge) -> None:
    def raise_alarm(_: StreamRun) -> None:
        with alarm(home):
            time.sleep(ALARM_S)

    fault = f"{alarm.__name__.replace('_', ' ')} for {ALARM_S:g} s; a named reader follows"
    follow(follower, home.stream_url, raise_alarm, record, fault=fault, promise=ONCE)
    assert not follower.interruptions


@pytest.mark.own_broker
@pytest.mark.chx_broker(">=3.11")  # 3.10.8 does not close connections of the stream port
def test_closed_connections_lose_and_repeat_no_row(
    home: RunningBroker, follower: Follower, record: Judge
) -> None:
    def close_again_and_again(_: StreamRun) -> None:
        user = ConnectionSettings.from_uri(home.url).username
        for _time in range(CLOSINGS):
            time.sleep(1)
            home.run("rabbitmqctl", "close_all_user_connections", user, "fire")

    fault = f"all connections closed by rabbitmqctl, {CLOSINGS} times; a named reader follows"
    follow(follower, home.stream_url, close_again_and_again, record, fault=fault, promise=ONCE)
    assert follower.interruptions >= CLOSINGS


def test_resets_lose_and_repeat_no_row(
    home: RunningBroker, line: Proxy, follower: Follower, record: Judge
) -> None:
    def cut_again_and_again(_: StreamRun) -> None:
        for _time in range(CLOSINGS):
            time.sleep(1)
            line.cut()

    follower.urls = [through(home.stream_url, line.port)]
    fault = f"the connection of a named reader reset (RST), {CLOSINGS} times"
    follow(follower, home.stream_url, cut_again_and_again, record, fault=fault, promise=ONCE)
    assert follower.interruptions >= CLOSINGS


def test_a_line_without_answers_loses_and_repeats_no_row(
    home: RunningBroker, line: Proxy, follower: Follower, record: Judge
) -> None:
    def swallow(_: StreamRun) -> None:
        line.freeze()
        time.sleep(SILENT_S)
        line.leave_frozen()

    follower.urls = [through(home.stream_url, line.port) + HEARTBEAT]
    fault = (
        f"nothing comes through between a named reader and the broker for {SILENT_S:g} s, heartbeat 3 s; then new connections do, and "
        "old ones never"
    )
    follow(follower, home.stream_url, swallow, record, fault=fault, promise=ONCE)
    assert follower.interruptions


def test_a_frozen_reader_goes_on(home: RunningBroker, follower: Follower, record: Judge) -> None:
    def freeze(_: StreamRun) -> None:
        follower.process.send_signal(signal.SIGSTOP)
        time.sleep(SILENT_S)
        follower.process.send_signal(signal.SIGCONT)

    follower.urls = [home.stream_url + HEARTBEAT]
    fault = f"a named reader stopped (SIGSTOP) for {SILENT_S:g} s, heartbeat 3 s"
    follow(follower, home.stream_url, freeze, record, fault=fault, promise=ONCE)
    assert follower.interruptions


def test_a_killed_reader_loses_no_row(home: RunningBroker, follower: Follower, record: Judge) -> None:
    def kill(_: StreamRun) -> None:
        for _time in range(KILLS):
            time.sleep(LIVES_S)
            follower.restart()

    follow(
        follower,
        home.stream_url,
        kill,
        record,
        fault=f"a named reader killed (SIGKILL) and started again, {KILLS} times",
        promise="Every row is read, in order. The rows of the last 5 s before a kill, at most 10,000, and a batch are read again.",
    )

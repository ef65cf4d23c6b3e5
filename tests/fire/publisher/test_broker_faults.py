"""What happens to the broker: it is killed, frozen, short of memory, or closes connections."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from bounded import until
from broker_alarms import disk_alarm, memory_alarm
from broker_faults import faults_of, paused
from canary import make_canary_user
from delivery_checker import Judge
from fire_load import Load, Run
from fire_site import force_close
from fire_stage import Stage

from rabbit_chx.errors import BrokerTimeoutError, PublishError
from rabbit_chx.publishing import Limits

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.own_broker]

GOES_ON = "Every row is confirmed, over a new connection."
WAITS = "Every row is confirmed; the publisher waits and keeps its connection."


@pytest.mark.representative
def test_a_killed_broker_loses_no_row(stage: Stage, kept: Judge) -> None:
    run = stage.publish(stage.kill_broker, load=Load(rows=15_000, fault_at=3_000))
    stage.read_ring()  # where the store is Mnesia, its order may be another one
    kept(run, fault="broker killed (SIGKILL) and started again after 1 s", promise=GOES_ON)
    assert run.report.reconnects >= 1


@pytest.mark.parametrize("fault", ["missing exchange", "user id of another"])
@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
@pytest.mark.representative
def test_only_the_row_that_closes_its_channel_fails(
    stage: Stage, kept: Judge, fault: str, *, killed: bool
) -> None:
    load = Load(rows=15_000, fault_at=3_000)
    poison = {2_900, 3_100, 9_000}

    def only_in_them(value: str) -> list[str | None]:
        return [value if row in poison else None for row in range(load.rows)]

    columns: dict[str, Any] = {"exchanges": only_in_them("gone")}
    if fault == "user id of another":
        columns = {"properties": {"user_id": only_in_them("nobody")}}
    run = stage.publish(stage.kill_broker if killed else lambda _: None, load=load, columns=columns)
    stage.read_ring()
    verdict = kept(
        run,
        fault=f"rows that close their channel ({fault}){', and broker killed' if killed else ''}",
        promise="`PublishError` names such a row; every other row is confirmed.",
        outcome="PublishError: names the rows",
    )
    assert isinstance(run.error, PublishError)
    assert "row 2900 " in str(run.error)
    assert (run.report.rows, run.report.nacked) == (load.rows, len(poison))
    assert run.report.confirmed == verdict.ok == load.rows - len(poison)


def test_a_restart_loses_no_row(stage: Stage, kept: Judge) -> None:
    def restart(_: Run) -> None:
        faults_of(stage.broker).restart()
        stage.read_ring()

    run = stage.publish(restart)
    kept(run, fault="broker restarted in good order", promise=GOES_ON)
    assert run.report.reconnects >= 1


def test_a_frozen_broker_loses_no_row(stage: Stage, kept: Judge) -> None:
    def freeze(_: Run) -> None:
        with paused(stage.broker):
            time.sleep(8)

    run = stage.publish(freeze, stage.target(heartbeat_s=2, connection_timeout_s=3))
    kept(run, fault="broker frozen (SIGSTOP) for 8 s, heartbeat 2 s", promise=GOES_ON)
    assert run.report.reconnects >= 1


@pytest.mark.representative
def test_a_memory_alarm_delays_rows_and_loses_none(stage: Stage, kept: Judge) -> None:
    delay(stage, kept, memory_alarm, "memory")


def test_a_disk_alarm_delays_rows_and_loses_none(stage: Stage, kept: Judge) -> None:
    delay(stage, kept, disk_alarm, "disk")


def delay(stage: Stage, kept: Judge, alarm: Any, resource: str) -> None:
    def raise_alarm(_: Run) -> None:
        with alarm(stage.broker):
            time.sleep(3)

    run = stage.publish(raise_alarm, load=Load(rows=30_000, fault_at=3_000, is_fast_after=True))
    kept(run, fault=f"{resource} alarm for 3 s", promise=WAITS)
    assert run.report.blocked_seconds > 1
    assert run.report.reconnects == 0


def test_an_alarm_that_takes_too_long_is_an_error_that_counts_the_rows(stage: Stage, kept: Judge) -> None:
    def raise_alarm(run: Run) -> None:
        with memory_alarm(stage.broker):
            until(lambda: run.over, "the publisher gives up")

    run = stage.publish(raise_alarm, limits=Limits(blocked_timeout_s=2.0))
    assert re.search(r"blocked publishers \(.*memory.*\) for 2 s", str(run.error))
    assert isinstance(run.error, PublishError)
    assert isinstance(run.error.__cause__, BrokerTimeoutError)
    kept(
        run,
        fault="memory alarm for longer than blocked_timeout_s (2 s)",
        promise="PublishError after blocked_timeout_s. Every confirmed row is there.",
        outcome="PublishError: the broker has blocked publishers",
    )


def test_connections_that_an_operator_closes_lose_no_row(stage: Stage, kept: Judge) -> None:
    def close_again_and_again(run: Run) -> None:
        closed: set[str] = set()
        while len(closed) < 3 and not run.over:
            for connection in stage.site.connections():  # a new one is listed up to five seconds later
                if force_close(stage.site.management, connection["name"]):
                    closed.add(connection["name"])
            time.sleep(0.3)

    run = stage.publish(close_again_and_again, load=Load(rows=48_000, fault_at=3_000))
    kept(run, fault="all connections closed by the management API, three times", promise=GOES_ON)
    assert run.report.reconnects >= 2


def test_a_deleted_user_is_an_error_at_once(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: stage.site.delete_user())
    make_canary_user(stage.site.management, stage.site.vhost, stage.site.user)
    assert "403 ACCESS_REFUSED" in str(run.error)
    kept(
        run,
        fault="the publisher's user deleted",
        promise="PublishError with the broker's words, at once. Every confirmed row is there.",
        outcome="PublishError: 403 ACCESS_REFUSED",
    )


def test_a_user_at_the_limit_of_connections_publishes_each_row(stage: Stage, kept: Judge) -> None:
    """The broker counts the lost connection as open until its heartbeats are missed."""
    line = stage.site.proxy
    stage.broker.run("rabbitmqctl", "set_user_limits", stage.site.user, '{"max-connections": 1}')

    run = stage.publish(lambda _: line.abandon(), stage.target(line.port, heartbeat_s=3))
    kept(
        run,
        fault="line lost and not noticed by the broker, whose user may have one connection only",
        promise=GOES_ON,
    )
    assert run.report.reconnects == 1
    log = (stage.folder / "log.txt").read_text()
    assert "530" in log, "the limit was never reached, so this shows nothing"

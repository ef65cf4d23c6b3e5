"""Rows written to streams exactly once, while tasks fail, workers and the broker die, a disk is full, and jobs are cancelled and run again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import spark_jobs
from broker_alarms import disk_alarm
from delivery_checker import Judge
from site_faults import killed
from spark_driver import SparkDriver
from spark_runs import SparkRun
from stream_site import StreamSite, each_form, of_form, stream_site_on

from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(400),
]

MASTER = "local[2,4]"
ROWS = 250_000
#: Behind all rows of the second task, so that the first task, which has three times as many, has stored rows and is not at its end.
FAULT_AT = 45_000
#: The rows that a task has passed on when it fails: the write has stored half of them. All rows of the second task, and that half of two others.
FAILS_AT, SEEN_AT = 68_000, 97_000
PAUSE_S = 0.3
PATH = "Spark into streams, exactly once"
ALARM_S = 15.0
#: The broker has noticed the alarm, and what was on its way has arrived.
NOTICED_S = 4.0
ONCE = "The write succeeds: Spark runs the task again, with all its rows. Every row is in its stream once."
WAITS = "No row is stored during the alarm. Then the write succeeds, and no task is repeated. Every row is in its stream once."
ON_THE_SAME_TASK = "The write succeeds, and no task is repeated. Every row is in its stream once."
AGAIN = "The write ends at once. Run again with the same appId and version, it completes: every row is in its stream once."


@pytest.fixture
def site(vhost: RunningBroker) -> Iterator[StreamSite]:
    """The exchange and its streams."""
    with stream_site_on(vhost) as site:
        yield site


@pytest.fixture
def run(driver: SparkDriver, site: StreamSite, tmp_path: Path) -> SparkRun:
    """A run of the driver on the site."""
    return SparkRun(driver, site, tmp_path, {**site.options, "appId": "fire", "version": "1"})


@contextmanager
def workers_killed(run: SparkRun) -> Iterator[None]:
    """Kill the Python workers."""
    for worker in run.driver.workers():
        os.kill(worker.pid, signal.SIGKILL)
    yield


@contextmanager
def disk_alarmed(run: SparkRun, site: StreamSite, stored: list[int]) -> Iterator[None]:
    """Have a disk alarm, in which all connections are closed: the broker refuses new publishers then. Count the rows at both its ends."""
    with disk_alarm(run.site.broker):
        time.sleep(NOTICED_S)
        site.close_connections()
        yield
        time.sleep(NOTICED_S)
        stored.append(site.rows_there())
        time.sleep(ALARM_S)
        stored.append(site.rows_there())


@contextmanager
def cancelled(run: SparkRun) -> Iterator[None]:
    """Cancel the job, whose rows trickle."""
    run.driver.at_once(spark_jobs.cancel)
    yield


def begin(run: SparkRun, site: StreamSite, **arguments: Any) -> None:
    """Start the write. The first task takes a minute until the fault, which a busy machine may need to see the rows."""
    arguments.setdefault("step", spark_jobs.Trickle(run.begun, PAUSE_S))
    run.begin(spark_jobs.write_once, rows=ROWS, ring=site.ring.to_json(), **arguments)


def expect_each_once(run: SparkRun, site: StreamSite, record: Judge, *, fault: str, promise: str) -> None:
    """Every row is where it belongs, and there once; the report says the same."""
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    record(site.history(ROWS, range(ROWS)), path=PATH, fault=fault, promise=promise)


@pytest.mark.representative
@each_form
def test_killed_workers_store_each_row_once(
    run: SparkRun, site: StreamSite, record: Judge, entries: dict[str, str]
) -> None:
    run.options |= entries
    begin(run, site)
    run.meet(workers_killed(run), FAULT_AT)
    assert run.end_unharmed().error is None
    assert any(task["attempt"] for task in run.report["tasks"])
    assert run.report["streams"]["known"] > 0
    words = of_form("the Python workers of tasks killed (SIGKILL)", entries)
    expect_each_once(run, site, record, fault=words, promise=ONCE)


@pytest.mark.representative
@each_form
def test_a_killed_broker_stores_each_row_once(
    run: SparkRun, site: StreamSite, record: Judge, entries: dict[str, str]
) -> None:
    run.options |= entries
    begin(run, site)
    run.meet(killed(site), FAULT_AT)
    assert run.end_unharmed().error is None
    assert not any(task["attempt"] for task in run.report["tasks"])
    words = of_form("broker killed (SIGKILL) and started again", entries)
    expect_each_once(run, site, record, fault=words, promise=ON_THE_SAME_TASK)


def test_a_disk_alarm_stores_each_row_once(run: SparkRun, site: StreamSite, record: Judge) -> None:
    stored: list[int] = []
    begin(run, site)
    run.meet(disk_alarmed(run, site, stored), FAULT_AT)
    assert run.end_unharmed().error is None
    assert stored[0] == stored[1] < ROWS
    assert not any(task["attempt"] for task in run.report["tasks"])
    assert run.report["reconnects"]
    words = f"disk alarm for {NOTICED_S * 2 + ALARM_S:g} s, connections closed meanwhile"
    expect_each_once(run, site, record, fault=words, promise=WAITS)


@each_form
def test_tasks_that_fail_half_way_store_each_row_once(
    run: SparkRun, site: StreamSite, record: Judge, entries: dict[str, str]
) -> None:
    run.options |= entries
    begin(run, site, step=spark_jobs.FailHalfWay(frozenset({0, 2}), FAILS_AT, run.begun))
    run.meet(nullcontext(), SEEN_AT)
    assert run.end_unharmed().error is None
    attempts = [task["attempt"] for task in run.report["tasks"]]  # the last is for rows without a key
    assert sorted(attempts) == [0, 0, 0, 1, 1]
    assert run.report["streams"]["known"] > 0
    words = of_form("two tasks fail half way, behind the placing", entries)
    expect_each_once(run, site, record, fault=words, promise=ONCE)


@each_form
def test_a_cancelled_job_that_runs_again_stores_each_row_once(
    run: SparkRun, site: StreamSite, record: Judge, entries: dict[str, str]
) -> None:
    run.options |= entries
    begin(run, site)
    run.meet(cancelled(run), FAULT_AT)
    assert "cancel" in str(run.end_unharmed().error).lower()
    assert run.report["failed"]
    assert 0 < len([row for stream in site.queues for row in site.rows_in(stream)]) < ROWS
    begin(run, site, step=None)
    assert run.end_unharmed().error is None
    words = of_form("the job cancelled half way, and run again", entries)
    expect_each_once(run, site, record, fault=words, promise=AGAIN)

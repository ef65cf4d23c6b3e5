"""Executors killed between two confirms of one task that writes exactly once: a part of its rows is stored, and comes again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import spark_jobs
from delivery_checker import Judge
from spark_driver import SparkDriver
from spark_runs import SparkRun
from stream_site import StreamSite, each_form, of_form, stream_site_on

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

MASTER = "local-cluster[2,1,1024]"
ROWS = 250_000
#: A task sends 32,768 rows, and waits for their confirms before the next ones, which take some seconds to come.
FAULT_AT = 30_000
PAUSE_S = 0.2


@pytest.fixture
def site(vhost: RunningBroker) -> Iterator[StreamSite]:
    """The exchange and its streams."""
    with stream_site_on(vhost) as site:
        yield site


@contextmanager
def executors_killed(run: SparkRun) -> Iterator[None]:
    """Kill all whose tasks publish."""
    for executor in run.those_that_publish(run.driver.executors):
        os.kill(executor.pid, signal.SIGKILL)
    yield


@each_form
def test_executors_killed_between_two_confirms_store_each_row_once(
    driver: SparkDriver, site: StreamSite, tmp_path: Path, record: Judge, entries: dict[str, str]
) -> None:
    run = SparkRun(driver, site, tmp_path, {**site.options, "appId": "fire", "version": "1", **entries})
    step = spark_jobs.Trickle(run.begun, PAUSE_S)
    run.begin(spark_jobs.write_once, rows=ROWS, ring=site.ring.to_json(), step=step)
    run.meet(executors_killed(run), FAULT_AT)
    assert run.end_unharmed().error is None
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    assert 0 < report["streams"]["known"] < ROWS, "no task had a part of its rows stored: this shows nothing"
    record(
        site.history(ROWS, range(ROWS)),
        path="Spark into streams, exactly once",
        fault=of_form("executors killed (SIGKILL) between two confirms of a task", entries),
        promise="The write succeeds: Spark runs the tasks again, with all their rows. Every row is in its stream once.",
    )

"""Batch writes whose tasks fail, are killed or are cancelled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import spark_jobs
from delivery_checker import Judge
from spark_runs import BATCH_PATHS, SparkRun

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

MASTER = "local[2,4]"
ROWS = 60_000
PARTITIONS = 4
FAULT_AT = 10_000
PAUSE_S = 0.5  # so that the first tasks are in the middle, however late a busy machine sees the rows
REPEATS = (
    "The write succeeds: Spark runs the task again, with all its rows. Every row is in its queue, first copies in the order of "
    "their key; the report has the attempt and a note."
)
ENDS = "The write ends at once and leaves no connection. Rows that its report calls confirmed are in their queues."


@contextmanager
def workers_killed(run: SparkRun, killed: list[int]) -> Iterator[None]:
    """Kill the Python workers that are connected. One of them has published; another one may have just begun."""
    killed += [worker.pid for worker in run.those_that_publish(run.driver.workers)]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    yield


@contextmanager
def cancelled(run: SparkRun) -> Iterator[None]:
    """Cancel the job. Its rows go on to trickle."""
    run.driver.at_once(spark_jobs.cancel)
    run.site.wait_for_no_connection(60)
    yield


def expect_repeats(run: SparkRun, record: Judge, way: str, fault: str, tasks: int) -> None:
    """The write has succeeded, and these many tasks were run twice."""
    report = run.report
    repeated = [task for task in report["tasks"] if task["attempt"]]
    assert report["confirmed"] == report["rows"] == ROWS
    assert [task["attempt"] for task in repeated] == [1] * tasks
    assert any(f"Spark ran {tasks} of {PARTITIONS} tasks more than once" in note for note in report["notes"])
    most = report["republished"] + sum(task["rows"] for task in repeated)
    history = run.history(ROWS, range(ROWS), ordered=True, republished=most)
    verdict = record(history, path=BATCH_PATHS[way], fault=fault, promise=REPEATS)
    assert verdict.duplicated, "the task had published nothing before it failed"


@pytest.mark.parametrize("way", [pytest.param("format", marks=pytest.mark.representative), "publish"])
def test_a_killed_python_worker_loses_no_row(
    way: str, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared({"ordering": "per-key"})
    killed: list[int] = []
    trickle = spark_jobs.Trickle(run.begun, PAUSE_S)
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS, step=trickle)
    assert run.end(run.meet(workers_killed(run, killed), FAULT_AT)).error is None
    expect_repeats(run, record, way, "the Python worker of a task killed (SIGKILL)", len(killed))


@pytest.mark.parametrize("way", ["format", pytest.param("publish", marks=pytest.mark.representative)])
def test_tasks_that_fail_half_way_lose_no_row(
    way: str, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared({"ordering": "per-key", "maxInFlight": "500"})
    fails = spark_jobs.FailHalfWay(frozenset({0, 2}), ROWS // PARTITIONS // 2, run.begun)
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS, step=fails)
    assert run.end(run.meet(nullcontext(), FAULT_AT)).error is None
    expect_repeats(run, record, way, "two tasks fail half way", 2)


@pytest.mark.parametrize("way", [pytest.param("format", marks=pytest.mark.representative), "publish"])
def test_a_cancelled_job_leaves_no_connection(
    way: str, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared({"ordering": "per-key"})
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS)
    ended = run.end(run.meet(cancelled(run), FAULT_AT))
    assert ended.error is not None
    assert "cancel" in ended.error.lower()
    assert run.report["failed"]
    history = run.history(ROWS, run.report["confirmed"], ordered=True)
    record(history, path=BATCH_PATHS[way], fault="the job cancelled", promise=ENDS, outcome=ended.outcome)

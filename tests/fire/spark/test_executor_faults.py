"""Writes whose executors die, or whose shuffle files are lost, on a Spark with two executors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import spark_jobs
from delivery_checker import Judge
from spark_runs import BATCH_PATHS, STREAM_PATHS, SparkRun, reports_in
from stream_files import StreamFiles

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

MASTER = "local-cluster[2,1,1024]"
ROWS = 100_000
PARTITIONS = 6
FAULT_AT = 10_000
REPEATS = (
    "The write succeeds: Spark runs tasks or stages again. Every row is in its queue at least once, and a note of the report "
    "says that rows may be there twice."
)


@contextmanager
def executor_killed(run: SparkRun) -> Iterator[None]:
    """Kill one whose tasks publish; the shuffle files that it has written go with it."""
    os.kill(run.those_that_publish(run.driver.executors)[0].pid, signal.SIGKILL)
    yield


@contextmanager
def shuffle_lost(run: SparkRun) -> Iterator[None]:
    """Delete what the map stage has written, before all tasks have read it."""
    files = [path for path in (run.driver.folder / "scratch").rglob("shuffle_*") if path.is_file()]
    assert files
    for path in files:
        path.unlink()
    yield


@pytest.mark.parametrize("way", BATCH_PATHS)
@pytest.mark.parametrize(
    ("fault", "words"),
    [(executor_killed, "an executor killed (SIGKILL)"), (shuffle_lost, "all shuffle files lost")],
    ids=["executor_killed", "shuffle_lost"],
)
def test_a_batch_write_loses_no_row_with_its_executors(
    way: str,
    fault: Callable[[SparkRun], AbstractContextManager[None]],
    words: str,
    prepared: Callable[..., SparkRun],
    record: Judge,
) -> None:
    run = prepared()
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS)
    assert run.end(run.meet(fault(run), FAULT_AT)).error is None
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    assert any("may be in the queues twice" in note for note in report["notes"])
    history = run.history(ROWS, range(ROWS), ordered=False)
    record(history, path=BATCH_PATHS[way], fault=words, promise=REPEATS)


@pytest.mark.parametrize("way", STREAM_PATHS)
def test_a_stream_loses_no_row_with_its_executors(
    way: str, files: StreamFiles, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared()
    run.begin(spark_jobs.stream_files, way=way, source=files.source, checkpoint=files.checkpoint)
    assert run.end(run.meet(executor_killed(run), files.rows // 2)).error is None
    reports = reports_in(run.report_path)
    assert [report["confirmed"] for report in reports] == [files.rows_each] * files.count
    assert any("may be in the queues twice" in note for report in reports for note in report["notes"])
    history = run.history(files.rows, range(files.rows), ordered=False)
    record(history, path=STREAM_PATHS[way], fault="an executor killed (SIGKILL)", promise=REPEATS)

"""Streams whose driver dies, Python and JVM by SIGKILL, and which another driver takes up on the same checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import spark_jobs
from delivery_checker import History, Judge
from fire_site import Site
from spark_driver import SparkDriver
from spark_runs import STREAM_PATHS, SparkRun, reports_in
from stream_files import StreamFiles

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

ONE_BATCH = "Nothing of the dead driver lives on. Its successor repeats the batch that was under way, and no other; no row is lost."
NO_BATCH = "The successor goes on with the next batch. No row is lost or repeated."


@pytest.fixture
def started(site: Site, tmp_path: Path, start_driver: Callable[[], SparkDriver]) -> Callable[[], SparkRun]:
    """Starts a driver, and prepares its run."""
    return lambda: SparkRun(start_driver(), site, tmp_path / "run", {"messageId": "auto"})


def history_of_stream(run: SparkRun, files: StreamFiles, repeated: int) -> History:
    """All batches have reports."""
    reports = reports_in(run.report_path)
    assert [report["confirmed"] for report in reports] == [files.rows_each] * files.count
    return run.history(files.rows, range(files.rows), ordered=False, republished=repeated)


@pytest.mark.parametrize("way", [pytest.param("format", marks=pytest.mark.representative), "foreachBatch"])
def test_a_driver_that_dies_in_a_batch_publishes_each_row(
    way: str, files: StreamFiles, started: Callable[[], SparkRun], record: Judge
) -> None:
    arguments = {"way": way, "source": files.source, "checkpoint": files.checkpoint}
    first = started()
    first.begin(spark_jobs.stream_files, **arguments)
    first.site.wait_for_rows(files.rows // 2, 120)
    first.driver.kill()  # raises if a process of it lives on
    first.begun.touch()
    second = started()
    second.begin(spark_jobs.stream_files, **arguments)
    assert second.end_unharmed().error is None
    history = history_of_stream(second, files, files.rows_each)
    assert len(files.batches_with_copies(history.found)) == 1
    record(
        history,
        path=STREAM_PATHS[way],
        fault="the driver killed (SIGKILL), Python and JVM, in the middle of a batch",
        promise=ONE_BATCH,
    )


@pytest.mark.parametrize("way", STREAM_PATHS)
def test_a_driver_that_dies_between_batches_publishes_each_row(
    way: str, files: StreamFiles, started: Callable[[], SparkRun], record: Judge
) -> None:
    arguments = {"way": way, "source": files.source, "checkpoint": files.checkpoint, "step": None}
    with files.last_withheld():
        first = started()
        first.begin(spark_jobs.stream_files, **arguments, forever=True)
        files.wait_for_commit(files.count - 2, 120)
        first.driver.kill()
    second = started()
    second.begin(spark_jobs.stream_files, **arguments)
    assert second.end_unharmed().error is None
    history = history_of_stream(second, files, 0)
    record(
        history,
        path=STREAM_PATHS[way],
        fault="the driver killed (SIGKILL), Python and JVM, between two batches",
        promise=NO_BATCH,
    )

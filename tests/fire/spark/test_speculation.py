"""A write under `spark.speculation`: a copy of a slow task wins, and both publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import spark_jobs
from delivery_checker import Verdict
from spark_driver import SparkDriver
from spark_runs import BATCH_PATHS, SparkRun, history_of
from standalone_spark import standalone_spark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

HOSTS = ("127.0.0.1", "127.0.0.2")  # a copy of a task runs on another machine, or not at all
CONF = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}
ROWS = 60_000
PARTITIONS = 4
PAUSE_S = 0.5


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A Spark with two workers of one core."""
    folder = tmp_path_factory.mktemp("spark")
    with standalone_spark(folder / "cluster", cores=1, hosts=HOSTS) as cluster:
        driver = SparkDriver(folder, cluster.master, CONF)
        yield driver
        driver.stop()


@pytest.mark.parametrize("way", BATCH_PATHS)
def test_a_slow_task_and_its_copy_lose_no_row(
    way: str, prepared: Callable[..., SparkRun], record: Callable[..., Verdict]
) -> None:
    run = prepared()
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS, step=spark_jobs.SlowFirst(PAUSE_S))
    assert run.end_unharmed().error is None
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    assert any("spark.speculation is on" in note for note in report["notes"])
    slow = next(task for task in report["tasks"] if task["partition"] == 0)
    assert slow["attempt"] == 1, "the copy has not won"
    history = history_of(run.site, ROWS, range(ROWS), ordered=False, republished=slow["rows"])
    run.search_for_the_password()
    verdict = record(
        history,
        path=BATCH_PATHS[way],
        fault="a slow task, and spark.speculation on",
        promise="The write succeeds. Rows of the slow task may be there twice, once by each copy; a note of the report says so.",
    )
    assert verdict.duplicated

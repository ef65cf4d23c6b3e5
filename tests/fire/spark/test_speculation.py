"""A write under `spark.speculation`: a copy of a slow task wins, and both publish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import spark_jobs
from delivery_checker import Judge
from spark_runs import BATCH_PATHS, SparkRun

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(400)]

#: Workers of one core. A copy of a task runs on another machine, or not at all.
CLUSTER = {"cores": 1, "hosts": ("127.0.0.1", "127.0.0.2")}
CONF = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}
ROWS = 60_000
PARTITIONS = 4
PAUSE_S = 0.5


@pytest.mark.parametrize("way", BATCH_PATHS)
def test_a_slow_task_and_its_copy_lose_no_row(
    way: str, prepared: Callable[..., SparkRun], record: Judge, tmp_path: Path
) -> None:
    run = prepared()
    slow_first = spark_jobs.SlowFirst(PAUSE_S, tmp_path / "begun")
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS, step=slow_first)
    assert run.end_unharmed().error is None
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    assert any("spark.speculation is on" in note for note in report["notes"])
    slow = next(task for task in report["tasks"] if task["partition"] == 0)
    assert slow["attempt"] == 1, "the copy has not won"
    history = run.history(ROWS, range(ROWS), ordered=False, republished=slow["rows"])
    verdict = record(
        history,
        path=BATCH_PATHS[way],
        fault="a slow task, and spark.speculation on",
        promise="The write succeeds. Rows of the slow task may be there twice, once by each copy; a note of the report says so.",
    )
    assert verdict.duplicated

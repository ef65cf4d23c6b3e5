"""A write under `spark.speculation`: a copy of a slow task wins, and both publish: into queues, and into streams exactly once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import spark_jobs
from delivery_checker import Judge
from spark_driver import SparkDriver
from spark_runs import BATCH_PATHS, SparkRun
from stream_site import each_form, of_form, stream_site_on

from rabbit_chx.testing import RunningBroker

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
#: The slow task gets so many rows and waits until its copy has won: it has sent 32,700 rows, which it does when it has twice as many.
ONCE_ROWS, GOT_ROWS, STORED_ROWS = 250_000, 75_000, 30_000
LONG_PAUSE_S = 60.0


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


@each_form
def test_a_slow_task_and_its_copy_store_each_row_once(
    driver: SparkDriver, vhost: RunningBroker, record: Judge, tmp_path: Path, entries: dict[str, str]
) -> None:
    with stream_site_on(vhost) as site:
        run = SparkRun(driver, site, tmp_path, {**site.options, "appId": "fire", "version": "1", **entries})
        slow_first = spark_jobs.SlowFirst(LONG_PAUSE_S, run.begun, GOT_ROWS)
        run.begin(spark_jobs.write_once, rows=ONCE_ROWS, ring=site.ring.to_json(), step=slow_first)
        streams = [str(site.ring.destination_for(spark_jobs.key_of(row))) for row in range(ONCE_ROWS)]
        others = ONCE_ROWS - streams.count(str(site.ring.destinations[0]))
        run.meet(nullcontext(), others + STORED_ROWS)
        assert run.end_unharmed().error is None
        report = run.report
        assert report["confirmed"] == report["rows"] == ONCE_ROWS
        assert not any("speculation" in note for note in report["notes"])
        slow = next(task for task in report["tasks"] if task["partition"] == 0)
        assert slow["attempt"] == 1, "the copy has not won"
        assert 0 < report["streams"]["known"] < slow["rows"], (
            "the slow task has stored no part of its rows: this shows nothing"
        )
        record(
            site.history(ONCE_ROWS, range(ONCE_ROWS)),
            path="Spark into streams, exactly once",
            fault=of_form("a slow task, and spark.speculation on", entries),
            promise="The write succeeds: the copy of the task sends all its rows. Every row is in its stream once.",
        )

"""The examples, on part of their real data."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scripts import run_python

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS = 5_000


def example(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


@pytest.fixture(scope="module")
def csv() -> Path:
    path: Path = example("flights_data").flights_csv()
    return path


@pytest.mark.slow
def test_placement_predicts_the_queue_of_each_task(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = example("placement").run(vhost, spark, csv, ROWS)
    assert report.confirmed == ROWS
    assert all(len(task.predicted) == 1 for task in report.tasks if task.rows)
    said = capsys.readouterr().out
    assert "dry run, nothing was sent: 5,000 rows" in said
    assert "(read ring)" in said


def test_foreach_batch_confirms_all_rows(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = example("foreach_batch").run(vhost, spark, csv, ROWS)
    assert sum(report.confirmed for report in reports) == ROWS
    assert [report.batch_id for report in reports] == [0, 1, 2]
    assert "batch 2: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.pyspark("4.2", "readStream.format('rabbitmq')")
def test_stream_to_stream_copies_each_row_once(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example("stream_to_stream").run(vhost, spark, csv, ROWS)
    said = capsys.readouterr().out
    assert "mismatches 0, missing 0, repeated 0" in said
    assert "5,000 flights" in said


@pytest.mark.slow
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.usefixtures("csv")
def test_connect(vhost_url: str) -> None:
    done = run_python(EXAMPLES / "connect.py", "--limit", ROWS, "--url", vhost_url)
    assert "written  5,000 rows" in done.stdout
    assert "dry run  True" in done.stdout
    assert "published 5,000 of 5,000 rows by 6 tasks" in done.stdout
    assert "guest:guest" not in done.stdout + done.stderr

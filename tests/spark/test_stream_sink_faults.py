"""Exactly once into a super stream: two jobs at once, and copies of tasks; tests/fire/spark has other faults.

`verify=full` counts the rows in each write, and the tests read them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_driver import SparkDriver
from standalone_spark import standalone_spark
from stream_sink_jobs import (
    Hold,
    SlowFirst,
    expected,
    found,
    load_into,
    orders_in,
    wait_for_rows,
    write,
)

from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.chx_broker(">=3.13"),
    pytest.mark.pyspark("4.0", "format('rabbitmq')"),
    pytest.mark.timeout(400),
]

#: Each stream has more of them than are published at once.
ROWS = 125_000
#: Of a task, behind the rows that are published at first, and those that are on the way to it in buffers.
HALF_WAY = 37_000


@pytest.fixture
def url(vhost: RunningBroker) -> str:
    """The stream URL of a vhost with the super stream `orders`."""
    return orders_in(vhost)


@pytest.fixture
def options(url: str) -> dict[str, Any]:
    return load_into(url)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A Spark that tries each task four times."""
    driver = SparkDriver(tmp_path_factory.mktemp("spark"), "local[2,4]")
    yield driver
    driver.stop()


@pytest.mark.slow
def test_the_second_of_two_identical_jobs_ends_and_no_row_is_doubled(
    driver: SparkDriver, url: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The second one begins when the first has published some rows, and waits. It ends, and the first goes on."""
    go_on = tmp_path / "go on"
    first = driver.begin(write, rows=ROWS, options=options, step=Hold(frozenset({0}), go_on, after=HALF_WAY))
    wait_for_rows(url, HALF_WAY // 2, lambda: not driver.has_answered(first))
    report = driver.at_once(write, within_s=200, rows=ROWS, options=options)
    assert report["streams"]["verified"] == ROWS
    go_on.touch()
    assert driver.answer(first, 120)["streams"]["verified"] == ROWS
    assert found(url) == expected(ROWS)


@pytest.mark.slow
def test_a_speculative_copy_of_a_task_doubles_no_row(
    url: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A copy of a slow task publishes its rows while the task has published a part of them."""
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
    }
    with standalone_spark(tmp_path / "cluster", cores=2, hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        driver = SparkDriver(tmp_path / "spark", cluster.master, conf)
        # A task publishes 32,768 rows or more at a time, and holds them until the next ones have come.
        rows = 270_000
        step = SlowFirst(80_000, 60.0, tmp_path / "published")
        report = driver.run(write, rows=rows, options=options, step=step)
        driver.stop()
    slow = next(task for task in report["tasks"] if task["partition"] == 0)
    assert slow["attempt"] == 1, "the copy has not won"
    assert (report["streams"]["verified"], report["notes"]) == (rows, [])
    assert report["streams"]["known"] > 0
    assert found(url) == expected(rows)

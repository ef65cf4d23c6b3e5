"""Batch writes by Spark, while things happen to the broker and to the line to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import spark_jobs
from fire_site import Site, site_on
from site_faults import FAULTS, SiteFault
from spark_driver import SparkDriver
from spark_runs import SparkRun, history_of, keeps_its_ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delivery_checker import Verdict

    from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.chx_broker(restartable=True),
    pytest.mark.timeout(600),
]

ROWS = 100_000
PARTITIONS = 4
FAULT_AT = 15_000
PATHS = {"format": "Spark batch", "publish": "Spark batch, publish()"}
SUCCEEDS = (
    "The write succeeds without a task being repeated. Every row is in a queue; rows of a key come in order, and the report "
    "counts each copy."
)
FAILS = "The write fails and says why. Rows that its report calls confirmed are in their queues."


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A Spark that tries each task four times."""
    driver = SparkDriver(tmp_path_factory.mktemp("spark"), "local[2,4]")
    yield driver
    driver.stop()


@pytest.fixture
def site(vhost: RunningBroker) -> Iterator[Site]:
    """The exchange and its queues."""
    with site_on(vhost) as site:
        site.declare()
        yield site


@pytest.fixture
def prepared(driver: SparkDriver, site: Site, tmp_path: Path) -> Callable[..., SparkRun]:
    """Prepares a run of the driver on the site: ``prepared(options, by_proxy=False)``."""

    def prepare(options: dict[str, str], *, by_proxy: bool = False) -> SparkRun:
        return SparkRun(driver, site, tmp_path, options, by_proxy=by_proxy)

    return prepare


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_middle_of_a_write(
    way: str, fault: SiteFault, prepared: Callable[..., SparkRun], record: Callable[..., Verdict]
) -> None:
    run = prepared({"ordering": "per-key", **fault.options}, by_proxy=fault.by_proxy)
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS)
    ended = run.end(run.meet(fault.happen(run.site), FAULT_AT))

    report = run.report
    if fault.fails_with is None:
        assert ended.error is None
        assert report["confirmed"] == report["rows"] == ROWS
        assert [task["attempt"] for task in report["tasks"]] == [0] * PARTITIONS
        assert bool(report["reconnects"]) == any("connections were lost" in note for note in report["notes"])
    else:
        assert ended.error is not None
        assert re.search(fault.fails_with, ended.error)
        assert report["failed"]
    history = history_of(
        run.site,
        ROWS,
        range(ROWS) if ended.error is None else report["confirmed"],
        ordered=True,
        placed=not fault.restarts or keeps_its_ring(run.site.broker.version),
        republished=report["republished"] if ended.error is None else None,
        loses=fault.loses,
    )
    if fault.mend is not None:
        fault.mend(run.site)  # the user is removed at the end
    run.site.wait_for_no_connection(60)
    run.search_for_the_password()
    record(
        history,
        path=PATHS[way],
        fault=fault.words,
        promise=SUCCEEDS if fault.fails_with is None else FAILS,
        recover_s=ended.recover_s,
        outcome=ended.outcome,
    )

"""A stream that runs for long while its broker is killed and started again and again (``make long WHAT=soak``)."""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import spark_jobs
from bounded import until
from broker_faults import faults_of
from canary import traces_of_canary
from delivery_checker import Attempt, History, Judge
from fire_queues import EXCHANGE, QUEUES
from fire_site import Site, site_on
from memory_slope import Samples
from process_table import Process
from row_reader import reading
from spark_driver import SparkDriver
from spark_runs import reports_in

from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.soak,
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(0),
]

ROWS_PER_BATCH = 2_000
EVERY_S = 1.0
RESTART_EVERY_S = 180.0
SAMPLE_EVERY_S = 10.0
#: What a process loads and keeps in its first minutes is no growth.
WARM_UP = 1 / 3
#: A MB at each restart is 20 MB/h, and 10 kB for each batch 36 MB/h. The JVM is Spark's: outside of its heap it grows slowly for
#: long, so there the heap that lives tells more.
MOST_MB_PER_HOUR = {
    "driver, JVM": 30.0,
    "driver, JVM, live heap": 10.0,
    "driver, Python": 10.0,
    "planners, Python": 10.0,
    "tasks, Python": 10.0,
}
MOST_FILES_PER_HOUR = 10.0
#: What was acknowledged so long before a kill does not come back.
SETTLE_S = 5.0
DOWN_S = 2.0
END_S = 120.0
CONF = {
    # The heap has its size from the start, so what the JVM holds beside it is seen.
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
    # Spark keeps what it shows in its UI, up to these numbers.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
}


def role_of(process: Process) -> str:
    """What a process of a driver does."""
    if "java" in process.command.split(" ", 1)[0]:
        return "driver, JVM"
    if "pyspark.daemon" not in process.command:
        return "driver, Python"
    return "tasks, Python" if process.command.split()[-1] == "pyspark.worker" else "planners, Python"


class Soak:
    """The stream, and what is seen of it."""

    def __init__(self, site: Site, driver: SparkDriver) -> None:
        self._site = site
        self._driver = driver
        self._began = time.monotonic()
        self.samples = Samples(role_of)
        self.found: dict[str, list[int]] = {}
        self.restarts = 0
        self.read_again_s: list[float] = []

    @property
    def age_s(self) -> float:
        """How many seconds it runs."""
        return time.monotonic() - self._began

    def read_and_sample(self, until_s: float) -> None:
        """Read the queues and take samples until the soak has this age."""
        with reading(self._site.broker.url, QUEUES, self.found) as queues:
            while (left := until_s - self.age_s) > 0:
                queues.read(min(left, SAMPLE_EVERY_S))
                heap = self._driver.at_once(spark_jobs.live_heap)
                self.samples.add(self.age_s, self._driver.processes, {"driver, JVM, live heap": heap})

    def restart(self) -> None:
        """Kill the broker and start it; note how long it takes until rows are read again."""
        time.sleep(SETTLE_S)
        faults_of(self._site.broker).kill()
        time.sleep(DOWN_S)
        faults_of(self._site.broker).start()
        ended = time.monotonic()
        with reading(self._site.broker.url, QUEUES, self.found) as queues:
            before = queues.count
            while queues.count == before:
                assert time.monotonic() < ended + END_S, "no row comes after a restart"
                queues.read(0.2)
        self.read_again_s.append(time.monotonic() - ended)
        self.restarts += 1

    def read_to_end(self) -> tuple[str, ...]:
        """Read what is left; return the queues that could not be read to their end."""
        with reading(self._site.broker.url, QUEUES, self.found) as queues:
            queues.to_end(END_S)
        return queues.unread

    def wait_for_no_connection(self) -> None:
        """Wait until the vhost has no connection and no channel; those of a client that is gone have time to go."""
        request, vhost = self._site.management.request, self._site.vhost
        until(
            lambda: (
                not request("GET", "vhosts", vhost, "connections")
                and not request("GET", "vhosts", vhost, "channels")
            ),
            "no connection and no channel",
            END_S,
            1,
        )


def history_of(
    found: dict[str, list[int]], unread: tuple[str, ...], reports: list[dict[str, Any]]
) -> History:
    """A batch has the rows from its number times the size of all."""
    keys = [spark_jobs.key_of(number) for number in range(spark_jobs.KEYS)]
    batches = max(report["batch_id"] for report in reports) + 2  # one may be under way at the end
    confirmed = [
        row
        for report in reports
        for row in range(report["batch_id"] * ROWS_PER_BATCH, (report["batch_id"] + 1) * ROWS_PER_BATCH)
    ]
    return History(
        attempted=[Attempt(row, keys[row % spark_jobs.KEYS]) for row in range(batches * ROWS_PER_BATCH)],
        acked=confirmed,
        found=found,
        unread=unread,
        republished=sum(report["republished"] for report in reports),
    )


def test_memory_is_flat_and_nothing_is_lost(
    vhost: RunningBroker, tmp_path: Path, record: Judge, pytestconfig: pytest.Config
) -> None:
    length_s = 60 * pytestconfig.getoption("--soak-minutes")
    reports = tmp_path / "reports"
    with site_on(vhost) as site:
        site.declare()
        driver = SparkDriver(tmp_path / "spark", "local[2,4]", CONF)
        try:
            soak = Soak(site, driver)
            stream = driver.begin(
                spark_jobs.stream_forever,
                rows_per_batch=ROWS_PER_BATCH,
                every_s=EVERY_S,
                checkpoint=tmp_path / "checkpoint",
                options={"url": site.url, "exchange": EXCHANGE, "reportPath": str(reports)},
            )
            for number in count(1):
                soak.read_and_sample(min(number * RESTART_EVERY_S, length_s))
                if soak.age_s >= length_s:
                    break
                soak.restart()
            driver.at_once(spark_jobs.stop_streams)
            driver.answer(stream, END_S)
            unread = soak.read_to_end()
        finally:
            driver.stop()  # raises if a process lives on
        soak.wait_for_no_connection()

    growth = soak.samples.growth(WARM_UP * length_s, 0.9 * (1 - WARM_UP) * length_s)
    assert {process["what"] for process in growth} == set(MOST_MB_PER_HOUR)
    assert not [process for process in growth if process["mb_per_hour"] > MOST_MB_PER_HOUR[process["what"]]]
    assert not [process for process in growth if (process["files_per_hour"] or 0.0) > MOST_FILES_PER_HOUR]
    assert not traces_of_canary(tmp_path)
    verdict = record(
        history_of(soak.found, unread, reports_in(reports)),
        path="Spark stream",
        fault=f"broker killed (SIGKILL) and started again {soak.restarts} times in {length_s / 60:g} minutes",
        promise="The query goes on. Every row of a batch that has a report is in a queue. Memory stays flat, and nothing is left "
        "on the broker.",
    )
    results: Path | None = pytestconfig.getoption("--soak-results")
    if results is not None:
        measured = {
            "release": vhost.version,
            "machine": f"{os.cpu_count()} shared cores",
            "minutes": length_s / 60,
            "rows": verdict.attempted,
            "lost": verdict.faults.get("lost", 0),
            "repeated": verdict.duplicated,
            "restarts": soak.restarts,
            "read_again_within_s": round(max(soak.read_again_s, default=0.0), 1),
            "left": {"connections": 0, "channels": 0},
            "most_mb_per_hour": MOST_MB_PER_HOUR,
            "growth": growth,
        }
        results.write_text(json.dumps(measured, indent=2) + "\n")

"""Spark reads streams and writes streams, each row once through both, while the driver, workers and the broker die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_jobs
from broker_faults import faults_of
from cluster import RunningCluster
from delivery_checker import Judge
from fire_streams import leader_of
from spark_driver import SparkDriver
from spark_runs import SparkRun
from stream_site import StreamSite, each_form, of_form, stream_site_on

from rabbit_chx import StreamPublisher
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.timeout(400),
]

SOURCES = ("source-0", "source-1")
ROWS, PER_BATCH = 60_000, 12_000
PATH = "Spark from streams into streams, exactly once"
SUCCEEDS = "The successor goes on from the checkpoint. Every row is in its stream once."
GOES_ON = "The query goes on. Every row is in its stream once."
#: Rows that two tasks of each micro-batch have passed on when they fail: they have about 3,000.
FAIL_AT = 1_500


@contextmanager
def site_with_sources(vhost: RunningBroker, cluster: RunningCluster | None = None) -> Iterator[StreamSite]:
    """Make the exchange and its streams, and the streams that are read, with all their rows."""
    with closing(StreamConnection(stream_settings(str(vhost.stream_url)))) as connection:
        for stream in SOURCES:
            connection.create_stream(stream, {} if cluster is None else {"initial-cluster-size": "3"})
    with stream_site_on(vhost, cluster) as site:
        for number, stream in enumerate(SOURCES):
            rows = range(number, ROWS, len(SOURCES))
            with StreamPublisher(
                site.stream_urls, stream=stream, name="source", addresses=site.addresses
            ) as publisher:
                for start in range(0, len(rows), 500):  # some chunks
                    some = rows[start : start + 500]
                    publisher.publish_many(
                        [spark_jobs.key_of(row) for row in some],
                        [f"{row} {'.' * 80}" for row in some],
                        ids=np.arange(start + 1, start + 1 + len(some)),
                    )
        yield site


@pytest.fixture
def site(vhost: RunningBroker) -> Iterator[StreamSite]:
    """A site on one broker."""
    with site_with_sources(vhost) as site:
        yield site


def started(
    site: StreamSite, driver: SparkDriver, tmp_path: Path, *, step: Any = None, **options: str
) -> SparkRun:
    """Begin the query; a second driver continues where the first one was."""
    run = SparkRun(driver, site, tmp_path / "run", site.options | options)
    run.begin(
        spark_jobs.stream_to_stream,
        source={
            "url": site.url,
            "stream": ",".join(SOURCES),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(PER_BATCH),
            **site.reach,
        },
        ring=site.ring.to_json(),
        checkpoint=tmp_path / "checkpoint",
        step=step,
    )
    return run


@pytest.fixture
def start(
    site: StreamSite, start_driver: Callable[[], SparkDriver], tmp_path: Path
) -> Callable[[], SparkRun]:
    """Starts a driver on the site."""
    return lambda: started(site, start_driver(), tmp_path)


@pytest.mark.own_broker
@pytest.mark.parametrize("at_row", [1, PER_BATCH, ROWS // 2], ids=["first_batch", "second_batch", "middle"])
def test_a_dead_driver_copies_each_row_once(
    at_row: int, site: StreamSite, start: Callable[[], SparkRun], record: Judge
) -> None:
    first = start()
    site.wait_for_rows(at_row, 120)
    first.driver.kill()
    there = site.rows_there()
    second = start()
    assert second.end_unharmed().error is None
    assert there < ROWS, "the query ended before the driver died"
    record(
        site.history(ROWS, range(ROWS)),
        path=PATH,
        fault=f"the driver killed (SIGKILL), Python and JVM, behind row {at_row:,}",
        promise=SUCCEEDS,
    )


@pytest.mark.own_broker
def test_a_dead_worker_and_a_dead_broker_copy_each_row_once(
    site: StreamSite, start: Callable[[], SparkRun], record: Judge
) -> None:
    run = start()
    site.wait_for_rows(PER_BATCH, 120)
    for worker in run.driver.workers():
        os.kill(worker.pid, signal.SIGKILL)
    site.wait_for_rows(ROWS // 2, 120)
    faults_of(site.broker).kill()
    faults_of(site.broker).start()
    assert run.end_unharmed().error is None
    record(
        site.history(ROWS, range(ROWS)),
        path=PATH,
        fault="all Python workers killed (SIGKILL), then the broker, which is started again",
        promise=GOES_ON,
    )


@each_form
def test_tasks_that_fail_half_way_copy_each_row_once(
    site: StreamSite,
    start_driver: Callable[[], SparkDriver],
    record: Judge,
    tmp_path: Path,
    entries: dict[str, str],
) -> None:
    """Rows that a task has stored without the others would be lost without an error: the last row alone is compared."""
    begun = tmp_path / "begun"
    begun.touch()
    step = spark_jobs.FailHalfWay(frozenset({0, 2}), FAIL_AT, begun)
    run = started(site, start_driver(), tmp_path, step=step, verify="tail", **entries)
    assert run.end_unharmed().error is None
    record(
        site.history(ROWS, range(ROWS)),
        path=PATH,
        fault=of_form("two tasks of each micro-batch fail half way, behind the placing", entries),
        promise=GOES_ON,
    )


@pytest.mark.docker
def test_a_dead_leader_of_three_nodes_copies_each_row_once(
    cluster_vhost: RunningBroker,
    chx_cluster: RunningCluster,
    record: Judge,
    start_driver: Callable[[], SparkDriver],
    tmp_path: Path,
) -> None:
    with site_with_sources(cluster_vhost, chx_cluster) as site:
        run = started(site, start_driver(), tmp_path)
        site.wait_for_rows(PER_BATCH, 120)
        leader = leader_of(chx_cluster, site.stream_urls, site.queues[0])
        faults_of(leader).kill()
        site.wait_for_rows(ROWS // 2, 180)
        faults_of(leader).start()
        assert run.end_unharmed().error is None
        chx_cluster.wait_until_together()
        record(
            site.history(ROWS, range(ROWS)),
            path=f"{PATH}, three nodes",
            fault="a node that leads a stream killed (SIGKILL), and started again later",
            promise=GOES_ON,
        )

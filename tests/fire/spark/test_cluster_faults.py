"""Writes from a standalone Spark cluster to three nodes, whose queues are quorum queues, while nodes go and come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spark_jobs
from blocks import ROOT
from canary import CANARY
from cluster import RunningCluster
from declared import with_login
from delivery_checker import Judge
from fire_site import Site, site_on
from site_faults import at_once
from spark_driver import SparkDriver
from spark_runs import SparkRun, reports_in
from stream_files import StreamFiles
from three_nodes import (
    LEADER_CUT_OFF,
    LEADER_KILLED,
    QUORUM,
    ROLLING_RESTART,
    TWO_OF_THREE_LOST,
    NodeFault,
    ThreeNodes,
)

from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.timeout(900),
]

CLUSTER: dict[str, Any] = {}
CONF = {"spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(spark_jobs.__file__).parent)])}
ROWS = 120_000
PARTITIONS = 4
FAULT_AT = 5_000
#: Before the fault is over, each task sends 500 rows in so many seconds, so that the rows last.
PAUSE_S = 2.0
IN_ORDER = (
    "Every row is in its queue, and rows of a key come in order. No task is repeated; tasks whose node is gone go on at another one, "
    "and tasks whose queue has no majority wait."
)
IN_ANY_ORDER = (
    "Every row is in its queue. No task is repeated; tasks whose node is gone go on at another one."
)
WITH_REFUSALS = (
    "Every row is in its queue. No task is repeated; tasks wait for the majority. A queue without a leader may refuse rows: they "
    "are sent again, and may be overtaken (with ordering=per-key the task is repeated instead)."
)


@pytest.fixture
def site(cluster_vhost: RunningBroker) -> Iterator[Site]:
    """The exchange and its quorum queues, on the nodes."""
    with site_on(cluster_vhost) as site:
        site.declare(QUORUM)
        yield site


@pytest.fixture
def run(driver: SparkDriver, site: Site, chx_cluster: RunningCluster, tmp_path: Path) -> SparkRun:
    """A run that has the URLs of all nodes."""
    nodes = chx_cluster.in_vhost(site.vhost)
    urls = ",".join(with_login(node.url, site.user, CANARY) for node in nodes)
    return SparkRun(driver, site, tmp_path, {"url": urls})


def recovered_s(run: SparkRun, cluster: RunningCluster, fault: NodeFault) -> float:
    """Let a fault happen to a run that has begun; return how long after it more rows came, when the run has ended."""
    happen = at_once(lambda site: fault.happen(ThreeNodes(cluster, site.vhost)))
    ended = run.end(run.meet(happen(run.site), FAULT_AT))
    assert ended.error is None
    assert ended.recover_s is not None, (
        "the rows ended before the fault, so this shows nothing of the time after it"
    )
    run.site.wait_for_no_connection(60)
    return ended.recover_s


@pytest.mark.parametrize(
    "fault",
    [LEADER_KILLED, TWO_OF_THREE_LOST, ROLLING_RESTART, LEADER_CUT_OFF],
    ids=lambda fault: fault.name,
)
def test_nodes_that_go_and_come_lose_no_row_of_a_write(
    fault: NodeFault,
    run: SparkRun,
    chx_cluster: RunningCluster,
    record: Judge,
) -> None:
    run.options["ordering"] = "none" if fault.refuses else "per-key"
    if fault.heartbeat_s is not None:
        run.options["heartbeat"] = str(fault.heartbeat_s)
    trickle = spark_jobs.Trickle(run.begun, PAUSE_S)
    run.begin(spark_jobs.write, way="format", rows=ROWS, partitions=PARTITIONS, step=trickle)
    recover_s = recovered_s(run, chx_cluster, fault)
    report = run.report
    assert report["confirmed"] == report["rows"] == ROWS
    assert [task["attempt"] for task in report["tasks"]] == [0] * PARTITIONS
    assert report["reconnects"] >= 1, "four tasks are spread over three nodes"
    record(
        run.history(ROWS, range(ROWS), ordered=not report["retried"], republished=report["republished"]),
        path="Spark batch, standalone cluster, three nodes",
        fault=fault.words,
        promise=WITH_REFUSALS if fault.refuses else IN_ORDER,
        recover_s=recover_s,
    )


def test_a_rolling_restart_loses_no_row_of_a_stream(
    run: SparkRun,
    chx_cluster: RunningCluster,
    record: Judge,
    tmp_path: Path,
) -> None:
    files = StreamFiles(tmp_path / "stream", count=6, rows_each=ROWS // 6)
    files.write()
    trickle = spark_jobs.Trickle(run.begun, PAUSE_S)
    run.begin(
        spark_jobs.stream_files, way="format", source=files.source, checkpoint=files.checkpoint, step=trickle
    )
    recover_s = recovered_s(run, chx_cluster, ROLLING_RESTART)
    batches = reports_in(run.report_path)
    assert sum(batch["confirmed"] for batch in batches) == ROWS
    assert sum(batch["reconnects"] for batch in batches) >= 1
    republished = sum(batch["republished"] for batch in batches)
    record(
        run.history(ROWS, range(ROWS), ordered=False, republished=republished),
        path="Spark stream, standalone cluster, three nodes",
        fault=ROLLING_RESTART.words,
        promise=IN_ANY_ORDER,
        recover_s=recover_s,
    )

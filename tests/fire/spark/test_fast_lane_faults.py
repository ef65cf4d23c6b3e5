"""Batch writes that route by themselves (`routing=client`), while things happen to the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import spark_jobs
from delivery_checker import Judge
from quick_rings import quick_prefix
from site_faults import FAULTS, SiteFault
from spark_runs import BATCH_PATHS, SparkRun

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.chx_broker(">=4.2"),  # where a start brings the same ring again
    pytest.mark.timeout(400),
]

MASTER = "local[2,4]"
ROWS = 100_000
PARTITIONS = 4
FAULT_AT = 60_000
BY_NAME = {fault.name: fault for fault in FAULTS}
KILLED = BY_NAME["killed"]
#: Through the exchange the rows would go to the queues that are left.
QUEUE_DELETED = replace(BY_NAME["queue_deleted"], fails_with="no queue took")
SUCCEEDS = "The write succeeds without a task being repeated. Every row is in the queue that the ring names."
FAILS = (
    "The write fails, since no queue takes the rows of the queue that is gone. Other rows that its report calls confirmed are "
    "in their queues."
)


@pytest.mark.parametrize("way", BATCH_PATHS)
@pytest.mark.parametrize("fault", [KILLED, QUEUE_DELETED], ids=lambda fault: fault.name)
def test_a_fault_in_the_middle_of_a_write_loses_no_confirmed_row(
    way: str, fault: SiteFault, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared({"routing": "client", "ordering": "per-key"})
    run.options["ringVia"] = " ".join(quick_prefix(run.site.broker))
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS)
    ended = run.end(run.meet(fault.happen(run.site), FAULT_AT))
    report = run.report
    fault.check_outcome(ended.error)
    if ended.error is None:
        assert report["confirmed"] == report["rows"] == ROWS
        assert report["reconnects"]
    else:
        assert report["failed"]
    history = run.history(
        ROWS,
        range(ROWS) if ended.error is None else report["confirmed"],
        ordered=True,
        republished=report["republished"] if ended.error is None else None,
        loses=fault.loses,
    )
    record(
        history,
        path=BATCH_PATHS[way],
        fault=f"{fault.words}, routing=client",
        promise=SUCCEEDS if fault.fails_with is None else FAILS,
        recover_s=ended.recover_s,
        outcome=ended.outcome,
    )

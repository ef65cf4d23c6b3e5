"""Batch writes by Spark, while things happen to the broker and to the line to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import spark_jobs
from delivery_checker import Judge
from fire_queues import moved, ring_of
from site_faults import FAULTS, SiteFault
from spark_runs import BATCH_PATHS, SparkRun, counted_copies

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(600),
]

MASTER = "local[2,4]"
ROWS = 100_000
PARTITIONS = 4
FAULT_AT = 60_000  # two tasks are done, and two in the middle
SUCCEEDS = (
    "The write succeeds without a task being repeated. Every row is in a queue; rows of a key come in order, and the report "
    "counts each copy."
)
LOSES = (
    "The write succeeds. The rows of that queue are gone, also confirmed ones; every other row is in a queue. A row that comes when the "
    "queue is gone and its binding is not yet is returned, and Spark repeats its task."
)
FAILS = "The write fails and says why. Rows that its report calls confirmed are in their queues."


def cases() -> Iterator[object]:
    """Every fault, met in both ways."""
    for fault in FAULTS:
        for way in BATCH_PATHS:
            marks = [pytest.mark.representative] if (fault.name, way) == ("killed", "format") else []
            yield pytest.param(way, fault, id=f"{fault.name}-{way}", marks=marks)


@pytest.mark.parametrize(("way", "fault"), list(cases()))
def test_a_fault_in_the_middle_of_a_write_loses_rows_of_a_deleted_queue_only(
    way: str, fault: SiteFault, prepared: Callable[..., SparkRun], record: Judge
) -> None:
    run = prepared({"ordering": "per-key", **fault.options}, by_proxy=fault.by_proxy)
    run.begin(spark_jobs.write, way=way, rows=ROWS, partitions=PARTITIONS)
    ended = run.end(run.meet(fault.happen(run.site), FAULT_AT, connected=True))

    report = run.report
    fault.check_outcome(ended.error)
    if ended.error is None:
        assert report["confirmed"] == report["rows"] == ROWS
        assert fault.loses or not any(task["attempt"] for task in report["tasks"])
        assert fault.leaves is None or report[fault.leaves], "the fault has hit no task"
        assert bool(report["reconnects"]) == any("connections were lost" in note for note in report["notes"])
    else:
        assert report["failed"]
        assert report["confirmed"], "no task was done before the fault"
    history = run.history(
        ROWS,
        range(ROWS) if ended.error is None else report["confirmed"],
        ordered=True,
        placed=fault.keeps_the_ring(run.site.broker.version),
        republished=counted_copies(report) if ended.error is None else None,
        loses=fault.loses,
        rebound=fault.rebinds,
    )
    if fault.mend is not None:
        fault.mend(run.site)  # the user is removed at the end
    run.site.wait_for_no_connection(60)
    record(
        history,
        path=BATCH_PATHS[way],
        fault=fault.words,
        promise=FAILS if fault.fails_with else LOSES if fault.loses else SUCCEEDS,
        recover_s=ended.recover_s,
        moved=moved(history, ring_of(run.site.broker.version)),
        outcome=ended.outcome,
    )

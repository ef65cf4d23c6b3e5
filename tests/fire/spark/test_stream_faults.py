"""Streams, while things happen to the broker and to the line to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import spark_jobs
from delivery_checker import Judge
from fire_queues import moved, ring_of
from site_faults import FAULTS, SiteFault
from spark_runs import STREAM_PATHS, SparkRun, counted_copies, reports_in
from stream_files import StreamFiles

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(600),
]

ATTEMPTS = 4  # of each task, before the query ends
MASTER = f"local[2,{ATTEMPTS}]"
GOES_ON = "The query goes on without a task being repeated. Every row is in a queue; the reports of the batches count each copy."
LOSES = (
    "The query goes on. The rows of that queue are gone, also confirmed ones; every other row is in a queue. A row that comes when the "
    "queue is gone and its binding is not yet is returned, and Spark repeats its task."
)
RESUMES = (
    "The query ends and says why. Started again on its checkpoint when the cause is mended, it repeats the batch, and no row "
    "is lost."
)


@pytest.mark.parametrize("way", STREAM_PATHS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_middle_of_a_batch_loses_rows_of_a_deleted_queue_only(
    way: str,
    fault: SiteFault,
    files: StreamFiles,
    prepared: Callable[..., SparkRun],
    record: Judge,
) -> None:
    ordered = way == "foreachBatch"  # which can place its rows
    run = prepared({"ordering": "per-key" if ordered else "none", **fault.options}, by_proxy=fault.by_proxy)
    arguments = {"way": way, "source": files.source, "checkpoint": files.checkpoint}
    run.begin(spark_jobs.stream_files, **arguments)
    ended = run.end(run.meet(fault.happen(run.site), files.rows // 2, connected=True))
    fault.check_outcome(ended.error)
    if ended.error is not None:
        assert fault.mend is not None
        fault.mend(run.site)
        run.begin(spark_jobs.stream_files, **arguments)
        assert run.end_unharmed().error is None

    reports = reports_in(run.report_path)
    assert [report["confirmed"] for report in reports] == [files.rows_each] * files.count
    assert fault.loses or not any(task["attempt"] for report in reports for task in report["tasks"])
    history = run.history(
        files.rows,
        range(files.rows),
        ordered=ordered,
        placed=fault.keeps_the_ring(run.site.broker.version),
        republished=sum(map(counted_copies, reports))
        if fault.fails_with is None
        else ATTEMPTS * files.rows_each,
        loses=fault.loses,
        rebound=fault.rebinds,
    )
    run.site.wait_for_no_connection(60)
    record(
        history,
        path=STREAM_PATHS[way],
        fault=fault.words,
        promise=RESUMES if fault.fails_with else LOSES if fault.loses else GOES_ON,
        recover_s=ended.recover_s,
        moved=moved(history, ring_of(run.site.broker.version)),
        outcome=ended.outcome
        if fault.fails_with is None
        else f"{ended.outcome}; complete after the next start",
    )

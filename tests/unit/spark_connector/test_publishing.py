"""Reports of finished tasks, kept for a write that fails."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.accumulators import Accumulator

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.publishing import PublishReport
from spark_connector import publishing
from spark_connector.publishing import FinishedTasks
from spark_connector.reports import FinishedTask


def test_a_write_that_fails_has_its_own_tasks_alone_in_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(accumulator=lambda *zero: Accumulator(-1, *zero))
    spark: Any = SimpleNamespace(sparkContext=context)
    finished = FinishedTasks.of(spark)

    def fail(*_: object) -> None:
        finished.add(FinishedTask(len(aborted), 0))
        finished.add(FinishedTask(7, 0, publish_report=PublishReport(rows=3, confirmed=3)))
        raise OSError("Spark has stopped")

    aborted: list[list[int]] = []
    monkeypatch.setattr(publishing, "for_each_partition", fail)
    monkeypatch.setattr(
        publishing,
        "abort_write",
        lambda _, reports, **__: aborted.append([report.partition for report in reports]),
    )
    nothing: Any = None
    for _ in range(2):
        with pytest.raises(OSError, match="Spark has stopped") as caught:
            publishing._publish(nothing, nothing, finished, nothing)
        assert vars(caught.value)["report"].confirmed == 3
    assert aborted == [[0, 7], [1, 7]]


def test_with_spark_connect_it_stays_empty() -> None:
    finished = FinishedTasks(None)
    finished.add(FinishedTask(0, 0))
    assert finished.tasks == ()
    finished.clear()


def test_a_report_that_lacks_rows_of_spark_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_plan: object, batches: Iterable[pa.RecordBatch]) -> FinishedTask:
        assert [batch.num_rows for batch in batches] == [3]
        return FinishedTask(0, 0, rows=2, publish_report=PublishReport(rows=2, confirmed=2))

    monkeypatch.setattr(publishing, "run_task", write)
    plan: Any = SimpleNamespace(layout=None, write_id="w")
    batch = pa.record_batch([pa.array(["a", "b", "c"])], names=["value"])
    with pytest.raises(RabbitChxError, match="Spark gave 3 rows, and the report has 2") as caught:
        publishing.publish_task(plan, FinishedTasks(None), iter([batch]))
    assert '"rows": 2, "confirmed": 2' in caught.value.__notes__[0]
    whole = FinishedTask(
        0, 0, rows=3, skipped=1, publish_report=PublishReport(rows=2, confirmed=1, returned=1)
    )
    monkeypatch.setattr(publishing, "run_task", lambda _, batches: list(batches) and whole)
    assert publishing.publish_task(plan, FinishedTasks(None), iter([batch])) == whole

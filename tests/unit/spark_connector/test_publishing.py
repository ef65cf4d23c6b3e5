"""Reports of finished tasks, kept for a write that fails."""

from __future__ import annotations

from spark_connector.publishing import FinishedTasks
from spark_connector.reports import TaskReport


def test_with_spark_connect_it_stays_empty() -> None:
    finished = FinishedTasks(None)
    finished.add(TaskReport(0, 0))
    assert finished.reports == ()
    finished.clear()

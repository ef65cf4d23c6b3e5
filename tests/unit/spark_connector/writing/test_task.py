"""The task, outside Spark."""

from __future__ import annotations

from spark_connector.writing.task import Task


def test_without_spark_there_are_no_copies() -> None:
    assert Task.current("w", 7) == Task(write_id="w", batch_id=7, speculation=False)
    assert Task.current() == Task(speculation=False)

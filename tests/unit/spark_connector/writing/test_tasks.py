"""What a task is in Spark, and the marks that tasks leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_connector.writing import tasks
from spark_connector.writing.tasks import Task, mark_running


def test_without_spark_there_are_no_copies() -> None:
    assert Task.current("w", 7) == Task(write_id="w", batch_id=7, speculation=False)
    assert Task.current() == Task(speculation=False)


@pytest.mark.parametrize(
    ("properties", "speculation"),
    [
        ({}, None),
        ({"spark.app.id": "app"}, False),
        ({"spark.app.id": "app", "spark.speculation": "TRUE"}, True),
    ],
)
def test_speculation_is_known_if_spark_passes_its_configuration(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], *, speculation: bool | None
) -> None:
    numbers = dict.fromkeys(("stageId", "partitionId", "attemptNumber", "taskAttemptId"), lambda: 1)
    context: Any = SimpleNamespace(getLocalProperty=properties.get, **numbers)
    monkeypatch.setattr(tasks, "TaskContext", SimpleNamespace(get=lambda: context))
    assert Task.current("w").speculation is speculation


def test_a_batch_is_known_where_spark_does_not_pass_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread pool in ``foreachBatch`` it does not; the function was called with its number."""
    numbers = dict.fromkeys(("stageId", "partitionId", "attemptNumber", "taskAttemptId"), lambda: 1)
    given: dict[str, str] = {}
    context: Any = SimpleNamespace(getLocalProperty=given.get, **numbers)
    monkeypatch.setattr(tasks, "TaskContext", SimpleNamespace(get=lambda: context))
    assert (Task.current().batch_id, Task.current(None, 7).batch_id) == (None, 7)
    given.update({"sql.streaming.queryId": "query", "streaming.sql.batchId": "5"})
    assert (Task.current().write_id, Task.current().batch_id) == ("query", 5)


# -- marks that tasks leave


def test_an_unfinished_task_is_seen_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other")
    task = Task(partition=1, number=5, write_id="w")
    with mark_running(task) as earlier:
        assert not earlier
    with mark_running(Task(partition=1, number=6, write_id="w")) as earlier:
        assert not earlier  # the first has finished
    with pytest.raises(RuntimeError, match="half way"), mark_running(task):
        raise RuntimeError("half way")
    task = Task(partition=1, number=7, write_id="w")
    for other in (replace(task, partition=11), replace(task, write_id="v"), replace(task, batch_id=1)):
        with mark_running(other) as earlier:
            assert not earlier
    with mark_running(task) as earlier:
        assert earlier
    assert [path.name for path in tmp_path.rglob("begun-*")] == ["begun-w-0-1.5"]


def test_no_scratch_folder_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("", "/no/such/folder"):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folder)
        with mark_running(Task(partition=1, number=5)) as earlier:
            assert not earlier

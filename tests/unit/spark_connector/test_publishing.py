"""The names of the package, and reports of finished tasks, kept for a write that fails."""

from __future__ import annotations

import pytest

import spark_connector
from rabbit_chx.errors import InputError, RabbitChxError
from spark_connector.publishing import FinishedTasks
from spark_connector.reports import TaskReport


def test_the_connector_loads_its_names_when_they_are_used() -> None:
    assert {"dry_run", "place", "publish", "queue_for", "batch_publisher"} < set(dir(spark_connector))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = spark_connector.nothing
    assert issubclass(InputError, RabbitChxError)


def test_with_spark_connect_it_stays_empty() -> None:
    finished = FinishedTasks(None)
    finished.add(TaskReport(0, 0))
    assert finished.reports == ()
    finished.clear()

"""Options and errors on their way in and out."""

from __future__ import annotations

import pickle

import pytest

import spark_connector
from rabbit_chx.errors import InputError, NotFoundError, PublishError, RabbitChxError
from rabbit_chx.routing import HashRing
from spark_connector.executor_functions import OnExecutor
from spark_connector.options.python_options import texts
from spark_connector.reports.dry_run_report import DryRun, PartitionRows, skew
from spark_connector.task_errors import raised_in_task

RING = HashRing.from_bindings([("q1", 1)])


def test_values_become_the_texts_that_spark_has() -> None:
    given = texts({"maxInFlight": 5, "mandatory": False, "url": "amqp://h", "routingKey": None}, None)
    assert given == {"maxInFlight": "5", "mandatory": "false", "url": "amqp://h"}
    assert HashRing.from_json(texts({}, RING)["ring"]) == RING
    assert texts({}, RING.to_json()) == texts({}, RING)
    assert repr(texts({"url": "amqp://u:c4nary@h"}, None)) == "<options url>"


def test_what_is_no_option_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError, match="option 'password' is a bytes: give a text") as caught:
        texts({"password": b"c4nary"}, None)
    assert "c4nary" not in str(caught.value)
    with pytest.raises(InputError, match="the ring is given twice"):
        texts({"RING": RING.to_json()}, RING)
    with pytest.raises(InputError, match="the ring has no buckets"):
        texts({}, HashRing.from_buckets([]))


def test_the_error_of_a_task_is_found_in_what_spark_says() -> None:
    said = (
        "Job aborted due to stage failure: ... org.apache.spark.api.python.PythonException: Traceback (most recent "
        'call last):\n  File "writing.py", line 59, in write_partition\n    raise error\n'
        "rabbit_chx.errors.{}: partition 3: what happened\n\n\tat org.apache.spark..."
    )
    error = raised_in_task(RuntimeError(said.format("NotFoundError")))
    assert type(error) is NotFoundError
    assert str(error) == "partition 3: what happened"
    error = raised_in_task(RuntimeError(said.format("PublishError")))
    assert isinstance(error, PublishError)
    assert error.report.rows == 0
    assert raised_in_task(RuntimeError(said.format("Any"))) is None
    assert raised_in_task(RuntimeError("boo")) is None


def test_a_function_on_its_way_shows_no_arguments() -> None:
    shipped = OnExecutor(pickle.dumps, "c4nary")
    assert "c4nary" not in repr(shipped)
    assert shipped() == pickle.dumps("c4nary")


def test_the_connector_loads_its_names_when_they_are_used() -> None:
    assert {"dry_run", "place", "publish", "queue_for", "batch_publisher"} < set(dir(spark_connector))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = spark_connector.nothing
    assert issubclass(InputError, RabbitChxError)


def test_skew_is_the_most_beside_the_mean() -> None:
    assert skew([5, 5, 5]) == 1.0
    assert skew([9, 0, 0]) == 3.0
    assert skew([]) == skew([0, 0]) == 1.0


def test_a_dry_run_counts_what_its_partitions_have() -> None:
    parts = (PartitionRows(0, 3, {"q1": 2, "q2": 1}), PartitionRows(1, 1, {"q1": 1}))
    run = DryRun("x", "amqp://h", {}, parts, "read", {"q1": 0.5, "q2": 0.25, "q3": 0.25})
    assert run.rows == 4
    assert run.predicted == {"q1": 3, "q2": 1, "q3": 0}
    assert run.partition_skew == 1.5
    assert run.queue_skew == 2.25
    assert "q3" in str(run)

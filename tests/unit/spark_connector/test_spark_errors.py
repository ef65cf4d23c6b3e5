"""Errors through Spark: a traceback shows no password, and the error of a task is found again."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import NotFoundError, PublishError, RabbitChxError, RowError
from rabbit_chx.publishing import PublishReport
from spark_connector.options.common import Brokers
from spark_connector.spark_errors import parse_task_error, with_report
from spark_connector.writing.preflight import plan_write
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

OPTIONS = {"url": "amqp://ann@here", "password": "c4nary", "exchange": "x", "preflight": "false"}
SCHEMA = StructType().add("key", StringType()).add("value", StringType())
COUNTS = PublishReport(
    rows=32_000, confirmed=30_000, returned=3, nacked=7, unknown=1_990, retried=9, republished=5, seconds=1.5
)


def with_locals(error: Exception) -> str:
    """As Spark shows it, without this test's own variables."""
    assert error.__traceback__ is not None
    from_ours = error.__traceback__.tb_next
    shown = traceback.TracebackException(type(error), error, from_ours, capture_locals=True)
    return "".join(shown.format())


def test_of_an_unforeseen_error_while_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(values: Mapping[str, str], **_: bool) -> NoReturn:
        raise KeyError(values["password"])

    monkeypatch.setattr(Brokers, "of", fail)
    with pytest.raises(
        RabbitChxError, match=r"^unforeseen KeyError \(at .*test_spark_errors.py:\d+\)"
    ) as caught:
        plan_write(OPTIONS, SCHEMA)
    assert "c4nary" not in with_locals(caught.value)


def test_of_an_unforeseen_error_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(brokers: Brokers, _: int) -> NoReturn:
        secret = brokers.addresses[0].password.reveal()
        raise KeyError(len(secret))

    plan = plan_write(OPTIONS, SCHEMA)
    monkeypatch.setattr(Brokers, "resolve", fail)
    batch = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
    with pytest.raises(RabbitChxError, match=r"^partition 0: unforeseen KeyError: 6 \(at ") as caught:
        TaskWriter(plan, Task.current("w")).publish_partition([batch])
    assert "c4nary" not in with_locals(caught.value)


# -- found again in Spark's text


def raised(message: str, kind: str = "PublishError") -> Exception:
    return RuntimeError(f"Job aborted\nTraceback ...\nrabbit_chx.errors.{kind}: {message}\n\tat org.apache")


def test_a_publish_error_has_its_report() -> None:
    """Spark shows the text of `traceback`, here of two attempts."""
    text = ""
    for report in (PublishReport(rows=1), COUNTS):
        error = with_report(
            PublishError(f"partition 3: exchange 'x; 1 unknown': no queue took 3; {report}", report)
        )
        text += f"Job aborted\n{''.join(traceback.format_exception(error))}\n\tat org.apache"
    found = parse_task_error(RuntimeError(text))
    assert isinstance(found, PublishError)
    assert found.report == COUNTS
    assert str(found) == str(error), "the message does not contain the JSON"


def test_the_error_of_a_task_is_read_from_its_text() -> None:
    assert isinstance(parse_task_error(raised("row 1: too long", "RowError")), RowError)
    assert parse_task_error(raised("no such class", "NoneSuch")) is None
    assert parse_task_error(RuntimeError("something else")) is None
    error = parse_task_error(raised("partition 0: without counts"))
    assert isinstance(error, PublishError)
    assert error.report == PublishReport()


def test_the_error_of_a_task_is_found_in_the_message_of_spark() -> None:
    said = (
        "Job aborted due to stage failure: ... org.apache.spark.api.python.PythonException: Traceback (most recent "
        'call last):\n  File "writing.py", line 59, in write_partition\n    raise error\n'
        "rabbit_chx.errors.{}: partition 3: what happened\n\n\tat org.apache.spark..."
    )
    error = parse_task_error(RuntimeError(said.format("NotFoundError")))
    assert type(error) is NotFoundError
    assert str(error) == "partition 3: what happened"
    error = parse_task_error(RuntimeError(said.format("PublishError")))
    assert isinstance(error, PublishError)
    assert error.report.rows == 0
    assert parse_task_error(RuntimeError(said.format("Any"))) is None
    assert parse_task_error(RuntimeError("boo")) is None

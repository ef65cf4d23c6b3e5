"""Errors through Spark: a traceback shows no password, and the error of a task is found again."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa
import pytest
from spark_messages import SCHEMA

from rabbit_chx.errors import AccessRefusedError, NotFoundError, PublishError, RabbitChxError, RowError
from rabbit_chx.publishing import PublishReport
from spark_connector.executor_functions import parse_task_error, with_report
from spark_connector.options.common import Brokers
from spark_connector.writing.preflight import plan_write
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

OPTIONS = {"url": "amqp://ann@here", "password": "c4nary", "exchange": "x", "preflight": "false"}


def with_locals(error: Exception) -> str:
    """As Spark shows it, without this test's own variables."""
    assert error.__traceback__ is not None
    from_ours = error.__traceback__.tb_next
    shown = traceback.TracebackException(type(error), error, from_ours, capture_locals=True)
    return "".join(shown.format())


def test_an_unforeseen_error_while_planning_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(values: Mapping[str, str], **_: bool) -> NoReturn:
        raise KeyError(values["password"])

    monkeypatch.setattr(Brokers, "of", fail)
    words = r"^unforeseen KeyError \(at .*test_spark_errors.py:\d+\)"
    with pytest.raises(RabbitChxError, match=words) as caught:
        plan_write(OPTIONS, SCHEMA)
    assert "c4nary" not in with_locals(caught.value)


def test_an_unforeseen_error_in_a_task_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_publish_error_has_its_report() -> None:
    """Spark shows the text of `traceback`, here of two attempts."""
    counts = PublishReport(32_000, 30_000, 3, 7, 1_990, 9, 5, seconds=1.5)
    text = ""
    for report in (PublishReport(rows=1), counts):
        said = f"partition 3: exchange 'x; 1 unknown': no queue took 3; {report}"
        error = with_report(PublishError(said, report), report)
        text += f"Job aborted\n{''.join(traceback.format_exception(error))}\n\tat org.apache"
    found = parse_task_error(RuntimeError(text))
    assert isinstance(found, PublishError)
    assert found.report == counts
    assert str(found) == str(error), "the message does not contain the JSON"


def test_each_error_of_a_task_has_its_report() -> None:
    counts = PublishReport(rows=9, confirmed=4, unknown=5)
    error = with_report(AccessRefusedError("partition 3: the password is wrong"), counts)
    found = parse_task_error(RuntimeError("".join(traceback.format_exception(error))))
    assert isinstance(found, AccessRefusedError)
    assert vars(found)["report"] == counts


SAID = (
    "Job aborted due to stage failure: ... org.apache.spark.api.python.PythonException: Traceback (most recent "
    'call last):\n  File "writing.py", line 59, in write_partition\n    raise error\n'
    "rabbit_chx.errors.{}: partition 3: what happened\n\n\tat org.apache.spark..."
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (SAID.format("NotFoundError"), NotFoundError),
        (SAID.format("RowError").replace("\n\n", "\n"), RowError),
        (SAID.format("PublishError"), PublishError),
        (SAID.format("NoneSuch"), type(None)),
        (SAID.format("Any"), type(None)),
        ("something else", type(None)),
    ],
)
def test_the_error_of_a_task_is_found_in_the_message_of_spark(said: str, expected: type) -> None:
    error = parse_task_error(RuntimeError(said))
    assert type(error) is expected
    assert str(error) == ("None" if error is None else "partition 3: what happened")
    assert error is None or vars(error)["report"] == PublishReport()

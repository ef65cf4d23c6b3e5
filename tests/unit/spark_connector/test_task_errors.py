"""Errors of tasks, found again in Spark's text."""

from __future__ import annotations

from rabbit_chx.errors import PublishError, RowError
from rabbit_chx.publishing import PublishReport
from spark_connector.reports.write_report import TaskReport
from spark_connector.task_errors import raised_in_task, with_finished

COUNTS = PublishReport(
    rows=32_000, confirmed=30_000, returned=3, nacked=7, unknown=1_990, retried=9, republished=5
)


def raised(message: str, kind: str = "PublishError") -> Exception:
    return RuntimeError(f"Job aborted\nTraceback ...\nrabbit_chx.errors.{kind}: {message}\n\tat org.apache")


def test_a_publish_error_has_the_counts_of_its_message() -> None:
    error = raised_in_task(raised(f"partition 3: exchange 'x; 1 unknown': no queue took 3; {COUNTS}"))
    assert isinstance(error, PublishError)
    assert error.report == COUNTS
    assert "no queue took 3" in str(error)


def test_other_errors_and_texts() -> None:
    assert isinstance(raised_in_task(raised("row 1: too long", "RowError")), RowError)
    assert raised_in_task(raised("no such class", "NoneSuch")) is None
    assert raised_in_task(RuntimeError("something else")) is None
    error = raised_in_task(raised("partition 0: without counts"))
    assert isinstance(error, PublishError)
    assert error.report == PublishReport()


def test_counts_of_finished_tasks_are_added() -> None:
    done = [
        TaskReport(0, 0, published=10, confirmed=9, returned=1, retried=1, reconnects=1, republished=2)
    ] * 2
    report = with_finished(COUNTS, done)
    assert (report.rows, report.confirmed, report.returned) == (32_020, 30_018, 5)
    assert report.rows == report.confirmed + report.returned + report.nacked + report.unknown
    assert (report.retried, report.reconnects, report.republished) == (11, 2, 9)

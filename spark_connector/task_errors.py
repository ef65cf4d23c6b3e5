"""What a task of ours raised, found again in what Spark makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx import errors
from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_connector.reports.write_report import TaskReport

__all__ = ["raised_in_task", "with_finished"]

_LINE = re.compile(r"^(?:\S+: )?rabbit_chx\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)
# How `str` of a `PublishReport` tells its counts.
_COUNTS = {
    "confirmed": re.compile(r"([\d,]+) of [\d,]+ rows confirmed"),
    "rows": re.compile(r"[\d,]+ of ([\d,]+) rows confirmed"),
    "returned": re.compile(r"([\d,]+) returned as unroutable"),
    "nacked": re.compile(r"([\d,]+) refused \(nack\)"),
    "unknown": re.compile(r"([\d,]+) unknown"),
    "retried": re.compile(r"([\d,]+) sent again after a refusal"),
    "republished": re.compile(r"([\d,]+) sent again after a reconnect"),
}


def raised_in_task(cause: BaseException) -> RabbitChxError | None:
    """The error of ours in the traceback that Spark shows as text, or None if there is none.

    The report of a `PublishError` has the counts that its message tells.
    """
    found = None
    for found in _LINE.finditer(str(cause)):  # noqa: B007  # the last one: of the last attempt
        pass
    if found is None:
        return None
    kind = getattr(errors, found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, RabbitChxError)):
        return None
    if issubclass(kind, PublishError):
        return kind(found["message"], _told(found["message"]))
    return kind(found["message"])


def _told(message: str) -> PublishReport:
    report = message.rpartition("; ")[2]
    found = {name: pattern.search(report) for name, pattern in _COUNTS.items()}
    counts: dict[str, Any] = {
        name: int(match[1].replace(",", "")) for name, match in found.items() if match is not None
    }
    return PublishReport(**counts)


def with_finished(failed: PublishReport, finished: Iterable[TaskReport]) -> PublishReport:
    """The counts of the task that failed, and of those that finished."""
    for task in finished:
        failed = replace(
            failed,
            rows=failed.rows + task.published,
            confirmed=failed.confirmed + task.confirmed,
            returned=failed.returned + task.returned,
            retried=failed.retried + task.retried,
            republished=failed.republished + task.republished,
            reconnects=failed.reconnects + task.reconnects,
        )
    return failed

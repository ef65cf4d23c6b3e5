"""Errors of this package within errors of Spark: raised without traceback, and parsed from the text again.

Spark can be configured to show local variables in tracebacks (``tracebackWithLocals.enabled``), and writes tracebacks into event logs. The
variables include options with a password, so no traceback of this package may leave a task or the planner.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rabbit_chx import errors
from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PLACES = 3
_MOST_TEXT = 300
_LINE = re.compile(r"^(?:\S+: )?rabbit_chx\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)
#: The counts in the `str` of a `PublishReport`.
_COUNTS = {
    "confirmed": re.compile(r"([\d,]+) of [\d,]+ rows confirmed"),
    "rows": re.compile(r"[\d,]+ of ([\d,]+) rows confirmed"),
    "returned": re.compile(r"([\d,]+) returned as unroutable"),
    "nacked": re.compile(r"([\d,]+) refused\b"),
    "unknown": re.compile(r"([\d,]+) unknown"),
    "retried": re.compile(r"([\d,]+) sent again after a refusal"),
    "republished": re.compile(r"([\d,]+) sent again after a reconnect"),
}


def strip_traceback(cause: Exception, *, show_text: bool = True) -> RabbitChxError:
    """Return the error to raise in place of another one, after its ``except`` clause.

    A RabbitChxError is returned without its traceback. Of any other error, the type and the last places in the code become the message, and
    its text if `show_text`: it may contain an option.
    """
    if isinstance(cause, RabbitChxError):
        return cause.with_traceback(None)
    places = ", ".join(
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(cause.__traceback__)[-_PLACES:]
    )
    words = " ".join(str(cause).split())[:_MOST_TEXT] if show_text else ""
    text = f": {words}" if words else ""
    return RabbitChxError(f"unforeseen {type(cause).__name__}{text} (at {places}): please report it")


def raising_without_traceback(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that raises its errors from a frame without its arguments, and so without a password."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as cause:  # noqa: BLE001  # it is raised below
            error = strip_traceback(cause, show_text=isinstance(cause, ImportError))
        del args, kwargs
        raise error from None

    return wrapped


def parse_task_error(cause: BaseException) -> RabbitChxError | None:
    """Return the error that a task of this package raised, or None if another error ended the job.

    It is parsed from the last line of the traceback that Spark shows as text. The report of a `PublishError` has the counts of its message.
    """
    lines = list(_LINE.finditer(str(cause)))
    if not lines:
        return None
    name, message = lines[-1]["name"], lines[-1]["message"]  # of the last attempt
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RabbitChxError)):
        return None
    if issubclass(kind, PublishError):
        return kind(message, _report_in(message))
    return kind(message)


def _report_in(message: str) -> PublishReport:
    report = message.rpartition("; ")[2]
    counts: dict[str, Any] = {
        name: int(match[1].replace(",", ""))
        for name, pattern in _COUNTS.items()
        if (match := pattern.search(report)) is not None
    }
    return PublishReport(**counts)

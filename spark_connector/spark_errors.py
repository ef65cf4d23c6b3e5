"""Errors of this package within errors of Spark: raised without traceback, and parsed from the text again.

Spark can be configured to show local variables in tracebacks (``tracebackWithLocals.enabled``), and writes tracebacks into event logs. The
variables include options with a password, so no traceback of this package may leave a task or the planner.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from rabbit_chx import errors
from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.words import typed_error_text

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PLACES = 3
_MOST_TEXT = 300
_LINE = re.compile(r"^(?:\S+: )?rabbit_chx\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)
#: The line below an error with its report; see `with_report`.
_REPORT = re.compile(r"^rabbit_chx report: (?P<counts>\{.*\})\s*$", re.MULTILINE)


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
    what = typed_error_text(cause) if show_text else type(cause).__name__
    return RabbitChxError(f"unforeseen {what:.{_MOST_TEXT}} (at {places}): please report it")


def without_traceback(function: Callable[_P, _T]) -> Callable[_P, _T]:
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


def with_report(error: RabbitChxError, report: PublishReport) -> RabbitChxError:
    """Add the counts of the report as JSON, in a line below the message: Spark transfers only the text of an error."""
    no_counts = ("samples", "rows_failed")
    counts = {name: count for name, count in asdict(report).items() if name not in no_counts}
    error.add_note(f"rabbit_chx report: {json.dumps(counts)}")
    return error


def parse_task_error(cause: BaseException) -> RabbitChxError | None:
    """Return the error that a task of this package raised, or None if another error ended the job.

    It is parsed from the last line of the traceback that Spark shows as text, and its `report`, which each has, from the line of `with_report`.
    """
    text = str(cause)
    lines = list(_LINE.finditer(text))
    if not lines:
        return None
    name, message = lines[-1]["name"], lines[-1]["message"]  # of the last attempt
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RabbitChxError)):
        return None
    found = _REPORT.search(text, lines[-1].end())
    report = PublishReport(**json.loads(found["counts"])) if found else PublishReport()
    error = kind(message, report) if issubclass(kind, PublishError) else kind(message)
    vars(error)["report"] = report
    return error

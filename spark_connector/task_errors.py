"""What a task of ours raised, found again in what Spark makes of it."""

from __future__ import annotations

import re

from rabbit_chx import errors
from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.publishing import PublishReport

__all__ = ["raised_in_task"]

_LINE = re.compile(r"^(?:\S+: )?rabbit_chx\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)


def raised_in_task(cause: BaseException) -> RabbitChxError | None:
    """The error of ours in the traceback that Spark shows as text, or None if there is none.

    A `PublishError` has its counts in its message alone: its report is empty.
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
        return kind(found["message"], PublishReport())
    return kind(found["message"])

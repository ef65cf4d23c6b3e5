"""The table of docs/publish/web-services.md, and the errors that pass by waiting."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from rabbit_chx import errors
from rabbit_chx.errors import PASSING_ERRORS, BrokerRefusedError, InputError, RabbitChxError, UnreachableError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "publish" / "web-services.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.*`\w+Error`.*?) \| (\d+)(?: with `Retry-After`)? \| (.*) \|$", PAGE, re.MULTILINE)


def named() -> dict[type[RabbitChxError], int]:
    """The status of each error that the table names."""
    return {
        getattr(errors, name): int(status)
        for names, status, _ in ROWS
        for name in re.findall(r"`(\w+Error)`", names)
    }


def status_of(error: type[RabbitChxError]) -> int:
    """The status of the next of an error's classes that the table names."""
    return next(status for base in error.__mro__ if (status := named().get(base)) is not None)


def test_the_table_has_the_status_of_each_error() -> None:
    assert len(ROWS) == 4
    assert {error for error in PASSING_ERRORS if error not in named()} == set()
    for error in named():
        assert named()[error] == (503 if issubclass(error, PASSING_ERRORS) else 422), error


@pytest.mark.parametrize(
    "error",
    [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, (BrokerRefusedError, InputError, UnreachableError))
    ],
)
def test_a_passing_error_is_never_answered_as_if_it_lasted(error: type[RabbitChxError]) -> None:
    assert (status_of(error) == 503) is issubclass(error, PASSING_ERRORS)


def test_what_may_be_in_a_queue_is_said() -> None:
    """A message that a queue may have is repeated with its id."""
    for names, _, state in ROWS:
        may_be = {"NackedError", "UnknownOutcomeError"} & set(re.findall(r"`(\w+Error)`", names))
        assert bool(may_be) is (state == "may be in a queue")

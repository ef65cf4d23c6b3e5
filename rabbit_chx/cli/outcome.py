"""What a command returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.rendering import Record, Report

__all__ = ["DIFFERENCE", "DONE", "PARTLY", "WRONG_USAGE", "Outcome", "PartlyDoneError"]

DONE, DIFFERENCE, WRONG_USAGE, PARTLY = 0, 1, 2, 3


class PartlyDoneError(RabbitChxError):
    """Part of what was asked was done and shown, and part was not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, not yet shown.

    Attributes:
        output: ``table`` or ``json``.
        report: a whole result.
        batches: results that come one by one, in place of a report; each batch is shown at once.
        code: the exit code.
        finish: called when everything is shown; raises an error where the result is not complete.
    """

    output: str
    report: Report | None = None
    batches: Iterable[Sequence[Record]] | None = None
    code: int = DONE
    finish: Callable[[], None] | None = None

"""What a command returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import RabbitChxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rabbit_chx.rendering import Record, Report

__all__ = ["DIFFERENCE", "DONE", "PARTLY", "WRONG_USAGE", "Outcome", "PartlyDoneError"]

DONE, DIFFERENCE, WRONG_USAGE, PARTLY = 0, 1, 2, 3


class PartlyDoneError(RabbitChxError):
    """Something was done and shown, and not all of what was asked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, not yet shown.

    Attributes:
        output: ``table`` or ``json``.
        report: a whole result.
        batches: results that come one by one, instead; each batch is shown at once.
        code: the exit code.
        finish: called when all is shown; raises what kept it from being whole.
    """

    output: str
    report: Report | None = None
    batches: Iterable[Sequence[Record]] | None = None
    code: int = DONE
    finish: Callable[[], None] | None = None

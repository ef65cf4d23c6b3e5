"""Rows that a publisher is given at an even pace while something happens to it, and what it says of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bounded import Beside
from delivery_checker import Attempt

from rabbit_chx.errors import PublishError
from rabbit_chx.publishing import Publisher, PublishReport
from rabbit_chx.publishing.options import Target

_KEYS = 500
_STEP = 60
_FILLER = "x" * 80
_log = logging.getLogger(__name__)


def key_of(number: int) -> str:
    """Return the routing key of a row."""
    return f"k{number % _KEYS}"


@dataclass(frozen=True, slots=True)
class Load:
    """How many rows there are, and how fast they come.

    Attributes:
        rows: how many.
        per_s: how many a second, as long as the publisher takes them; what it did not take in time is not made up for.
        fault_at: the row before which the fault begins.
        is_fast_after: whether they come as fast as the publisher takes them when the fault is over.
    """

    rows: int = 24_000
    per_s: float = 3_000
    fault_at: int = 6_000
    is_fast_after: bool = False


@dataclass
class Run:
    """One publisher, from its first row to its end.

    Attributes:
        load: the rows.
        handed: how many of them it has taken.
        report: its last word.
        error: what it raised, or None.
        fault_ended: when the fault was over, in seconds of the monotonic clock.
        handed_in_fault: how many rows it had taken then.
        confirms: when it knew of how many confirmed rows.
        over: whether the publisher is done.
    """

    load: Load = field(default_factory=Load)
    handed: int = 0
    report: PublishReport = field(default_factory=PublishReport)
    error: PublishError | None = None
    fault_ended: float | None = None
    handed_in_fault: int = 0
    confirms: list[tuple[float, int]] = field(default_factory=list)
    over: bool = False

    @property
    def attempted(self) -> list[Attempt]:
        """The rows that the publisher has taken."""
        return [Attempt(number, key_of(number)) for number in range(self.handed)]

    @property
    def recover_s(self) -> float | None:
        """Seconds from the end of the fault until the next confirm; None where there was none."""
        if self.fault_ended is None:
            return None
        after = [(at, count) for at, count in self.confirms if at > self.fault_ended]
        before = max((count for at, count in self.confirms if at <= self.fault_ended), default=0)
        return next((at - self.fault_ended for at, count in after if count > before), None)

    def publish(
        self,
        url: Target | Sequence[Target],
        exchange: str,
        fault: Callable[[Run], object],
        *,
        columns: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Publish all rows, or as many as the publisher takes.

        Args:
            url: the broker.
            exchange: where to.
            fault: what happens meanwhile, in a thread of its own.
            columns: further columns of `publish_many`.
            options: arguments of the publisher.
        """

        def happen() -> None:
            fault(self)
            self.handed_in_fault = self.handed

        happening = Beside(happen)
        keys = [key_of(number) for number in range(self.load.rows)]
        try:
            with Publisher(url, exchange, progress=self._note, **options) as publisher:
                self.report = publisher.publish_many(keys, self._paced(happening), **(columns or {}))
        except PublishError as error:
            self.error, self.report = error, error.report
            _log.exception("publish_many failed")
        self.over = True
        _log.info("%s", self.report)
        happening.finish()
        self.fault_ended = happening.ended

    def _note(self, report: PublishReport) -> None:
        self.confirms.append((time.monotonic(), report.confirmed))

    def _paced(self, happening: Beside) -> Iterator[str]:
        load, due = self.load, time.monotonic()
        for number in range(load.rows):
            if number % _STEP == 0:
                is_fast = load.is_fast_after and happening.ended is not None
                now = time.monotonic()
                due = max(due + (0.0 if is_fast else _STEP / load.per_s), now)
                time.sleep(due - now)
            if number == load.fault_at:
                happening.start()
            self.handed = number + 1
            yield f"{number} {_FILLER}"

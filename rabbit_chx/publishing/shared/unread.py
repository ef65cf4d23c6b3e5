"""Errors of futures that nobody has asked for: a bounded warning for each kind, as asyncio has for its futures."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter

from rabbit_chx.words import plural

_log = logging.getLogger(__name__)

_EVERY_S = 10.0
_MOST_EXCHANGES = 3


class UnreadErrors:
    """Counts errors by kind. A kind is logged at once, and then at most once in ten seconds; `flush` logs the rest.

    Args:
        name: the publisher.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._lock = threading.RLock()  # a finalizer may run in a thread that holds it
        self._held: dict[str, Counter[str]] = {}  # by kind, of futures that may still be asked
        self._dropped: dict[str, Counter[str]] = {}  # by kind, not logged
        self._next_at: dict[str, float] = {}

    def hold(self, error: BaseException) -> Unread:
        """Return a mark for the future of this error: if it is collected before `read`, nobody has asked for the error."""
        kind = type(error).__name__
        exchange = getattr(error, "exchange", None) or ""
        with self._lock:
            _LEFT.add(self)
            self._held.setdefault(kind, Counter())[exchange] += 1
        return Unread(self, kind, exchange)

    def release(self, kind: str, exchange: str, *, is_dropped: bool) -> None:
        """Forget an error that was asked for, or log one that never will be."""
        if os.getpid() != self._process or self not in _LEFT:
            return  # the parent process has the future, too; or the process ends, and all are counted
        with self._lock:
            self._held[kind][exchange] -= 1
            if not is_dropped:
                return
            self._dropped.setdefault(kind, Counter())[exchange] += 1
            now = time.monotonic()
            if now < self._next_at.get(kind, 0.0):
                return
            self._next_at[kind] = now + _EVERY_S
            counts = self._dropped.pop(kind)
        self._tell(kind, counts)

    def flush(self, *, is_end: bool = False) -> None:
        """Log what was not logged; at the end of the process also the errors of futures that still exist."""
        if os.getpid() != self._process:
            return
        with self._lock:
            kinds = self._dropped
            self._dropped = {}
            if is_end:
                _LEFT.discard(self)
                for kind, counts in self._held.items():
                    kinds[kind] = kinds.get(kind, Counter()) + counts
        for kind, counts in kinds.items():
            self._tell(kind, counts)

    def _tell(self, kind: str, counts: Counter[str]) -> None:
        if not (total := counts.total()):
            return
        names = [f"{exchange!r} {count:,}" for exchange, count in counts.most_common(_MOST_EXCHANGES)]
        others = len(counts) - len(names)
        _log.warning(
            "%s: %s with %s, and nobody has asked their futures for it (by exchange: %s%s): look at the result of each future, or at stats()",
            self._name,
            f"{plural(total, 'message')} ended",
            kind,
            ", ".join(names),
            f", {others:,} others" if others else "",
        )


class Unread:
    """Belongs to the future of an error that nobody has asked for."""

    __slots__ = ("_about", "_errors")

    def __init__(self, errors: UnreadErrors, kind: str, exchange: str) -> None:
        self._errors: UnreadErrors | None = errors
        self._about = kind, exchange

    def read(self) -> None:
        """Note that somebody has asked for the error."""
        errors = self._errors
        self._errors = None
        if errors is not None:
            errors.release(*self._about, is_dropped=False)

    def __del__(self) -> None:
        if self._errors is not None and not sys.is_finalizing():
            self._errors.release(*self._about, is_dropped=True)


#: Those with an error so far. They outlive their publishers, whose futures may be asked later.
_LEFT: set[UnreadErrors] = set()


def tell_left() -> None:
    """Log what is left of all publishers, at the end of the process."""
    for errors in list(_LEFT):
        errors.flush(is_end=True)

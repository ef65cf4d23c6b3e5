"""Retries: a deadline, and pauses that grow up to a bound."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.errors import RabbitChxError

_T = TypeVar("_T")


#: Random numbers of the system. A program may seed `random` alike in many processes, which would then retry at the same time.
SYSTEM_RANDOM = random.SystemRandom()


def jitter() -> float:
    """Return a random number from 0 to 1, for `Backoff.delay_s`."""
    return SYSTEM_RANDOM.random()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts, each twice as long as the one before.

    Attributes:
        first_s: seconds before the second attempt.
        longest_s: the upper bound in seconds; equal to `first_s` for pauses of one length.
    """

    first_s: float
    longest_s: float

    def delay_s(self, failures: int, jitter: float = 1.0) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            failures: how many attempts have failed before the last one.
            jitter: a random number from 0 to 1, which takes off up to half, so that many clients do not retry at the same time.
        """
        return min(self.first_s * 2.0 ** min(failures, 30), self.longest_s) * (0.5 + jitter / 2)


class Retry:
    """The attempts of one operation.

    Args:
        deadline: when the last attempt may begin, in seconds of a clock that only goes forward.
        backoff: the pauses between the attempts.
        most: the most attempts after the first; None for no such bound.

    Attributes:
        attempts: attempts after the first, so far.
    """

    def __init__(self, deadline: float, backoff: Backoff, most: int | None = None) -> None:
        self.attempts = 0
        self._deadline = deadline
        self._backoff = backoff
        self._most = most

    @classmethod
    def within(cls, timeout_s: float, pause_s: float) -> Retry:
        """Return a retry from now on, with pauses of one length; both times are in seconds."""
        return cls(time.monotonic() + timeout_s, Backoff(pause_s, pause_s))

    def wait_s(self, now: float, jitter: float = 1.0) -> float | None:
        """Return the seconds to wait before the next attempt; None if no attempt is left."""
        left_s = self._deadline - now
        if left_s <= 0 or (self._most is not None and self.attempts >= self._most):
            return None
        return min(self._backoff.delay_s(self.attempts, jitter), left_s)

    def call(
        self, attempt: Callable[[], _T], may_retry: Callable[[RabbitChxError], bool] = is_transient
    ) -> _T:
        """Return the result of the first successful attempt. The thread sleeps between attempts."""
        while True:
            try:
                return attempt()
            except RabbitChxError as cause:
                wait_s = self.wait_s(time.monotonic(), jitter()) if may_retry(cause) else None
                if wait_s is None:
                    raise
            time.sleep(wait_s)
            self.attempts += 1

"""An outage: from the loss of a connection until the broker answers for a message again. No clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.amqp.replies import may_pass
from rabbit_chx.connection.failures import InterruptedLinkError, StallError
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.publishing.limits import Retries

__all__ = ["Outage"]


class Outage:
    """One outage, and how long to try again.

    Args:
        retries: the bounds.
        cause: why the connection was lost or could not be opened.
        began: when it began, in seconds of a clock that only goes forward.

    Attributes:
        attempts: the attempts to connect, so far.
        last: the error of the last attempt.
    """

    def __init__(self, retries: Retries, cause: RabbitChxError, began: float) -> None:
        self.attempts = 0
        self._stalls = 0  # connections on which nothing moved
        self.last = cause
        self._retries = retries
        self._cause = cause
        self._began = began

    def may_be_cured(self, cause: RabbitChxError) -> bool:
        """Whether a new connection may do better than the one that failed with this."""
        if not self._retries.reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            self._stalls += 1
            return self._stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return (
                False  # the broker has blocked us for too long; another connection would be blocked as well
            )
        return may_pass(cause)

    def wait_s(self, now: float, chance: float) -> float | None:
        """Return the seconds to wait before the next attempt; None where no attempt is left.

        Args:
            now: the time, in seconds of the same clock.
            chance: a random number from 0 to 1.
        """
        most = self._retries.max_reconnects
        left_s = self._began + self._retries.reconnect_timeout_s - now
        if left_s <= 0 or (most is not None and self.attempts >= most):
            return None
        return min(self._retries.delay_s(self.attempts, chance), left_s)

    def given_up(self, now: float) -> RabbitChxError:
        """Return the error for an outage that took too long; `wait_s` has returned None."""
        if not self.attempts:
            return self._cause
        return ConnectionLostError(
            f"{self._cause}; gave up after {self.attempts} attempts to connect in {now - self._began:.0f} s, "
            f"the last attempt failed: {self.last}"
        )

    def ended_by(self, cause: RabbitChxError) -> RabbitChxError:
        """Return the error for an outage that `cause` ends; it names the first cause, too."""
        if cause is self._cause:
            return cause
        return type(cause)(
            f"{cause}; it began with: {self._cause}",
            exchange=cause.exchange,
            queue=cause.queue,
            reply_code=cause.reply_code,
        )

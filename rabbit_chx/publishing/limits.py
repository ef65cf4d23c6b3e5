"""Applied limits: of one wait, and of one outage. Callers supply the time, in seconds of a monotonic clock."""

from __future__ import annotations

import logging

from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.connection.failures import InterruptedLinkError, StallError
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError
from rabbit_chx.publishing.options import Limits, Retries
from rabbit_chx.retry import Retry
from rabbit_chx.words import plural

_log = logging.getLogger(__name__)


class ProgressTimeout:
    """Limits one wait, which may last while there is progress and the broker does not block for too long."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._progress: tuple[object, int, int] | None = None
        self._under_way: int | None = None
        self._blocked = False
        self._still_s = self._blocked_s = 0.0  # without and with a block, since the last progress
        self._checked_at = now

    def check(self, connection: OpenConnection, now: float) -> float:
        """Raise an error if the wait has lasted too long; return the seconds since the last check for which the broker blocked."""
        passed_s = now - self._checked_at
        self._checked_at = now
        blocked_s = passed_s if self._blocked else 0.0
        self._blocked_s += blocked_s
        self._still_s += passed_s - blocked_s
        if connection.session.blocked is not None:
            self._check_block(connection, connection.session.blocked)
            return blocked_s
        self._blocked = False
        if self._has_moved(connection):
            self._still_s = self._blocked_s = 0.0
        elif self._still_s >= self._limits.confirm_timeout_s:
            raise StallError(
                f"{connection.session.where}: the broker has answered nothing for {self._still_s:.0f} s, and "
                f"{connection.session.ledger.open} messages are unconfirmed: look at its alarms and log, "
                "or raise the confirm timeout"
            )
        return blocked_s

    def _has_moved(self, connection: OpenConnection) -> bool:
        """Return whether a confirm arrived or a byte was sent since the last check without a block, or nothing is in flight."""
        progress = (connection, connection.bytes_sent, connection.session.ledger.answered)
        if progress != self._progress or not (connection.session.ledger.open or connection.backlog):
            self._progress = progress
            self._under_way = None
            return True
        # The peer accepted more bytes from the socket: a large message on a slow line.
        before = self._under_way
        self._under_way = connection.bytes_under_way
        return before is not None and self._under_way < before

    def _check_block(self, connection: OpenConnection, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            _log.warning("%s: the broker blocks publishers: %s", connection.session.where, reason)
        if self._blocked_s >= self._limits.blocked_timeout_s:
            raise BrokerTimeoutError(
                f"{connection.session.where}: the broker has blocked publishers ({reason}) "
                f"for {self._blocked_s:.0f} s: clear its alarm, or raise the blocked timeout"
            )


class Outage:
    """An outage, from the loss of a connection until the broker answers a message again.

    Args:
        cause: the reason for the loss or the failure to connect.
        began: its start, in seconds of a monotonic clock.

    Attributes:
        retry: the attempts to connect.
        last: the error of the last attempt.
        losses: connections that were lost with open messages and without a confirm.
    """

    def __init__(self, retries: Retries, cause: RabbitChxError, began: float) -> None:
        self.retry = Retry(began + retries.reconnect_timeout_s, retries.backoff, retries.max_reconnects)
        self._stalls = 0  # connections without progress
        self.losses = 0
        self.last = cause
        self._retries = retries
        self._cause = cause
        self._began = began

    def is_recoverable(self, cause: RabbitChxError) -> bool:
        """Return whether a new connection may succeed after this error."""
        if not self._retries.reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            self._stalls += 1
            return self._stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return False  # the broker blocks publishers, and would block another connection too
        return is_transient(cause)

    def give_up_error(self, now: float) -> RabbitChxError:
        """Return the error for an outage without attempts left."""
        if not self.retry.attempts:
            return self._cause
        # The addresses of a list are tried in turn, so that the same reasons come in another order.
        is_same = set(str(self.last).split("; ")) == set(str(self._cause).split("; "))
        return ConnectionLostError(
            f"{self._cause}; gave up after {plural(self.retry.attempts, 'attempt')} to connect in {now - self._began:.0f} s"
            f"{'' if is_same else f', the last attempt failed: {self.last}'}"
        )

    def end_error(self, cause: RabbitChxError) -> RabbitChxError:
        """Return the error for an outage that `cause` ends; it also names the first cause."""
        if cause is self._cause:
            return cause
        return cause.reworded(f"{cause}; it began with: {self._cause}")

"""Limits of publishing: the window, timeouts and retries. Callers supply the time, in seconds of a monotonic clock."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.connection.failures import InterruptedLinkError, StallError
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError
from rabbit_chx.retry import Backoff, Retry

_log = logging.getLogger(__name__)

_LONGEST_BACKOFF_S = 5.0


@dataclass(frozen=True)
class Limits:
    """Limits of a publishing connection.

    Attributes:
        max_in_flight: the most messages that are sent and not answered.
        max_in_flight_bytes: the same in bytes of their frames. A single larger batch is sent alone.
        confirm_timeout_s: the longest time without a confirm and without a sent byte of a message, in seconds, not counting blocks.
        blocked_timeout_s: the longest time for which the broker may block publishers, in seconds; 0 fails immediately. Blocks add up unless
            there is progress between them.
    """

    max_in_flight: int = 1000
    max_in_flight_bytes: int = 8 << 20
    confirm_timeout_s: float = 60.0
    blocked_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        check_whole("max_in_flight", self.max_in_flight, 1)
        check_whole("max_in_flight_bytes", self.max_in_flight_bytes, 1)
        check_seconds("confirm_timeout_s", self.confirm_timeout_s, zero=False)
        check_seconds("blocked_timeout_s", self.blocked_timeout_s)


@dataclass(frozen=True)
class Retries:
    """The number and timing of retries.

    Attributes:
        reconnect_timeout_s: the time for reconnecting, in seconds after the loss. Each confirm restarts it. 0 does not reconnect.
        max_reconnects: the most failed attempts in a row. None for no such limit; 0 does not reconnect.
        retry_first_connection: whether the first connection is retried for that time, too; otherwise it fails immediately.
        nack_retries: how often a refused message is sent again while no other message is confirmed.
        backoff_s: seconds before the first attempt of either kind; each later pause is twice as long, at most 5 s.
        keep_order: whether a refused message is an error immediately, so that later messages do not overtake it.
    """

    reconnect_timeout_s: float = 120.0
    max_reconnects: int | None = None
    retry_first_connection: bool = False
    nack_retries: int = 3
    backoff_s: float = 1.0
    keep_order: bool = False

    def __post_init__(self) -> None:
        if self.max_reconnects is not None:
            check_whole("max_reconnects", self.max_reconnects, 0)
        check_whole("nack_retries", self.nack_retries, 0)
        check_seconds("backoff_s", self.backoff_s)
        check_seconds("reconnect_timeout_s", self.reconnect_timeout_s)

    @property
    def reconnects(self) -> bool:
        """True if a lost connection is replaced."""
        return self.max_reconnects != 0 and self.reconnect_timeout_s > 0

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.backoff_s, _LONGEST_BACKOFF_S)


class Patience:
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
        passed_s, self._checked_at = now - self._checked_at, now
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
            self._progress, self._under_way = progress, None
            return True
        return self._is_under_way(connection)

    def _is_under_way(self, connection: OpenConnection) -> bool:
        """Return whether the peer accepted more bytes from the socket: a large message on a slow line."""
        before, self._under_way = self._under_way, connection.bytes_under_way
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
        losses: connections that were lost with open rows and without a confirm.
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

    def given_up(self, now: float) -> RabbitChxError:
        """Return the error for an outage without attempts left."""
        if not self.retry.attempts:
            return self._cause
        return ConnectionLostError(
            f"{self._cause}; gave up after {self.retry.attempts} attempts to connect in {now - self._began:.0f} s, "
            f"the last attempt failed: {self.last}"
        )

    def ended_by(self, cause: RabbitChxError) -> RabbitChxError:
        """Return the error for an outage that `cause` ends; it also names the first cause."""
        if cause is self._cause:
            return cause
        return type(cause)(
            f"{cause}; it began with: {self._cause}",
            exchange=cause.exchange,
            queue=cause.queue,
            reply_code=cause.reply_code,
        )

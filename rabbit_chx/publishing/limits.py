"""The bounds of publishing: how much may be in flight, how long to wait, how often to try again.

Nothing here has a clock: its callers tell the time, in seconds of a clock that only goes forward.
"""

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
    """Bounds of a publishing connection.

    Attributes:
        max_in_flight: the most messages that are sent and not yet answered.
        max_in_flight_bytes: the same in bytes of their frames. A batch that alone is larger is sent alone.
        confirm_timeout_s: the longest time without an answer and without a byte of a message on its way, in seconds, not counting blocks.
        blocked_timeout_s: the longest time for which the broker may block publishers, in seconds; 0 fails at once. Blocks count together,
            unless something moves between them.
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
    """How long and how often to try again, and when.

    Attributes:
        reconnect_timeout_s: how long to try to connect again, in seconds after the loss. Each answer of the broker for a message starts
            this time again. 0 does not reconnect.
        max_reconnects: a further bound: failed attempts in a row. None for no such bound; 0 does not reconnect.
        retry_first_connection: whether the first connection is retried for that time, too; else it fails at once.
        nack_retries: how often a message that the broker refused is sent again while no other is confirmed.
        backoff_s: seconds before the first attempt of either kind; each further one waits twice as long, at most 5 s.
        keep_order: whether a refused message is an error at once, so that no later one overtakes it.
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
        """Whether a lost connection is replaced at all."""
        return self.max_reconnects != 0 and self.reconnect_timeout_s > 0

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.backoff_s, _LONGEST_BACKOFF_S)


class Patience:
    """Bounds one wait: it may last while there is progress and the broker does not block us for too long.

    Args:
        limits: how long is too long.
        now: when the wait began, in seconds of a clock that only goes forward.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._progress: tuple[object, int, int] | None = None
        self._under_way: int | None = None
        self._blocked = False
        self._still_s = self._blocked_s = 0.0  # without and with a block, since something moved
        self._checked_at = now

    def check(self, connection: OpenConnection, now: float) -> float:
        """Raise an error if the wait has lasted too long.

        Args:
            connection: the connection whose answers are awaited.
            now: the time, in seconds of the same clock.

        Returns:
            Seconds since the last check for which the broker has blocked us.
        """
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
        """Return whether there is a confirm or a sent byte since the last check without a block, or nothing in flight."""
        progress = (connection, connection.bytes_sent, connection.session.ledger.answered)
        if progress != self._progress or not (connection.session.ledger.open or connection.backlog):
            self._progress, self._under_way = progress, None
            return True
        return self._is_under_way(connection)

    def _is_under_way(self, connection: OpenConnection) -> bool:
        """Return whether the peer has taken more bytes from the socket: a large message on a slow line."""
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
    """One outage, from the loss of a connection until the broker answers for a message again, and how long to try.

    Args:
        retries: the bounds.
        cause: why the connection was lost or could not be opened.
        began: when it began, in seconds of a clock that only goes forward.

    Attributes:
        retry: the attempts to connect.
        last: the error of the last attempt.
    """

    def __init__(self, retries: Retries, cause: RabbitChxError, began: float) -> None:
        self.retry = Retry(began + retries.reconnect_timeout_s, retries.backoff, retries.max_reconnects)
        self._stalls = 0  # connections on which nothing moved
        self.last = cause
        self._retries = retries
        self._cause = cause
        self._began = began

    def is_recoverable(self, cause: RabbitChxError) -> bool:
        """Return whether a new connection may do better than the one that failed with this."""
        if not self._retries.reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            self._stalls += 1
            return self._stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return False  # the broker has blocked us for too long, and would block another connection too
        return is_transient(cause)

    def given_up(self, now: float) -> RabbitChxError:
        """Return the error for an outage that took too long: no attempt is left."""
        if not self.retry.attempts:
            return self._cause
        return ConnectionLostError(
            f"{self._cause}; gave up after {self.retry.attempts} attempts to connect in {now - self._began:.0f} s, "
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

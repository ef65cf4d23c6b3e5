"""How long a wait may last: as long as something moves and the broker does not block us for too long."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rabbit_chx.connection.failures import StallError
from rabbit_chx.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from rabbit_chx.connection.link import Link
    from rabbit_chx.publishing.limits import Limits

__all__ = ["Patience"]

_log = logging.getLogger(__name__)


class Patience:
    """The watch over one wait. It has no clock: its caller tells it the time.

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
        self._looked_at = now

    def look(self, link: Link, now: float) -> float:
        """Check whether to go on waiting.

        Args:
            link: the connection whose answers are awaited.
            now: the time, in seconds of the same clock.

        Returns:
            Seconds since the last look for which the broker has blocked us.

        Raises:
            StallError: messages are unconfirmed, and nothing has moved for `Limits.confirm_timeout_s`, without blocks.
            BrokerTimeoutError: the broker has blocked us for `Limits.blocked_timeout_s`. Blocks count together unless
                something has moved between them.
        """
        passed_s, self._looked_at = now - self._looked_at, now
        blocked_s = passed_s if self._blocked else 0.0
        self._blocked_s += blocked_s
        self._still_s += passed_s - blocked_s
        if link.blocked is not None:
            self._stay_blocked(link, link.blocked)
            return blocked_s
        self._blocked = False
        if self._has_moved(link):
            self._still_s = self._blocked_s = 0.0
        elif self._still_s >= self._limits.confirm_timeout_s:
            raise StallError(
                f"{link.where}: the broker has answered nothing for {self._still_s:.0f} s, and "
                f"{link.open} messages are unconfirmed: look at its alarms and log, "
                "or raise the confirm timeout"
            )
        return blocked_s

    def _has_moved(self, link: Link) -> bool:
        """Whether there is an answer, or a byte on its way, since the last look without a block; or nothing to move."""
        progress = (link, link.bytes_sent, link.answered)
        if progress != self._progress or not (link.open or link.backlog):
            self._progress, self._under_way = progress, None
            return True
        return self._is_under_way(link)

    def _is_under_way(self, link: Link) -> bool:
        """Whether the peer has taken more of what the socket holds: a large message on a slow line."""
        before, self._under_way = self._under_way, link.bytes_under_way
        return before is not None and self._under_way < before

    def _stay_blocked(self, link: Link, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            _log.warning("%s: the broker blocks publishers: %s", link.where, reason)
        if self._blocked_s >= self._limits.blocked_timeout_s:
            raise BrokerTimeoutError(
                f"{link.where}: the broker has blocked publishers ({reason}) "
                f"for {self._blocked_s:.0f} s: clear its alarm, or raise the blocked timeout"
            )

"""The bounds of publishing: how much may be on its way, how long to wait, how often to try again."""

from __future__ import annotations

from dataclasses import dataclass

from rabbit_chx.checks import check_seconds, check_whole

__all__ = ["Limits", "Retries"]

_LONGEST_BACKOFF_S = 5.0


@dataclass(frozen=True)
class Limits:
    """Bounds of a publishing connection.

    Attributes:
        max_in_flight: the most messages that are sent and not yet answered.
        max_in_flight_bytes: the same in bytes of their frames. A batch that alone is larger is sent alone.
        confirm_timeout_s: the longest time without an answer and without a byte of a message on its way, in seconds, not
            counting blocks.
        blocked_timeout_s: the longest time for which the broker may block publishers, in seconds; 0 fails at once. Blocks
            count together, unless something moves between them.
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
        reconnect_timeout_s: how long to try to connect again, in seconds after the loss. Each answer of the broker for a
            message starts this time again. 0 does not reconnect.
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

    def delay_s(self, attempts: int, chance: float) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            attempts: the number of attempts so far.
            chance: a random number from 0 to 1, so that many publishers do not come back at one moment.
        """
        longest = min(self.backoff_s * 2.0 ** min(attempts, 30), _LONGEST_BACKOFF_S)
        return longest * (0.5 + chance / 2)

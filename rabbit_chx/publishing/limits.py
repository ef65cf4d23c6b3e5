"""The bounds of publishing: how much may be on its way, how long to wait, how often to try again."""

from __future__ import annotations

from dataclasses import dataclass

from rabbit_chx.errors import InputError

__all__ = ["Limits", "Retries"]

_LONGEST_BACKOFF_S = 30.0


@dataclass(frozen=True)
class Limits:
    """Bounds of a publishing connection.

    Attributes:
        max_in_flight: messages sent and not yet answered.
        max_in_flight_bytes: bytes of their frames. One larger batch still goes, alone.
        confirm_timeout_s: seconds in which neither a byte was taken nor a message answered.
        blocked_timeout_s: seconds in a row in which the broker asks publishers to wait; 0 fails at once.
    """

    max_in_flight: int = 1000
    max_in_flight_bytes: int = 8 << 20
    confirm_timeout_s: float = 60.0
    blocked_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name, value in (
            ("max_in_flight", self.max_in_flight),
            ("max_in_flight_bytes", self.max_in_flight_bytes),
        ):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}: give a whole number, 1 or more")
        if not (isinstance(self.confirm_timeout_s, (int, float)) and self.confirm_timeout_s > 0):
            raise InputError(f"confirm_timeout_s is {self.confirm_timeout_s!r}: give more than 0 seconds")
        if not (isinstance(self.blocked_timeout_s, (int, float)) and self.blocked_timeout_s >= 0):
            raise InputError(f"blocked_timeout_s is {self.blocked_timeout_s!r}: give 0 seconds or more")


@dataclass(frozen=True)
class Retries:
    """How often to try again, and when.

    Attributes:
        max_reconnects: failed attempts in a row to go on over a new connection, until the publisher gives up.
        nack_retries: how often a message that the broker refused is sent again.
        backoff_s: seconds before the first attempt of either kind; each further one waits twice as long, at most 30 s.
        keep_order: no message may overtake one that was handed over before; so a refused one is not sent again.
    """

    max_reconnects: int = 3
    nack_retries: int = 3
    backoff_s: float = 1.0
    keep_order: bool = False

    def __post_init__(self) -> None:
        for name, value in (("max_reconnects", self.max_reconnects), ("nack_retries", self.nack_retries)):
            if type(value) is not int or value < 0:
                raise InputError(f"{name} is {value!r}: give a whole number, 0 or more")
        if not (isinstance(self.backoff_s, (int, float)) and 0 <= self.backoff_s < float("inf")):
            raise InputError(f"backoff_s is {self.backoff_s!r}: give 0 seconds or more")

    def delay_s(self, attempts: int, chance: float) -> float:
        """Seconds to wait before the next attempt.

        Args:
            attempts: how many there were already.
            chance: a random number from 0 to 1, so that many publishers do not come back at one moment.
        """
        longest = min(self.backoff_s * 2.0 ** min(attempts, 30), _LONGEST_BACKOFF_S)
        return longest * (0.5 + chance / 2)

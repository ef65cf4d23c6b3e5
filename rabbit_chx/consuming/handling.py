"""How messages are handled: in how many lanes, how often again, and what follows the last attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.errors import InputError

__all__ = ["Handling", "OnFailure"]

OnFailure = Literal["stop", "dead-letter"]
_MOST_LANES = 256
_MOST_PREFETCH = 1000


@dataclass(frozen=True)
class Handling:
    """Bounds and choices of a group's handling.

    Attributes:
        lanes: how many messages of one queue are handled at a time. All messages of a key have one lane.
        prefetch: how many messages of one queue the broker may deliver ahead, 1 to 1000, and at least `lanes`.
        retries: how often a message is given to the handler again after it has raised.
        backoff_s: seconds before the first repetition; each further one waits twice as long.
        longest_backoff_s: the most seconds between two attempts.
        on_failure: what follows the last attempt. ``stop`` leaves the message in its place and ends the group with
            an error. ``dead-letter`` rejects it, and the queue's dead-letter exchange gets it.
        park_timeout_s: seconds without a parked message after which the end of a slot's hand-over is not awaited any more.
    """

    lanes: int = 1
    prefetch: int = 32
    retries: int = 5
    backoff_s: float = 0.2
    longest_backoff_s: float = 30.0
    on_failure: OnFailure = "stop"
    park_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_whole("lanes", self.lanes, 1, _MOST_LANES)
        check_whole("prefetch", self.prefetch, self.lanes, _MOST_PREFETCH)
        check_whole("retries", self.retries, 0, 1 << 31)
        for name in ("backoff_s", "longest_backoff_s", "park_timeout_s"):
            check_seconds(name, getattr(self, name))
        if self.on_failure not in get_args(OnFailure):
            raise InputError(f"on_failure is {self.on_failure!r}: give 'stop' or 'dead-letter'")

    def delay_s(self, attempts: int) -> float:
        """Return the seconds to wait after so many attempts.

        Args:
            attempts: the attempts that have failed, 1 or more.
        """
        return float(min(self.backoff_s * 2.0 ** min(attempts - 1, 30), self.longest_backoff_s))

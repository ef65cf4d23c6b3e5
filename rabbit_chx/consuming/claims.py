"""Which messages this process handles at this moment, so that no two handlers are at work on one message id."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from threading import Lock

from rabbit_chx.errors import DeduplicationError

__all__ = ["Claims"]


class Claims:
    """Message ids that a handler is at work on. Threads and tasks share them.

    Args:
        timeout_s: how long to wait for another handler of the same id, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._held: dict[str, Future[None]] = {}

    def take(self, message_id: str) -> None:
        """Claim the id; wait while another handler has it.

        Raises:
            DeduplicationError: the other handler does not end in time.
        """
        deadline = time.monotonic() + self._timeout_s
        while (other := self._other(message_id)) is not None:
            try:
                other.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._too_late(message_id) from None

    async def take_async(self, message_id: str) -> None:
        """Do as `take` does, on asyncio."""
        deadline = time.monotonic() + self._timeout_s
        while (other := self._other(message_id)) is not None:
            ended = asyncio.shield(
                asyncio.wrap_future(other)
            )  # unshielded, it would be cancelled for all who wait
            try:
                await asyncio.wait_for(ended, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._too_late(message_id) from None

    def release(self, message_id: str) -> None:
        """Give the id back and wake whoever waits for it."""
        with self._lock:
            ended = self._held.pop(message_id)
        ended.set_result(None)

    def _other(self, message_id: str) -> Future[None] | None:
        """Return what ends with the handler that has the id; None where the id was free and is now ours."""
        with self._lock:
            other = self._held.get(message_id)
            if other is None:
                self._held[message_id] = Future()
            return other

    def _too_late(self, message_id: str) -> DeduplicationError:
        return DeduplicationError(
            f"message {message_id!r}: another handler of this process is at work on it since more than "
            f"{self._timeout_s:g} s: do not ack this copy, and look for a handler that hangs, or raise timeout_s"
        )

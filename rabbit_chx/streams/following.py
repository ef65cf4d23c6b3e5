"""The waits of a reader whose stream has no end: for the next chunk, and for more rows of a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rabbit_chx.errors import BrokerTimeoutError
from rabbit_chx.streams.connection import StreamConnection

#: The longest wait, and the longest attempt to connect, after which the reader looks for a call of `stop`.
STOP_INTERVAL_S = 0.2
ATTEMPT_S = 5.0
#: Seconds in which a chunk that the leader has may still arrive.
_LAG_S = 1.0


class Following:
    """The times of the rows of a batch, and the waits that end by them.

    Args:
        stream: the stream's name.
        max_wait_s: the longest time in seconds from the arrival of a row to the return of its batch.
        timeout_s: the longest time in seconds in which a stored chunk may not arrive.
        receive: receives from a connection for at most a number of seconds, and returns whether chunks have been received.
        is_behind: asks the leader until a deadline, by ``time.monotonic()``, whether it has a chunk that was not received.

    Attributes:
        is_stopped: ends the waits; another thread may set it.
        is_interrupted: whether the connection was lost since the leader was asked.
    """

    def __init__(
        self,
        stream: str,
        max_wait_s: float,
        timeout_s: float,
        receive: Callable[[StreamConnection, float], bool],
        is_behind: Callable[[float], bool],
    ) -> None:
        self.is_stopped = self.is_interrupted = False
        self._stream = stream
        self._max_wait_s = max_wait_s
        self._timeout_s = timeout_s
        self._receive = receive
        self._is_behind = is_behind
        self._polled_at = -math.inf  # when the last receiving ended
        self._arrived_at = -math.inf  # when the oldest row of the batch has arrived, at the earliest

    def _poll(self, connection: StreamConnection, wait_s: float) -> bool:
        found = self._receive(connection, min(wait_s, STOP_INTERVAL_S))
        self._polled_at = time.monotonic()
        return found

    def wait(self, connection: StreamConnection, deadline: float) -> bool:
        """Wait for the first chunk of a batch, and return whether there is one. There is none after `stop`, or if the leader has none either.

        Half of the timeout passes before the leader is asked: another connection is tried in the other half.
        """
        silent_at = min(deadline, time.monotonic() + self._timeout_s / 2)
        self._arrived_at = self._polled_at
        found = self._poll(connection, 0.0)
        while not found and not self.is_stopped:
            left_s = silent_at - time.monotonic()
            if left_s <= 0:
                if not self._is_behind(max(deadline, time.monotonic() + ATTEMPT_S)):
                    return False
                if not self._receive(connection, _LAG_S):
                    raise BrokerTimeoutError(
                        f"{connection.where}: stream {self._stream!r} delivers nothing, and its leader has further rows: look at its "
                        "replicas (rabbitmq-streams stream_status)",
                        queue=self._stream,
                    )
                return True
            found = self._poll(connection, left_s)
            self._arrived_at = self._polled_at
        return found

    def wait_for_more(self, connection: StreamConnection) -> bool:
        """Wait for a chunk until the batch must be returned, and return whether there is one."""
        while not self.is_stopped:
            left_s = self._arrived_at + self._max_wait_s - time.monotonic()
            if self._poll(connection, max(left_s, 0.0)):
                return True
            if left_s <= 0:
                break
        return False

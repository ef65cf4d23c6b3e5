"""What a channel of aiormq writes, with nothing dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["WriteQueue"]


class WriteQueue:
    """The queue of a connection's frames, as one channel sees it.

    aiormq drops its confirmation of a channel's end where ten frames wait to be written (7.2.4, ``Channel._on_close_frame``). The
    broker then keeps the channel with its consumers. It delivers to them, and the messages wait until the connection ends.

    Args:
        queue: the queue of the connection.
    """

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue
        self._waiting: set[asyncio.Task[None]] = set()

    def put(self, frame: Any) -> Coroutine[Any, Any, None]:  # noqa: ANN401
        """Write a frame when there is room.

        Args:
            frame: the frame.
        """
        return self._queue.put(frame)

    def put_nowait(self, frame: Any) -> None:  # noqa: ANN401
        """Write a frame when there is room, and do not wait for it.

        Args:
            frame: the frame.
        """
        task = asyncio.get_running_loop().create_task(self._queue.put(frame))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

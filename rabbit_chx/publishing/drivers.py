"""What a delivery asks for, step by step, and the two drivers that do it: blocking and on asyncio.

A delivery does no I/O. Each of its operations is a generator that yields a `Step` and gets the answer back, or the error
thrown in. The loop that does so is here in two forms, and so is what each step means. The forms are side by side, so that
one can be compared with the other line by line. All decisions are in `delivery`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.connection.asyncio_connection import AsyncConnection

__all__ = ["AsyncDriver", "Close", "Driver", "Open", "Sleep", "Step", "Steps", "Turn", "run", "run_async"]


class Open(NamedTuple):
    """Close the present connection, if any, and open one there; the answer is its `Link`."""

    settings: ConnectionSettings


class Close(NamedTuple):
    """Close the present connection."""


class Turn(NamedTuple):
    """Send what is queued, and receive what comes.

    Attributes:
        wait_s: seconds to wait at most.
        until_open: wait until no more messages than this are open or the broker refuses one; None for one round.
    """

    wait_s: float
    until_open: int | None = None


class Sleep(NamedTuple):
    """Wait so many seconds, without a connection."""

    seconds: float


Step: TypeAlias = Open | Close | Turn | Sleep
Steps: TypeAlias = Generator[Step, Any, None]


# -- the loop


def run(steps: Steps, do: Callable[[Step], object]) -> None:
    """Do every step of an operation.

    Args:
        steps: the operation. It is closed where `do` raises anything but a RabbitChxError.
        do: does one step and returns the answer. A RabbitChxError that it raises is thrown into the operation.

    Raises:
        RabbitChxError: the operation raises it.
    """
    with contextlib.closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = do(step)
                except RabbitChxError as cause:
                    step = steps.throw(cause)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return


async def run_async(steps: Steps, do: Callable[[Step], Awaitable[object]]) -> None:
    """Do as `run`, where doing a step is awaited."""
    with contextlib.closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = await do(step)
                except RabbitChxError as cause:
                    step = steps.throw(cause)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return


# -- the steps


class Driver:
    """Does the steps of a delivery over blocking connections, one at a time.

    Args:
        interrupted: called with what interrupts a step in the middle: Ctrl-C, or what another signal's handler raises.

    Attributes:
        connection: the present connection, or the last one; None before the first.
    """

    def __init__(self, interrupted: Callable[[BaseException], None]) -> None:
        self.connection: Connection | None = None
        self._interrupted = interrupted
        self._lock = threading.RLock()  # the connection's own thread waits for it

    def run(self, steps: Steps) -> None:
        """Do every step of an operation.

        Raises:
            RabbitChxError: the operation raises it.
        """
        with self._lock:
            try:
                run(steps, self._do)
            except RabbitChxError:
                raise
            except BaseException as cause:
                self._interrupted(cause)
                raise

    def _do(self, step: Step) -> Connection | None:
        if isinstance(step, Turn):
            assert self.connection is not None  # noqa: S101  # a delivery opens one first
            self.connection.turn(step.wait_s, step.until_open)
        elif isinstance(step, Open):
            self.close()
            self.connection = Connection(step.settings, self._lock)
            return self.connection
        elif isinstance(step, Close):
            self.close()
        else:
            time.sleep(step.seconds)
        return None

    def close(self) -> None:
        """Close the connection, if there is one; may be called again."""
        if self.connection is not None:
            self.connection.close()


class AsyncDriver:
    """Does the steps of a delivery over connections of asyncio, one at a time.

    A task that is cancelled is never in the middle of a step's work, so nothing else is to be done then.

    Attributes:
        connection: the present connection, or the last one; None before the first.
    """

    def __init__(self) -> None:
        import asyncio  # programs that do not use it need not load it

        from rabbit_chx.connection.asyncio_connection import AsyncConnection  # loads it, too

        self.connection: AsyncConnection | None = None
        self._lock = asyncio.Lock()  # tasks take turns
        self._sleep = asyncio.sleep
        self._connection_type = AsyncConnection

    async def run(self, steps: Steps, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do every step of an operation.

        Args:
            steps: the operation.
            then: is awaited behind it, before another task has its turn.

        Raises:
            RabbitChxError: the operation raises it, or `then`.
        """
        async with self._lock:
            await run_async(steps, self._do)
            if then is not None:
                await then()

    async def _do(self, step: Step) -> AsyncConnection | None:
        if isinstance(step, Turn):
            assert self.connection is not None  # noqa: S101  # a delivery opens one first
            await self.connection.turn(step.wait_s, step.until_open)
        elif isinstance(step, Open):
            await self.close()
            self.connection = await self._connection_type.connect(step.settings)
            return self.connection
        elif isinstance(step, Close):
            await self.close()
        else:
            await self._sleep(step.seconds)
        return None

    async def close(self) -> None:
        """Close the connection, if there is one; may be called again."""
        if self.connection is not None:
            await self.connection.close()

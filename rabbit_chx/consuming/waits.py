"""Tasks and waits of consumers: of hooks, for events, for publishing while the broker may block publishers, and before reconnecting; `waiting`, `LoopWatch`."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer
from typing import Any, TypeVar

from rabbit_chx.amqp.replies import may_be_limit
from rabbit_chx.errors import BrokerTimeoutError, RabbitChxError
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.limits import Outage
from rabbit_chx.retry import jitter

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_MAX_WAIT_S = 2.0
#: Seconds before a failed publish is repeated, and the number of failures in a row of which the last is a warning.
REPUBLISH_S = 1.0
_LASTING = 3
#: A member that cannot write for so long, since the broker blocks publishers, goes on without.
BLOCKED_S = 2.0
#: The time limit of handlers and hooks that are cancelled, in seconds.
CANCELLED_S = 5.0
#: What waits for so long logs once what it waits for, in seconds.
LONG_S = 10.0
_HOOKS: set[asyncio.Task[Any]] = set()  # that run: the event loop would not keep them


@contextmanager
def waiting(name: str, what: str) -> Iterator[None]:
    """Log once that `name` waits in this block for `what`, if it takes more than `LONG_S`. A thread may use it, too."""
    log = partial(_log.warning, "%s has waited for %g s for %s", name, LONG_S, what)
    try:
        timer: asyncio.TimerHandle | Timer = asyncio.get_running_loop().call_later(LONG_S, log)
    except RuntimeError:  # no event loop
        timer = Timer(LONG_S, log)
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class LoopWatch:
    """Measures how long the event loop of a member has not answered. Every thread may read it.

    Args:
        timeout_s: the longest silence in seconds.
    """

    def __init__(self, timeout_s: float = math.inf) -> None:
        self.timeout_s = timeout_s
        self._interval_s = min(1.0, timeout_s / 4)
        self._answered_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def silence_s(self) -> float:
        """The seconds since the last answer, not more than some seconds while the loop is not blocked."""
        # Before the last answer is read, so that an answer in between does not look late.
        now = time.monotonic()
        return now - self._answered_at

    @property
    def is_late(self) -> bool:
        """Whether the silence is too long. It remains so until `start` has called its function."""
        return self.silence_s > self.timeout_s

    def start(self, on_late: Callable[[float], None]) -> None:
        """Watch the running loop; call a function in it with the length of a silence that was too long, when it answers again."""
        silence_s = self.silence_s
        if silence_s > self.timeout_s:
            on_late(silence_s)
        self._answered_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self.start, on_late)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._answered_at = math.inf


async def call_hook(hook: Callable[[str], Awaitable[_T]], queue: str, seconds: float) -> _T:
    """Return what a user's hook returns. It runs in a task of its own: it may cancel itself, and may go on although it is cancelled.

    Raises:
        TimeoutError: it had not ended in time, and was cancelled.
        asyncio.CancelledError: this task was cancelled, and the hook with it; or the hook ended so.
        BaseException: what the hook raised.
    """

    async def call() -> _T:  # a task takes no other awaitable
        return await hook(queue)

    task = asyncio.get_running_loop().create_task(call())
    _HOOKS.add(task)
    task.add_done_callback(_HOOKS.discard)
    try:
        with waiting(queue, "a hook to return: look what on_gained or on_lost waits for"):
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        if not (task.done() or task.cancelling()):  # otherwise the event loop ends, and has cancelled it
            task.cancel()
        await asyncio.wait({task}, timeout=CANCELLED_S)
        if task.cancelled() or not task.done():
            raise
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCELLED_S)
        if not task.done():
            raise TimeoutError(f"it has not ended after {seconds:g} s, and goes on although it was cancelled")
        if task.cancelled():
            raise TimeoutError(f"it had not ended after {seconds:g} s")
    return task.result()


def start_task(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    """Start a task, and keep it in `tasks` until it ends: the event loop would not keep it."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def wait_unless_blocked(
    waited: asyncio.Future[Any], seconds: float, is_blocked: Callable[[], Awaitable[bool]]
) -> bool:
    """Wait for a future that depends on publishing; return whether it is done in time. Otherwise it is cancelled.

    The limit starts over whenever the broker blocks publishers at its beginning or its end.
    """
    try:
        blocked = await is_blocked()
        while not waited.done():
            await asyncio.wait({waited}, timeout=seconds)
            was_blocked = blocked
            blocked = await is_blocked()
            if not (waited.done() or was_blocked or blocked):
                return False
        return True
    finally:
        waited.cancel()


async def wait_to_publish(failures: int, cause: RabbitChxError, queue: str) -> None:
    """Wait before publishing is repeated after so many failures in a row; the third one is a warning."""
    level = logging.WARNING if failures == _LASTING else logging.INFO
    text = "%s; publishing to %s again in %g s"
    _log.log(level, text, cause, queue, REPUBLISH_S, extra={"queue": queue})
    await asyncio.sleep(REPUBLISH_S)


async def wait_for_any(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until one of the events is set; return False after the time limit."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)


async def wait_to_reconnect(
    retries: Retries,
    outage: Outage | None,
    cause: RabbitChxError,
    stop: asyncio.Event,
    *,
    name: str,
    lost_at: float | None = None,
) -> Outage:
    """Wait before the next attempt to connect, and return the present outage; raise the cause if retries are used up or cannot succeed.

    Args:
        retries: the limits.
        outage: the present outage; None begins one.
        cause: the error that ended the connection or the last attempt.
        stop: ends the wait.
        name: the consumer, for the log.
        lost_at: when an outage that begins has begun, by ``time.monotonic()``; None for now.
    """
    outage = outage or Outage(retries, cause, time.monotonic() if lost_at is None else lost_at)
    outage.last = cause
    # For a publisher a time-out means a blocking broker. For a consumer it means a missing response, after which a retry may succeed.
    # A vhost that is refused was open before: a limit of connections may be the reason, which the stream protocol does not tell.
    may_pass = isinstance(cause, BrokerTimeoutError) or may_be_limit(cause)
    if not may_pass and not outage.is_recoverable(cause):
        raise outage.end_error(cause) from cause
    wait_s = outage.retry.wait_s(time.monotonic(), jitter())
    if wait_s is None:
        raise outage.give_up_error(time.monotonic()) from cause
    wait_s = min(wait_s, _MAX_WAIT_S)
    outage.retry.attempts += 1
    _log.warning("%s: %s; connecting again in %.1f s", name, cause, wait_s)
    await wait_for_any(stop, timeout_s=wait_s)
    return outage

"""Waits of consumers: for an event, for what takes as long as the broker blocks publishers, and before they connect again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rabbit_chx.errors import BrokerTimeoutError, RabbitChxError
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.limits import Outage

_log = logging.getLogger(__name__)
_LONGEST_WAIT_S = 2.0


async def came(
    waited: asyncio.Future[Any], seconds: float, is_blocked: Callable[[], Awaitable[bool]]
) -> bool:
    """Wait for something that needs a message to be published, and return whether it came. If not, it is cancelled.

    It may take these seconds. The time for which the broker blocks publishers does not count.
    """
    try:
        blocked = await is_blocked()
        while not waited.done():
            await asyncio.wait({waited}, timeout=seconds)
            before, blocked = blocked, await is_blocked()
            if not (waited.done() or before or blocked):
                return False
        return True
    finally:
        waited.cancel()


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until one of some events is set; return whether one is in time."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)


async def wait_to_reconnect(
    retries: Retries, outage: Outage | None, cause: RabbitChxError, stop: asyncio.Event, who: str
) -> Outage:
    """Wait before the next attempt to connect, and return the outage, which may be new.

    Args:
        retries: how long and how often to try again.
        outage: the outage, if it has begun before.
        cause: why the connection was lost, or why the last attempt failed.
        stop: ends the wait.
        who: who connects, for the log.

    Raises:
        RabbitChxError: no attempt is left, or none would help.
    """
    outage = outage or Outage(retries, cause, time.monotonic())
    outage.last = cause
    # A publisher takes this error for a broker that blocks. A consumer waits for that elsewhere: here, an answer did not come.
    if not isinstance(cause, BrokerTimeoutError) and not outage.is_recoverable(cause):
        raise outage.ended_by(cause) from cause
    wait_s = outage.retry.wait_s(time.monotonic(), random.random())  # noqa: S311  # no secret
    if wait_s is None:
        raise outage.given_up(time.monotonic()) from cause
    wait_s = min(wait_s, _LONGEST_WAIT_S)
    outage.retry.attempts += 1
    _log.warning("%s: %s; connecting again in %.1f s", who, cause, wait_s)
    await first_of(stop, timeout_s=wait_s)
    return outage

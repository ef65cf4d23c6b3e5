"""Waits of a group: for one of several events, and for what takes as long as the broker blocks publishers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["came", "first_of"]


async def came(
    waited: asyncio.Future[Any], seconds: float, is_blocked: Callable[[], Awaitable[bool]]
) -> bool:
    """Wait for what needs something to be published, and return whether it came. Else it is cancelled.

    Args:
        waited: what is waited for.
        seconds: how long it may take, beside the time for which the broker blocks publishers.
        is_blocked: whether it does so now.
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
    """Wait until one of some events is set; return whether it is so in time.

    Args:
        events: the events.
        timeout_s: how long to wait, in seconds; None without a bound.
    """
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)

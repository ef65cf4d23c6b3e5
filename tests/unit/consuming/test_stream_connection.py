"""Calls in threads, and brokers that have no single active consumer of streams."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rabbit_chx import errors
from rabbit_chx.consuming.stream_connection import StreamGroupConnection, in_thread


async def test_a_call_in_a_thread_returns_or_raises_and_does_not_keep_the_process_alive() -> None:
    assert await in_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(errors.UnreachableError, match="gone"):
        await in_thread(Mock(side_effect=errors.UnreachableError("gone")))
    waiting = asyncio.create_task(in_thread(lambda: 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_broker_before_3_11_is_refused() -> None:
    """It tells no commands."""
    broker = SimpleNamespace(commands={}, where="here", server_version="3.10.25", close=lambda: None)
    reading: Any = SimpleNamespace(open_any=lambda: broker)
    with pytest.raises(errors.InputError, match=r"RabbitMQ 3\.10.* upgrade to 3\.11 or newer"):
        asyncio.run(StreamGroupConnection.open(reading, 5))


async def test_without_a_further_thread_a_call_is_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(errors.UnreachableError, match="a StreamGroup: the system starts no further thread"):
        await in_thread(lambda: 1)

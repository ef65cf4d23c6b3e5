"""How a member notices that its event loop does not answer, and how long it waits while the broker blocks publishers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from unittest.mock import AsyncMock

import pytest
from bounded import until

from rabbit_chx.consuming import settings
from rabbit_chx.consuming.settings import LoopWatch, wait_unless_blocked, waiting


async def test_a_loop_is_late_after_its_limit_of_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    late: list[float] = []
    watch = LoopWatch(2.0)
    now[0] += 1_000
    assert not watch.is_late, "it is not watched yet"
    watch.start(late.append)
    now[0] += 2.0
    assert (watch.silence_s, watch.is_late) == (2.0, False)
    now[0] += 0.5
    assert (watch.is_late, late) == (True, [])
    monkeypatch.undo()
    watch.stop()


async def test_an_answer_after_a_silence_is_told_once() -> None:
    late: list[float] = []
    answered = asyncio.Event()
    watch = LoopWatch(4.0)  # a busy machine does not stop the loop for so long; it answers each second

    def note(silence_s: float) -> None:
        assert watch.is_late, "until the session has ended"
        late.append(silence_s)
        answered.set()

    watch.start(note)
    watch._answered_at -= 5.0
    await asyncio.wait_for(answered.wait(), 60)
    watch.stop()
    await asyncio.sleep(1.5)
    assert len(late) == 1
    assert late[0] > 5.0
    assert not watch.is_late


@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_a_wait_is_logged_once_when_it_is_long_and_not_when_it_is_short(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, in_a_thread: bool
) -> None:
    monkeypatch.setattr(settings, "LONG_S", 0.05)

    async def wait(name: str, act: Callable[[], object]) -> None:
        def blocking() -> None:
            with waiting(name, "a door: open it"):
                act()

        if in_a_thread:
            await asyncio.to_thread(blocking)
        else:
            with waiting(name, "a door: open it"):
                await asyncio.to_thread(act)

    await wait("short", lambda: None)
    await wait("long", lambda: until(lambda: caplog.records, "it is logged"))
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("WARNING", "long has waited for 0.05 s for a door: open it")]


@pytest.mark.parametrize("blocked", ["--", "+--", "-+--", "++--", "-+-+--"])
async def test_the_limit_starts_over_when_the_broker_begins_or_ends_to_block(blocked: str) -> None:
    """`blocked` is what the broker is at the begin and after each limit: a wait is too long if it is not at both ends of one."""
    is_blocked = AsyncMock(side_effect=[look == "+" for look in blocked])
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert not await wait_unless_blocked(waited, 0.0, is_blocked)
    assert is_blocked.await_count == len(blocked)
    assert waited.cancelled()


async def test_a_wait_that_is_done_in_time_is_not_too_long() -> None:
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.set_result(None)
    assert await wait_unless_blocked(waited, 0.0, AsyncMock(return_value=False))

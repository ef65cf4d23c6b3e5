"""A handler that blocks the event loop of its member: other members take what it had, and the member comes back."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from bounded import Beside
from group_stage import QUICK, Handled, eventually, nothing_was_skipped
from stream_group_stage import StreamGroupStage
from streamed import numbers_in

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]


def test_a_handler_blocks_the_event_loop(vhost: RunningBroker) -> None:
    """As a deadlock in synchronous code does, for longer than `loop_timeout_s`."""
    stage = StreamGroupStage(vhost.stream_url, [f"n.{number}" for number in range(4)])
    stage.declare()
    how: Any = {"timing": replace(QUICK, loop_timeout_s=3.0, gone_s=2.0)}
    hang, is_hung, go_on, leave = (threading.Event() for _ in range(4))
    generations: list[int | None] = []
    a = SimpleNamespace(group=None)

    async def handle(stream: str, batch: Any) -> None:
        generation = a.group.generation(stream)
        if hang.is_set() and not is_hung.is_set():
            is_hung.set()
            go_on.wait(150)
            generations.append(a.group.generation(stream))
        await asyncio.sleep(0)
        stage.handled += [Handled(stream, n, generation or 0, "a", False) for n in numbers_in(batch)]

    async def run() -> None:
        async with stage.member("a", handle=handle, **how) as a.group:
            while not leave.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.05)

    async def story() -> None:
        await asyncio.to_thread(stage.publish, 20)
        await eventually(lambda: a.group is not None and len(a.group.held) == 4, "it owns all")
        async with stage.member("b", **how) as b:
            with stage.load(2):
                await eventually(lambda: len(b.held) == 2, "each has its half")
                assert await asyncio.to_thread(a.group.healthy)
                hang.set()
                await eventually(is_hung.is_set, "the loop is blocked")
                await eventually(lambda: len(b.held) == 4, "the other member takes all")
                assert a.group.healthy().connected is False
                assert b.healthy()
            await eventually(stage.all_handled, "all is handled, though the loop is still blocked")
            go_on.set()
            with stage.load(2):
                await eventually(lambda: len(a.group.held) == len(b.held) == 2, "it takes its share again")
            assert (a.group.reconnects, b.reconnects) == (1, 0)
            await eventually(stage.all_handled, "all is handled")
            await eventually(a.group.healthy, "and it is healthy again")

    member = Beside(lambda: asyncio.run(run()))
    member.start()
    try:
        asyncio.run(story())
    finally:
        go_on.set()
        leave.set()
        member.finish(60)
    assert generations == [None], "it does not vouch for a stream that it has given up"
    assert nothing_was_skipped(stage)

"""A handler that blocks the event loop of its member: other members take what it had, and the member comes back."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from group_stage import QUICK, GroupStage, Handled, eventually, nothing_was_skipped
from stream_group_stage import StreamGroupStage
from streamed import numbers_in

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]

#: A broker misses the heartbeats of a ConsumerGroup after 4 to 6 s.
TIMING = replace(QUICK, loop_timeout_s=3.0, gone_s=2.0)
_BOUND_S = 60.0


class Hung:
    """A member in a thread of its own, whose handler blocks its event loop once it owns all and `hang` is set."""

    def __init__(self, stage: GroupStage) -> None:
        self.hang, self.is_hung, self.go_on = threading.Event(), threading.Event(), threading.Event()
        self.group: Any = None
        self.generations: list[int | None] = []
        self._stage = stage
        self._leave = threading.Event()
        self.thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        self.thread.start()

    def leave(self) -> None:
        """Let it go on and leave."""
        self.go_on.set()
        self._leave.set()
        self.thread.join(_BOUND_S)
        assert not self.thread.is_alive()

    async def _run(self) -> None:
        stage = self._stage
        how: Any = {"timing": TIMING}
        if isinstance(stage, StreamGroupStage):
            context = stage.member("a", handle=self._handle_batch, **how)
        else:
            context = stage.member("a", handle=self._handle_message, url=f"{stage.url}?heartbeat=2", **how)
        async with context as self.group:
            while not self._leave.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.05)

    def _block(self, name: str) -> None:
        if self.hang.is_set() and not self.is_hung.is_set():
            self.is_hung.set()
            self.go_on.wait(150)
            self.generations.append(self._generation(name))

    def _generation(self, name: str) -> int | None:
        return self.group.generation(name) if isinstance(self._stage, StreamGroupStage) else None

    async def _handle_message(self, message: Any) -> None:
        self._block(message.queue)
        await asyncio.sleep(0)
        handled = Handled(message.queue, int(message.body), message.generation or 0, "a", message.redelivered)
        self._stage.handled.append(handled)

    async def _handle_batch(self, stream: str, batch: Any) -> None:
        generation = self._generation(stream) or 0
        self._block(stream)
        await asyncio.sleep(0)
        self._stage.handled += [Handled(stream, n, generation, "a", False) for n in numbers_in(batch)]


@pytest.mark.parametrize("kind", ["queues", "streams"])
def test_a_handler_blocks_the_event_loop(vhost: RunningBroker, kind: str) -> None:
    """As a deadlock in synchronous code does, for longer than `loop_timeout_s`."""
    names = [f"n.{number}" for number in range(4)]
    streams = kind == "streams"
    stage = StreamGroupStage(vhost.stream_url, names) if streams else GroupStage(vhost.url, names)
    stage.declare()
    hung = Hung(stage)

    async def story() -> None:
        await asyncio.to_thread(stage.publish, 20)
        await eventually(lambda: hung.group is not None and len(hung.group.held) == 4, "it owns all")
        async with stage.member("b", timing=TIMING) as b:
            with stage.load(2):
                await eventually(lambda: len(b.held) == 2, "each has its half")
                assert await asyncio.to_thread(hung.group.healthy)
                hung.hang.set()
                await eventually(hung.is_hung.is_set, "the loop is blocked")
                await eventually(lambda: len(b.held) == 4, "the other member takes all", _BOUND_S)
                assert not hung.group.healthy()
                assert hung.group.healthy().connected is False
                assert b.healthy()
            await eventually(stage.all_handled, "all is handled, though the loop is still blocked")
            assert not hung.go_on.is_set()
            hung.go_on.set()
            with stage.load(2):
                await eventually(lambda: len(hung.group.held) == len(b.held) == 2, "it takes its share again")
            assert hung.group.reconnects == 1
            assert b.reconnects == 0
            await eventually(stage.all_handled, "all is handled")
            await eventually(hung.group.healthy, "and it is healthy again")

    try:
        asyncio.run(story())
    finally:
        hung.leave()
    assert hung.generations == [None], "it does not vouch for a stream that it has given up"
    assert nothing_was_skipped(stage)

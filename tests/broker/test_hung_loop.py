"""A handler that blocks the event loop of its member: other members take what it had, and the member comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from group_stage import QUICK, GroupStage, Handled, eventually, nothing_was_skipped
from stream_group_stage import StreamGroupStage
from streamed import numbers_in

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]

#: A broker misses the heartbeats of a ConsumerGroup after 4 to 6 s.
TIMING = replace(QUICK, loop_timeout_s=3.0, gone_s=2.0)


@dataclass
class Hung:
    """A member whose handler blocks its event loop once `hang` is set, until `go_on` is."""

    group: Any = None
    generations: list[int | None] = field(default_factory=list)
    hang: threading.Event = field(default_factory=threading.Event)
    is_hung: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hung(stage: GroupStage) -> Iterator[Hung]:
    """Run the member in a thread, until the block ends."""
    a, leave = Hung(), threading.Event()

    async def handle(*given: Any) -> None:
        if isinstance(stage, StreamGroupStage):
            name, generation, numbers = given[0], a.group.generation(given[0]), numbers_in(given[1])
        else:
            name, generation, numbers = given[0].queue, given[0].generation, [int(given[0].body)]
        if a.hang.is_set() and not a.is_hung.is_set():
            a.is_hung.set()
            a.go_on.wait(150)
            a.generations.append(a.group.generation(name) if isinstance(stage, StreamGroupStage) else None)
        await asyncio.sleep(0)
        stage.handled += [Handled(name, number, generation or 0, "a", False) for number in numbers]

    async def run() -> None:
        how: Any = {} if isinstance(stage, StreamGroupStage) else {"url": f"{stage.url}?heartbeat=2"}
        async with stage.member("a", handle=handle, timing=TIMING, **how) as a.group:
            while not leave.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        yield a
    finally:
        a.go_on.set()
        leave.set()
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("streams", [False, True])
def test_a_handler_blocks_the_event_loop(vhost: RunningBroker, *, streams: bool) -> None:
    """As a deadlock in synchronous code does, for longer than `loop_timeout_s`."""
    names = [f"n.{number}" for number in range(4)]
    stage = StreamGroupStage(vhost.stream_url, names) if streams else GroupStage(vhost.url, names)
    stage.declare()

    async def story(a: Hung) -> None:
        await asyncio.to_thread(stage.publish, 20)
        await eventually(lambda: a.group is not None and len(a.group.held) == 4, "it owns all")
        async with stage.member("b", timing=TIMING) as b:
            with stage.load(2):
                await eventually(lambda: len(b.held) == 2, "each has its half")
                assert await asyncio.to_thread(a.group.healthy)
                a.hang.set()
                await eventually(a.is_hung.is_set, "the loop is blocked")
                await eventually(lambda: len(b.held) == 4, "the other member takes all")
                assert not a.group.healthy()
                assert a.group.healthy().connected is False
                assert b.healthy()
            await eventually(stage.all_handled, "all is handled, though the loop is still blocked")
            assert not a.go_on.is_set()
            a.go_on.set()
            with stage.load(2):
                await eventually(lambda: len(a.group.held) == len(b.held) == 2, "it takes its share again")
            assert a.group.reconnects == 1
            assert b.reconnects == 0
            await eventually(stage.all_handled, "all is handled")
            await eventually(a.group.healthy, "and it is healthy again")

    with hung(stage) as a:
        asyncio.run(story(a))
    assert a.generations == [None], "it does not vouch for a stream that it has given up"
    assert nothing_was_skipped(stage)

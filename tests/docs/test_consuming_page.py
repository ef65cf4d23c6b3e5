"""The first program of docs/consuming.md, and the function of the README, run on a real broker but for its address."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from blocks import python_blocks, replaced
from group_stage import GroupStage

from rabbit_chx import GroupMessage

pytestmark = pytest.mark.broker

QUEUES = [f"orders.{number}" for number in range(1, 17)]


@pytest.fixture
def stage(vhost_url: str) -> GroupStage:
    made = GroupStage(vhost_url, QUEUES)
    made.declare()
    made.publish(1)
    return made


def test_the_program_of_the_page_handles_messages(stage: GroupStage) -> None:
    program = replaced(python_blocks("docs/consuming.md")[0], {"amqp://localhost": stage.url})
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        try:
            said = {running.stdout.readline() for _ in QUEUES}
        finally:
            running.terminate()
    assert said == {f"{queue} {queue} b'0'\n" for queue in QUEUES}


def test_the_function_of_the_readme_handles_messages(stage: GroupStage) -> None:
    (block,) = [block for block in python_blocks("README.md") if "ConsumerGroup" in block]
    names: dict[str, Any] = {}
    exec(replaced(block, {"amqp://guest:guest@localhost": stage.url}), names)  # noqa: S102  # that is what is tested
    handled: set[str] = set()
    all_handled = asyncio.Event()

    async def handle(message: GroupMessage) -> None:
        handled.add(message.queue)
        if len(handled) == len(QUEUES):
            all_handled.set()

    async def story() -> None:
        running = asyncio.create_task(names["consume"](handle, "pod-7"))
        await asyncio.wait_for(all_handled.wait(), 30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    assert handled == set(QUEUES)

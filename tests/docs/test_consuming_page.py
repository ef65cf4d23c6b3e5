"""The first program of docs/consuming.md, run on a real broker but for its address."""

from __future__ import annotations

import subprocess
import sys

import pytest
from blocks import python_blocks, replaced
from group_stage import GroupStage

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

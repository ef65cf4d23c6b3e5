"""The examples of docs/frameworks.md: each message is handled once, in the queue that the mirror predicts, in order by key."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.extended]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILE = str(EXAMPLES / "frameworks.toml")
MESSAGE = re.compile(r"(orders\.\d customer-\d+ \d+)$", re.MULTILINE)
CELERY = ["-m", "celery", "--app=celery_by_key", "worker", "--loglevel=INFO"]
QUEUES = ["orders.1", "orders.2"]


class Programs:
    """Runs programs next to the examples, on a vhost with the objects of their topology file."""

    def __init__(self, broker: RunningBroker, output: Path) -> None:
        # Without buffers a line is written in pieces, between which another program may write.
        self._environment = {**os.environ, "AMQP_URL": broker.url, "PYTHONUNBUFFERED": ""}
        self._output = output
        self.ends = ExitStack()

    def run(self, *arguments: str) -> list[str]:
        """Run a program to its end, and return the lines that it printed."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=EXAMPLES,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        ).stdout.splitlines()

    def start(self, *arguments: str) -> None:
        """Start a program that runs until the test ends."""
        out: IO[bytes] = self.ends.enter_context(self._output.open("ab"))
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=EXAMPLES, env=self._environment, stdout=out, stderr=out
        )
        self.ends.callback(process.wait, 60)
        self.ends.callback(process.terminate)

    def handled(self, count: int) -> list[str]:
        """Wait until the programs have printed that many messages. Return them as `queue key number`."""
        deadline = time.monotonic() + 90
        while len(found := MESSAGE.findall(printed := self._output.read_text())) < count:
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
        return found


def by_queue(messages: list[str]) -> dict[str, list[str]]:
    return {queue: [message for message in messages if message.startswith(f"{queue} ")] for queue in QUEUES}


@pytest.fixture
def programs(vhost: RunningBroker, tmp_path: Path) -> Iterator[Programs]:
    assert vhost.ring_via is not None
    ring_via = shlex.join(vhost.ring_via)
    live = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--ring-via", ring_via]
    assert main(["topology", "apply", FILE, "--yes", *live]) == 0
    made = Programs(vhost, tmp_path / "output.txt")
    with made.ends:
        yield made
    assert main(["topology", "check", FILE, *live]) == 0  # the frameworks changed none of these objects


def test_celery_handles_the_tasks_of_a_queue_in_order(programs: Programs) -> None:
    predicted = programs.run("celery_by_key.py")
    for queue in QUEUES:
        programs.start(*CELERY, f"--queues={queue}", f"--hostname={queue}@%h")
    assert by_queue(programs.handled(len(predicted))) == by_queue(predicted)
    assert all(by_queue(predicted).values())


def test_faststream_members_handle_the_messages_of_a_queue_in_order(programs: Programs) -> None:
    for _ in range(2):
        programs.start("faststream_by_key.py")
    predicted = programs.run("faststream_by_key.py", "publish")
    assert by_queue(programs.handled(len(predicted))) == by_queue(predicted)

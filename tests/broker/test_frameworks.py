"""The examples of docs/publish/frameworks.md: each message is handled once, in the queue that the mirror predicts, in order by key."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from bounded import until

from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.extended]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILE = str(EXAMPLES / "frameworks.toml")
MESSAGE = re.compile(r"(orders\.\d customer-\d+ \d+)$", re.MULTILINE)
CELERY = ["-m", "celery", "--app=celery_by_key", "worker", "--loglevel=INFO"]
QUEUES = ["orders.1", "orders.2"]


class Programs(ExitStack):
    """Runs programs next to the examples, on a vhost with the objects of their topology file, until the block ends."""

    def __init__(self, broker: RunningBroker, output: Path) -> None:
        super().__init__()
        self._output = output
        # Without buffers a line is written in pieces, between which another program may write.
        environment = {**os.environ, "AMQP_URL": broker.url, "PYTHONUNBUFFERED": ""}
        self._popen = partial(subprocess.Popen, cwd=EXAMPLES, env=environment)

    def run(self, *arguments: str) -> list[str]:
        """Run a program to its end, and return the lines that it printed."""
        with self._popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
            printed, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        return str(printed).splitlines()

    def start(self, *arguments: str) -> None:
        """Start a program that runs until the block ends."""
        out = self.enter_context(self._output.open("ab"))
        process = self._popen([sys.executable, *arguments], stdout=out, stderr=out)
        self.callback(process.wait, 60)
        self.callback(process.terminate)

    def handled(self, count: int) -> list[str]:
        """Wait until the programs have printed that many messages. Return them as `queue key number`."""

        def found() -> list[str]:
            messages: list[str] = MESSAGE.findall(self._output.read_text())
            return messages if len(messages) >= count else []

        return until(found, f"{count} messages are handled", 90, every_s=0.1)


def by_queue(messages: list[str]) -> dict[str, list[str]]:
    return {queue: [message for message in messages if message.startswith(f"{queue} ")] for queue in QUEUES}


@pytest.fixture
def programs(vhost: RunningBroker, tmp_path: Path) -> Iterator[Programs]:
    assert vhost.ring_via is not None
    ring_via = shlex.join(vhost.ring_via)
    live = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--ring-via", ring_via]
    assert main(["apply", FILE, "--yes", *live]) == 0
    with Programs(vhost, tmp_path / "output.txt") as made:
        yield made
    assert main(["check", FILE, *live]) == 0  # the frameworks changed none of these objects


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

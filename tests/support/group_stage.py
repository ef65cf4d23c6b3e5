"""Queues for a group, numbered messages in them, and members that write down what they handle.

Each message of a queue has the next number. A member in a process of its own appends a line to a file before its handler
returns, so that what it has handled is known also after SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pika
from bounded import repeated
from exchange_types import DIRECT

from rabbit_chx import ConsumerGroup, Publisher, Retries, StreamGroup
from rabbit_chx.broker import pika_parameters
from rabbit_chx.consuming import GroupMessage, GroupTiming
from rabbit_chx.consuming.journal import JOURNAL

#: A group that takes notice within a second.
QUICK = GroupTiming(warm_up_s=0.3, alive_s=0.3, gone_s=4.0, watch_s=0.5, stop_s=10.0)
_FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True}


@dataclass(frozen=True, slots=True)
class Handled:
    """One call of a handler that returned."""

    queue: str
    number: int
    generation: int
    member: str
    redelivered: bool


@dataclass
class GroupStage:
    """A vhost with an exchange `numbers` and its queues.

    Attributes:
        url: the URL of the vhost.
        queues: the queues.
        handled: what was handled, in its order.
        journal: the stream of the members; None for none.
        sent: the number of messages that each queue has got.
    """

    url: str
    queues: list[str]
    handled: list[Handled] = field(default_factory=list)
    journal: str | None = JOURNAL
    sent: int = 0
    _looked_at: int = 0
    _numbers: set[tuple[str, int]] = field(default_factory=set)

    def declare(self, **arguments: Any) -> None:
        """Declare the exchange and the queues, without a delivery limit, with which nothing would be delivered ahead."""
        with pika.BlockingConnection(pika_parameters(self.url)) as connection:
            channel = connection.channel()
            broker: Any = connection
            if int(broker._impl.server_properties["version"].split(".")[0]) >= 4:
                arguments = {"x-delivery-limit": -1, **arguments}
            channel.exchange_declare("numbers", DIRECT, durable=True)
            for queue in self.queues:
                channel.queue_declare(queue, durable=True, arguments={**_FIT, **arguments})
                channel.queue_bind(queue, "numbers", queue)

    def publish(self, count: int) -> None:
        """Publish so many messages to each queue, with the next numbers."""
        keys = [queue for _ in range(count) for queue in self.queues]
        bodies = [str(number) for number in range(self.sent, self.sent + count) for _ in self.queues]
        with Publisher(self.url, "numbers", retries=Retries(keep_order=True)) as publisher:
            publisher.publish_many(keys, bodies)
        self.sent += count

    def load(self, count: int = 10, most_waiting: int | None = None) -> AbstractContextManager[None]:
        """Publish messages to each queue again and again, until the block ends.

        Args:
            count: how many to each queue at a time.
            most_waiting: how many may wait in a queue, on average, while more are published; None for any number.
        """

        def publish() -> None:
            waiting = self.sent - len(self.handled) / len(self.queues)
            if most_waiting is None or waiting <= most_waiting:
                self.publish(count)

        return repeated(publish, 0.05)

    def all_handled(self) -> bool:
        """Whether every message was handled at least once."""
        new = self.handled[self._looked_at :]
        self._looked_at += len(new)
        self._numbers.update((message.queue, message.number) for message in new)
        return len(self._numbers) == self.sent * len(self.queues)

    def by_queue(self) -> dict[str, list[Handled]]:
        """Return what was handled of each queue, in its order."""
        found: dict[str, list[Handled]] = defaultdict(list)
        for message in self.handled:
            found[message.queue].append(message)
        return found

    @asynccontextmanager
    async def member(self, name: str, pause_s: float = 0.0, **how: Any) -> AsyncIterator[ConsumerGroup]:
        """Run a member until the block ends; then it leaves."""

        async def handle(message: GroupMessage) -> None:
            if pause_s:
                await asyncio.sleep(pause_s)
            self.handled.append(
                Handled(message.queue, int(message.body), message.generation or 0, name, message.redelivered)
            )

        how = {"timing": QUICK, "reconnect_backoff_s": 0.1, "journal": self.journal, **how}
        handle = how.pop("handle", handle)
        async with (
            ConsumerGroup(how.pop("url", self.url), self.queues, member=name, **how) as group,
            running(group, handle),
        ):
            yield group

    def process(self, name: str, file: Path) -> subprocess.Popen[bytes]:
        """Start a member in a process of its own; it writes what it handles into a file."""
        arguments = [self.url, name, str(file), self.journal or "", *self.queues]
        return subprocess.Popen([sys.executable, __file__, *arguments])

    def read(self, file: Path) -> None:
        """Add what a process has written, in the order of its time."""
        self.handled += [Handled(*json.loads(line)) for line in file.read_text().splitlines()]


@asynccontextmanager
async def running(group: ConsumerGroup | StreamGroup, handle: Any) -> AsyncIterator[None]:
    """Run a member of a group until the block ends."""
    task = asyncio.create_task(group.run(handle))
    try:
        yield
    finally:
        group.stop()
        await task


def in_order(handled: list[Handled]) -> bool:
    """Whether no message came after a later one, and no generation after a higher one."""
    pairs = [(message.number, message.generation) for message in handled]
    return all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(pairs))


def nothing_was_skipped(stage: GroupStage) -> bool:
    """Whether each message came after the one before it, once or again."""
    for handled in stage.by_queue().values():
        seen = -1
        for message in handled:
            if message.number > seen + 1:
                return False
            seen = max(seen, message.number)
    return True


async def eventually(condition: Callable[[], object], what: str, bound_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < end, f"not within {bound_s:g} s: {what}"
        await asyncio.sleep(0.02)


async def _in_process(url: str, name: str, file: str, journal: str, *queues: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(message: GroupMessage) -> None:
        row = message.queue, int(message.body), message.generation or 0, name, message.redelivered
        os.write(out, f"{json.dumps(row)}\n".encode())

    async with ConsumerGroup(url, queues, member=name, timing=QUICK, journal=journal or None) as group:
        await group.run(handle)


if __name__ == "__main__":
    asyncio.run(_in_process(*sys.argv[1:]))

"""Members of a group join, leave and are killed under load: count lost, repeated and reordered messages.

Each member is a process. It writes what it handles into a file before its handler returns, so that this is known after SIGKILL too.

    python bench/group_churn.py --seconds 120 --rate 3000

First members join and leave, then some of them are killed with SIGKILL; each part lasts `--seconds`. The exit code is 1 if a message is
lost, if one is handled after a later one or with a lower generation than before, or if one is repeated that no killed member held.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pika
from pika.exchange_type import ExchangeType

from rabbit_chx import ConsumerGroup, Publisher, Retries
from rabbit_chx.broker import pika_parameters
from rabbit_chx.consuming import GroupMessage, GroupTiming
from rabbit_chx.testing import find_broker

_TIMING = GroupTiming(warm_up_s=1.0, alive_s=1.0, gone_s=4.0, watch_s=3.0)
_EXCHANGE = "churn"
_BOUND_S = 120.0


@dataclass(frozen=True, slots=True, order=True)
class Handled:
    """One call of a handler."""

    at: float
    queue: str
    number: int
    member: str
    generation: int


async def member(url: str, name: str, file: str, queues: list[str]) -> None:
    """Be a member until SIGTERM."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(message: GroupMessage) -> None:
        row = time.monotonic(), message.queue, message.body.decode(), name, message.generation
        os.write(out, ("\t".join(map(str, row)) + "\n").encode())

    async with ConsumerGroup(url, queues, member=name, timing=_TIMING) as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.stop)
        await group.run(handle)


class Churn:
    """The load, the members, and what they handled."""

    def __init__(self, url: str, queues: int, folder: Path) -> None:
        self.url = url
        self.queues = [f"churn.{number}" for number in range(queues)]
        self.folder = folder
        self.sent = 0
        self.killed: set[str] = set()
        self.counts: dict[str, int] = defaultdict(int)
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self._seconds = 0.0

    def declare(self) -> None:
        """Delete the exchange and the queues, and declare them again."""
        with pika.BlockingConnection(pika_parameters(self.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare(_EXCHANGE, ExchangeType("direct"), durable=True)
            for queue in self.queues:
                channel.queue_delete(queue)
                fit = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": -1}
                channel.queue_declare(queue, durable=True, arguments=fit)
                channel.queue_bind(queue, _EXCHANGE, queue)

    def publish(self, rate: float) -> None:
        """Publish until `end`: one message to each queue, and again."""
        began = time.monotonic()
        with Publisher(self.url, _EXCHANGE, retries=Retries(keep_order=True)) as publisher:
            while not self._stop.is_set():
                publisher.publish_many(self.queues, [str(self.sent)] * len(self.queues))
                self.sent += 1
                time.sleep(max(0.0, began + self.sent * len(self.queues) / rate - time.monotonic()))
        self._seconds = time.monotonic() - began

    def end(self) -> None:
        """End the load."""
        self._stop.set()

    def join(self) -> None:
        """Start one more member."""
        self._started += 1
        name = f"pod-{self._started}"
        self._members[name] = subprocess.Popen(
            [sys.executable, __file__, "--member", name, self.url, str(self.folder / name), *self.queues]
        )
        self.counts["joins"] += 1

    def leave(self, name: str, *, kill: bool) -> None:
        """Let a member leave, or kill it."""
        process = self._members.pop(name)
        if kill:
            self.killed.add(name)
            process.kill()
        else:
            process.terminate()
        self._leaving.append(process)
        self.counts["kills" if kill else "leaves"] += 1

    def churn(self, seconds: float, *, kills: bool) -> None:
        """Keep two to eight members, and change one every two to four seconds."""
        chance = random.Random(7)  # noqa: S311  # the same run each time
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(2, 4))
            grows = len(self._members) <= 2 or (len(self._members) < 8 and chance.random() < 0.5)
            if grows:
                self.join()
            else:
                self.leave(chance.choice(sorted(self._members)), kill=kills and chance.random() < 0.5)

    def finish(self) -> None:
        """Wait until all is handled, and let everybody leave."""
        end = time.monotonic() + _BOUND_S
        while len({(message.queue, message.number) for message in self.handled()}) < self.sent * len(
            self.queues
        ):
            if time.monotonic() > end:
                break
            time.sleep(1)
        for name in list(self._members):
            self.leave(name, kill=False)
        for process in self._leaving:
            process.wait(60)

    def handled(self) -> list[Handled]:
        """Return what was handled, in the order of its time."""
        messages = []
        for file in self.folder.iterdir():
            for line in file.read_text().splitlines():
                at, queue, number, name, generation = line.split("\t")
                messages.append(Handled(float(at), queue, int(number), name, int(generation)))
        return sorted(messages)

    def report(self) -> bool:
        """Print what happened, and return whether all is well."""
        by_queue: dict[str, list[Handled]] = defaultdict(list)
        for message in self.handled():
            by_queue[message.queue].append(message)
        lost = late = repeats = strange = 0
        gaps = []
        for queue in self.queues:
            row = by_queue[queue]
            lost += self.sent - len({message.number for message in row})
            gaps.append(max((b.at - a.at for a, b in pairwise(row)), default=0.0))
            late += sum(b.generation < a.generation for a, b in pairwise(row))
            seen: dict[int, str] = {}
            highest = -1
            for message in row:
                if message.number in seen:
                    repeats += 1
                    strange += seen[message.number] not in self.killed
                else:
                    late += message.number < highest
                seen.setdefault(message.number, message.member)
                highest = max(highest, message.number)
        total = self.sent * len(self.queues)
        what = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        print(
            f"{total:,} messages, {total / self._seconds:,.0f}/s, {len(self.queues)} queues, {what}: lost {lost}, out of order {late}, "
            f"repeated {repeats}, of these not held by a killed member {strange}; longest pause of a queue: median "
            f"{statistics.median(gaps):.1f} s, most {max(gaps):.1f} s",
            flush=True,
        )
        return not (lost or late or strange)


def main() -> int:
    """Run the churn on a broker for tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=1500.0)
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--url")
    arguments = parser.parse_args()
    if arguments.url:
        return run(arguments.url, arguments)
    with find_broker() as broker:
        return run(broker.url, arguments)


def run(url: str, arguments: argparse.Namespace) -> int:
    """Run both churns on one broker, and return the exit code."""
    is_well = True
    for kills in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            churn = Churn(url, arguments.queues, Path(folder))
            churn.declare()
            churn.join()
            churn.join()
            load = threading.Thread(target=churn.publish, args=(arguments.rate,))
            load.start()
            try:
                churn.churn(arguments.seconds, kills=kills)
            finally:
                churn.end()
                load.join()
                churn.finish()
            is_well = churn.report() and is_well
    return 0 if is_well else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--member"]:
        asyncio.run(member(sys.argv[3], sys.argv[2], sys.argv[4], sys.argv[5:]))
    else:
        sys.exit(main())

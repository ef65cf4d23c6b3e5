"""Members of a group in processes of their own, until a message ends them or all are handled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import FailurePolicy, GroupMessage


def run_member(url: str, poison: int, last: int, handled: Path, *, dies: bool) -> int | None:
    """Run the member of the queue `q`, and return its exit code.

    Args:
        url: the broker.
        poison: the number of the message that ends it.
        last: the number of the last message.
        handled: the file to which each handled number is written.
        dies: whether SIGKILL ends it, and not an error.
    """
    arguments = (url, poison, last, handled, dies)
    member = get_context("spawn").Process(target=_run, args=arguments)
    member.start()
    member.join(100)
    return member.exitcode


def _run(*arguments: object) -> None:
    asyncio.run(_consume(*arguments))  # type: ignore[arg-type]


async def _consume(url: str, poison: int, last: int, handled: Path, dies: bool) -> None:  # noqa: FBT001
    failures = FailurePolicy(retries=0)
    with handled.open("a", encoding="utf-8", buffering=1) as lines:  # a line at a time
        async with ConsumerGroup(url, ["q"], member=f"m{os.getpid()}", failures=failures) as group:

            async def handle(message: GroupMessage) -> None:
                number = int(message.body)
                if number == poison:
                    lines.write("poison\n")
                    if dies:
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError("poison")
                lines.write(f"{number}\n")
                if number == last:
                    group.stop()

            await group.run(handle)


def run_members(
    url: str, queues: list[str], poisons: set[int], last: int, handled: Path, *, count: int
) -> int:
    """Run members of these queues until all good messages are handled, and start each one again that dies; return how many have died.

    Args:
        url: the broker.
        queues: the queues.
        poisons: the numbers of the messages that kill them, 50 ms after they were begun.
        last: the number of the last message.
        handled: the file to which each handled number and its queue are written.
        count: how many members there are.
    """

    def start(name: str) -> SpawnProcess:
        member = get_context("spawn").Process(target=_run_of_many, args=(url, queues, poisons, handled, name))
        member.start()
        return member

    members = {f"m{number}": start(f"m{number}") for number in range(count)}
    deaths, good = 0, set(range(last + 1)) - poisons
    while deaths < 100 and good - {number for number, _ in read_handled(handled)}:
        for name, member in members.items():
            if member.exitcode is not None:
                deaths += 1
                members[name] = start(name)
        time.sleep(0.1)
    for member in members.values():
        member.terminate()
        member.join(30)
    return deaths


def read_handled(handled: Path) -> list[tuple[int, str]]:
    """Return the numbers that were handled, in their order, with their queues."""
    lines = handled.read_text(encoding="utf-8").splitlines() if handled.exists() else []
    return [(int(number), queue) for number, queue in map(str.split, lines)]


def _run_of_many(*arguments: object) -> None:
    asyncio.run(_consume_many(*arguments))  # type: ignore[arg-type]


async def _consume_many(url: str, queues: list[str], poisons: set[int], handled: Path, name: str) -> None:
    with handled.open("a", encoding="utf-8", buffering=1) as lines:

        async def handle(message: GroupMessage) -> None:
            number = int(message.body)
            await asyncio.sleep(0.05)
            if number in poisons:
                os.kill(os.getpid(), signal.SIGKILL)
            lines.write(f"{number} {message.queue}\n")

        async with ConsumerGroup(url, queues, member=name) as group:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.stop)
            await group.run(handle)

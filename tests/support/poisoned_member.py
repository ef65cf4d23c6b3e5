"""The only member of a group of one queue, in a process of its own, until a message ends it or all are handled."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
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
    member = multiprocessing.get_context("spawn").Process(target=_run, args=arguments)
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

"""A program that is the only member of a group of one queue, until a message ends it or all are handled.

Its input is a line of JSON: the URL, the queue, the number of the poison message, how it ends (``dies`` or ``raises``), how many messages there
are, and the file to which each handled number is written.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import FailurePolicy, GroupMessage


async def consume(task: list[Any]) -> None:
    """Consume until the last message."""
    url, queue, poison, ending, last, path = task
    with Path(path).open("a", encoding="utf-8", buffering=1) as handled:  # noqa: ASYNC230  # a line at a time
        async with ConsumerGroup(
            url, [queue], member=f"m{os.getpid()}", failures=FailurePolicy(retries=0)
        ) as group:

            async def handle(message: GroupMessage) -> None:
                number = int(message.body)
                if number == poison:
                    handled.write("poison\n")
                    if ending == "dies":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError("poison")
                handled.write(f"{number}\n")
                if number == last:
                    group.stop()

            await group.run(handle)


if __name__ == "__main__":
    asyncio.run(consume(json.loads(sys.stdin.readline())))

"""Members of a group, each a process, that write down the messages of a numbered load in the order in which they handle them.

All append to one file, so the order of its lines is that of the handlers, over all members. A program: one member.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bounded import until

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import GroupMessage, GroupTiming

#: Members share the queues within a second, and a busy machine does not make one look dead.
_TIMING = GroupTiming(settle_s=0.5, alive_s=0.5, gone_s=20.0, park_s=3.0)
_PREFETCH = int(os.environ.get("PF", "200"))


@contextmanager
def ordered_readers(
    url: str, queues: Sequence[str], file: Path
) -> Iterator[Callable[[int], dict[str, list[int]]]]:
    """Start two members; they are killed with the block.

    Pass a function that waits until so many different messages are handled, and returns the numbers of each key in the order of the
    handlers.

    Args:
        url: the broker.
        queues: the queues of the group.
        file: what they write.
    """
    file.touch()
    command = [sys.executable, __file__, url, str(file), *queues]
    processes = [subprocess.Popen([*command, f"m{number}"]) for number in range(2)]

    def handled(count: int) -> dict[str, list[int]]:
        until(
            lambda: len(set(file.read_text().splitlines())) >= count,
            f"{count} messages are handled",
            120,
            0.2,
        )
        found = defaultdict(list)
        for line in file.read_text().splitlines():
            key, number = line.split()
            found[key].append(int(number))
        return dict(found)

    try:
        yield handled
        assert all(process.poll() is None for process in processes), "a member has ended by itself"
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _read(url: str, file: str, *queues: str, member: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_APPEND)

    async def handle(message: GroupMessage) -> None:
        os.write(out, message.body + b"\n")

    async with ConsumerGroup(url, queues, member=member, timing=_TIMING, prefetch=_PREFETCH) as group:
        await group.run(handle)


if __name__ == "__main__":
    asyncio.run(_read(*sys.argv[1:-1], member=sys.argv[-1]))

"""Members of a group, each a process, that write down the messages of a numbered load in the order in which they handle them.

All append to one file, so the order of its lines is that of the handlers, over all members. A program: one member.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import GroupMessage, GroupTiming

#: Members share the queues within a second, and a busy machine does not make one look dead.
_TIMING = GroupTiming(settle_s=0.5, alive_s=0.5, gone_s=20.0, park_s=3.0)
_BOUND_S = 120.0
_PREFETCH = int(os.environ.get("PF", "200"))


@dataclass(frozen=True, slots=True)
class OrderedReaders:
    """The members.

    Attributes:
        file: what they write; it grows.
        processes: the members.
    """

    file: Path
    processes: list[subprocess.Popen[bytes]]

    def handled(self, count: int) -> dict[str, list[int]]:
        """Wait until so many different messages were handled; return the numbers of each key, in the order of the handlers.

        Args:
            count: how many messages there are.
        """
        lines: list[str] = []
        end = time.monotonic() + _BOUND_S
        while len(set(lines)) < count:
            assert time.monotonic() < end, (
                f"{len(set(lines))} of {count} messages are handled after {_BOUND_S:g} s"
            )
            time.sleep(0.2)
            if self.file.stat().st_size >= count:
                lines = self.file.read_text().splitlines()
        found = defaultdict(list)
        for line in lines:
            key, number = line.split()
            found[key].append(int(number))
        return dict(found)


@contextmanager
def ordered_readers(
    url: str, queues: Sequence[str], file: Path, members: int = 2
) -> Iterator[OrderedReaders]:
    """Start members; they are killed with the block.

    Args:
        url: the broker.
        queues: the queues of the group.
        file: what they write.
        members: how many.
    """
    file.touch()
    command = [sys.executable, __file__, url, str(file), *queues]
    readers = OrderedReaders(file, [subprocess.Popen([*command, f"m{number}"]) for number in range(members)])
    try:
        yield readers
        assert all(process.poll() is None for process in readers.processes), "a member has ended by itself"
    finally:
        for process in readers.processes:
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

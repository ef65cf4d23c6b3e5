"""Members of a group, each a process, that write down the messages of a numbered load in the order in which they handle them.

All append to one file, so its lines have the order in which the handlers of all members ran.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bounded import until

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import GroupMessage, GroupTiming

#: Members share the queues within a second, and a busy machine does not make one look dead.
_TIMING = GroupTiming(warm_up_s=0.5, alive_s=0.5, gone_s=20.0, park_s=3.0)


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
    context = multiprocessing.get_context("spawn")
    members = [context.Process(target=_read, args=(url, file, queues, name)) for name in ("m0", "m1")]
    for member in members:
        member.start()

    def lines() -> list[str]:
        return file.read_text().splitlines()

    def handled(count: int) -> dict[str, list[int]]:
        until(lambda: len(set(lines())) >= count, f"{count} messages are handled", 120, 0.2)
        found = defaultdict(list)
        for line in lines():
            key, number = line.split()
            found[key].append(int(number))
        return dict(found)

    try:
        yield handled
        assert all(member.is_alive() for member in members), "a member has ended by itself"
    finally:
        for member in members:
            member.kill()
            member.join()


def _read(url: str, file: Path, queues: Sequence[str], member: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_APPEND)

    async def handle(message: GroupMessage) -> None:
        os.write(out, message.body + b"\n")

    async def read() -> None:
        async with ConsumerGroup(url, queues, member=member, timing=_TIMING, prefetch=200) as group:
            await group.run(handle)

    asyncio.run(read())

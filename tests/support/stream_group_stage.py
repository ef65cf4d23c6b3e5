"""Streams for a group, numbered rows in them, and members that write down what they handle."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from group_stage import QUICK, GroupStage, Handled, running
from streamed import numbers_in

from rabbit_chx import StreamGroup, StreamPublisher
from rabbit_chx.streams.nodes import open_any, settings_of


@dataclass
class StreamGroupStage(GroupStage):
    """A vhost with streams; `url` is that of the stream port, and `queues` are the streams.

    A member may connect again at most `most_reconnects` times: a session that begins again heals, and would not be seen.
    """

    group: str = "billing"
    most_reconnects: float = math.inf

    def declare(self, **_arguments: str) -> None:
        """Create the super stream `numbers`, whose partitions the streams are."""
        with closing(open_any(settings_of(self.url))) as connection:
            connection.create_super_stream("numbers", self.queues)

    def publish(self, count: int) -> None:
        """Publish so many rows to each stream, with the next numbers."""
        numbers = [str(number) for number in range(self.sent, self.sent + count)]
        for stream in self.queues:
            with StreamPublisher(self.url, stream=stream) as publisher:
                publisher.publish_many(numbers, numbers)
        self.sent += count

    @asynccontextmanager
    async def member(self, name: str, pause_s: float = 0.0, **how: Any) -> AsyncIterator[Any]:
        """Run a member until the block ends; then it leaves."""

        async def handle(stream: str, batch: pa.RecordBatch) -> None:
            await asyncio.sleep(pause_s)
            self.handled += [Handled(stream, n, 0, name, False) for n in numbers_in(batch)]

        how = {
            "timing": QUICK,
            "reconnect_backoff_s": 0.1,
            "name": self.group,
            "super_stream": "numbers",
            **how,
        }
        used = how.pop("handle", handle)
        async with StreamGroup(how.pop("url", self.url), member=name, **how) as group:
            async with running(group, used):
                yield group
            assert group.reconnects <= self.most_reconnects

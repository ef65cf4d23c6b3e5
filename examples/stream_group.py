"""Three members of a group share six streams. One leaves, and the others take over its streams where it stopped.

The effect of a batch is a line in a table of SQLite, written together with the generation of the stream: a member that lost the stream
without noticing it cannot write.

python examples/stream_group.py [--rows COUNT]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, closing

import pyarrow as pa

from rabbit_chx import StreamGroup, StreamPublisher
from rabbit_chx.consuming import GroupTiming
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

STREAMS = [f"orders-{number}" for number in range(6)]
#: Shorter than the defaults, so that the example is short.
TIMING = GroupTiming(warm_up_s=0.5, alive_s=0.5, gone_s=5.0)


class Store:
    """The numbers of rows by stream, and the generation and the offset of the last effect."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("create table counts (stream primary key, generation int, next int, rows int)")

    def add(self, stream: str, generation: int, first: int, last: int, rows: int) -> None:
        """Count the rows of a batch, unless it was counted before; refuse it if a later owner has written."""
        seen, following = self.position(stream)
        if generation < seen:
            raise PermissionError(f"{stream} belongs to generation {seen}")
        if first < following:  # a batch that is repeated
            return
        with self._db:
            self._db.execute(
                "insert into counts values (?, ?, ?, ?) on conflict do update set generation = ?2, next = ?3, rows = rows + ?4",
                (stream, generation, last + 1, rows),
            )

    def position(self, stream: str) -> tuple[int, int]:
        """Return the last generation and the next offset of a stream."""
        found = self._db.execute("select generation, next from counts where stream = ?", (stream,)).fetchone()
        return found or (-1, 0)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return int(self._db.execute("select coalesce(sum(rows), 0) from counts").fetchone()[0])


async def member(url: str, name: str, store: Store) -> tuple[StreamGroup, asyncio.Task[None]]:
    """Start a member; it begins each stream where the store ends."""

    async def where_to_start(stream: str) -> int:
        return store.position(stream)[1]

    async def handle(stream: str, batch: pa.RecordBatch) -> None:
        offsets = batch["offset"]
        generation = group.generation(stream) or 0
        store.add(stream, generation, offsets[0].as_py(), offsets[-1].as_py(), batch.num_rows)

    group = StreamGroup(
        url, streams=STREAMS, name="billing", member=name, on_gained=where_to_start, timing=TIMING
    )
    await group.__aenter__()
    return group, asyncio.create_task(group.run(handle))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110  # it depends on other processes, too
        await asyncio.sleep(0.1)


async def shared(url: str, rows: int, store: Store) -> int:
    """Publish rows twice, before and after a member leaves; return the number of counted rows."""

    def publish() -> None:
        for stream in STREAMS:
            with StreamPublisher(url, stream=stream) as publisher:
                publisher.publish_many([f"key-{n}" for n in range(rows)], ["x"] * rows)

    async with AsyncExitStack() as stack:
        members = [await member(url, name, store) for name in ("a", "b", "c")]
        for group, _ in members:
            stack.push_async_exit(group.__aexit__)
        async with asyncio.timeout(60):
            await until(lambda: all(len(group.held) == 2 for group, _ in members))
            print("\n".join(f"{group.member} reads {', '.join(sorted(group.held))}" for group, _ in members))
            await asyncio.to_thread(publish)
            first, running = members.pop(0)
            first.stop()
            await running
            await asyncio.to_thread(publish)
            await until(lambda: store.rows >= 2 * rows * len(STREAMS))
            print("a has left:")
            print("\n".join(f"{group.member} reads {', '.join(sorted(group.held))}" for group, _ in members))
        for group, running in members:
            group.stop()
            await running
    print(f"{store.rows:,} rows counted once")
    return store.rows


def run(broker: RunningBroker, rows: int) -> int:
    """Create the streams, and share them."""
    with closing(open_any(settings_of(broker.stream_url))) as connection:
        for stream in STREAMS:
            connection.create_stream(stream)
    with closing(Store()) as store:
        return asyncio.run(shared(broker.stream_url, rows, store))


def main() -> int:
    """Run the example on a broker that is found or started."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each stream, published twice")
    rows = parser.parse_args().rows
    with find_broker() as broker, temporary_vhost(broker) as vhost:
        return 0 if run(vhost, rows) == 2 * rows * len(STREAMS) else 1


if __name__ == "__main__":
    sys.exit(main())

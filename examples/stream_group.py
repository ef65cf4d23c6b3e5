"""Three members of a group share six streams. One leaves, and the others take over its streams where it stopped.

The effect of a batch is a line in a table of SQLite, written together with the offset after it: a batch that is handled again, also by a
member that has lost the stream without noticing it, is not counted twice.

python examples/stream_group.py [--rows COUNT]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from typing import Any

import pyarrow as pa

from rabbit_chx import StreamGroup, StreamPublisher
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

SUPER_STREAM = "orders"
PARTITIONS = 6


class Store:
    """The numbers of rows by stream, and the offset after the last effect."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("create table counts (stream primary key, next int, rows int)")

    def add(self, stream: str, offsets: list[int]) -> None:
        """Count the rows of a batch that were not counted before, in the transaction that moves the offset."""
        with self._db:
            following = self.position(stream)
            new = [offset for offset in offsets if offset >= following]
            if not new:
                return
            self._db.execute(
                "insert into counts values (?1, ?2, ?3) on conflict do update set next = ?2, rows = rows + ?3",
                (stream, new[-1] + 1, len(new)),
            )

    def position(self, stream: str) -> int:
        """Return the next offset of a stream."""
        found = self._db.execute("select next from counts where stream = ?", (stream,)).fetchone()
        return 0 if found is None else int(found[0])

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
        return store.position(stream)

    async def handle(stream: str, batch: pa.RecordBatch) -> None:
        offsets: Any = batch["offset"].to_pylist()
        store.add(stream, offsets)

    group = StreamGroup(url, super_stream=SUPER_STREAM, name="billing", member=name, on_gained=where_to_start)
    await group.__aenter__()
    return group, asyncio.create_task(group.run(handle))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110  # it depends on other processes, too
        await asyncio.sleep(0.1)


async def shared(url: str, rows: int, store: Store) -> int:
    """Publish rows twice, before and after a member leaves; return the number of counted rows."""

    def publish() -> None:
        for stream in [f"{SUPER_STREAM}-{number}" for number in range(PARTITIONS)]:
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
            await until(lambda: store.rows >= 2 * rows * PARTITIONS)
            print("a has left:")
            print("\n".join(f"{group.member} reads {', '.join(sorted(group.held))}" for group, _ in members))
        for group, running in members:
            group.stop()
            await running
    print(f"{store.rows:,} rows counted once")
    return store.rows


def run(broker: RunningBroker, rows: int) -> int:
    """Create the super stream, and share its partitions."""
    with StreamPublisher(broker.stream_url, super_stream=SUPER_STREAM, create=PARTITIONS):
        pass
    with closing(Store()) as store:
        return asyncio.run(shared(broker.stream_url, rows, store))


def main() -> int:
    """Run the example on a broker that is found or started."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each stream, published twice")
    rows = parser.parse_args().rows
    with find_broker() as broker, temporary_vhost(broker) as vhost:
        return 0 if run(vhost, rows) == 2 * rows * PARTITIONS else 1


if __name__ == "__main__":
    sys.exit(main())

"""Messages that are published twice, with the same ids: each consumer handles them once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from group_members import ORDERED
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import ConsumerGroup, Publisher
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.publishing import stable_ids
from rabbit_chx.testing import OrderChecker

pytestmark = pytest.mark.broker

ROWS = 300
KEYS = [f"key {n % 7}" for n in range(ROWS)]
BODIES = [f"{n // 7}" for n in range(ROWS)]
SENT = {key: KEYS.count(key) for key in set(KEYS)}


@pytest.fixture
def queue(channel: BlockingChannel, vhost_url: str) -> str:
    """A queue with every row twice, the second time in another order."""
    channel.queue_declare("twice", durable=True, arguments=ORDERED)
    channel.queue_bind("twice", "x", "1")
    for name in ("q1", "q2", "q3"):
        channel.queue_unbind(name, "x", name[1:])
    with Publisher(vhost_url, "x") as publisher:
        for order in (1, -1):
            keys, bodies = KEYS[::order], BODIES[::order]
            ids = stable_ids("the rows of this test", keys, bodies)
            publisher.publish_many(keys, bodies, properties={"message_id": ids})
    return "twice"


def test_the_handler_of_the_page_has_each_effect_once(queue: str, vhost_url: str, tmp_path: Path) -> None:
    """The id is inserted in the transaction of the effect, as docs/deduplication.md has it."""
    checker = OrderChecker()
    handled: Counter[bool] = Counter()

    def handle_once(message: GroupMessage) -> bool:
        with closing(sqlite3.connect(tmp_path / "effects.db")) as db, db:
            insert = "INSERT INTO handled VALUES (?) ON CONFLICT DO NOTHING"
            is_new = bool(db.execute(insert, (message.message_id,)).rowcount)
            if is_new:
                db.execute("INSERT INTO effects VALUES (?, ?)", (message.routing_key, message.body))
                checker.handled(message.routing_key, int(message.body), redelivered=message.redelivered)
        return is_new

    async def main() -> None:
        async with ConsumerGroup(vhost_url, [queue], member="pod-1", journal=None) as group:

            async def handle(message: GroupMessage) -> None:
                handled[await asyncio.to_thread(handle_once, message)] += 1
                if handled.total() == 2 * ROWS:
                    group.stop()

            async with asyncio.timeout(150):
                await group.run(handle)

    with closing(sqlite3.connect(tmp_path / "effects.db")) as db:
        db.execute("CREATE TABLE effects (key, n)")
        db.execute("CREATE TABLE handled (message_id TEXT PRIMARY KEY NOT NULL)")
        asyncio.run(main())
        assert handled == {True: ROWS, False: ROWS}
        assert db.execute("SELECT count(*) FROM effects").fetchone() == (ROWS,)
    report = checker.report(SENT)
    assert report.ok, report
    assert (report.messages, report.repeated) == (ROWS, 0)

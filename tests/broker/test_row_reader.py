"""The reader of the tests of faults, which must lose nothing itself."""

from __future__ import annotations

import threading
import time

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from row_reader import drained, reading, rows_waiting

from rabbit_chx.publishing import Publisher

pytestmark = pytest.mark.broker

ROWS = 40_000
QUEUES = ("q1", "q2", "q3")


def test_rows_that_come_while_reading_begins_and_ends(channel: BlockingChannel, vhost_url: str) -> None:
    assert channel.is_open

    def publish() -> None:
        with Publisher(vhost_url, "x") as publisher:
            publisher.publish_many(
                (f"k{row % 97}" for row in range(ROWS)), (f"{row} and more" for row in range(ROWS))
            )

    publishing = threading.Thread(target=publish)
    publishing.start()
    found: dict[str, list[int]] = {}
    while publishing.is_alive():
        with reading(vhost_url, QUEUES, found) as queues:
            queues.read(0.05)
        time.sleep(0.05)
    publishing.join()
    rest = drained(vhost_url, QUEUES)
    assert rest.unread == ()
    assert rows_waiting(vhost_url, QUEUES) == 0
    assert sorted(row for rows in (found, rest.found) for queue in QUEUES for row in rows[queue]) == list(
        range(ROWS)
    )
    assert sum(map(len, found.values())), "nothing was read meanwhile"

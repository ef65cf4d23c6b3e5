"""A job that is killed, run again and retried: its rows are in the queues more than once, and have one effect each."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 1_200
QUEUES = ("q1", "q2", "q3")
JOB = """
import sys
import time
import pika
from pyspark import TaskContext
from pyspark.sql import SparkSession

url, fate, rows = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    .getOrCreate()
)


def in_queues():
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return sum(channel.queue_declare(q, passive=True).method.message_count for q in ("q1", "q2", "q3"))


before = in_queues()


def meet_the_fate(batches):
    task = TaskContext.get()
    for number, batch in enumerate(batches):
        yield batch
        if number == 3 and fate == "hang":
            time.sleep(120)  # until somebody kills all of this
        if number == 3 and task.attemptNumber() == 0:
            while in_queues() < before + 100:
                time.sleep(0.2)
            raise RuntimeError("half way")


# Each row twice: equal rows are two rows. They are long, so that Spark does not keep them in a buffer. A shuffle gives each attempt another order.
rows = spark.range(0, int(rows), 1, 4).selectExpr("concat('key ', (id div 2) % 97) AS key", "concat('row ', id div 2, repeat('.', 2000)) AS value")
rows = rows.repartition(2, "key")
options = {"url": url, "exchange": "x", "messageId": "auto", "writeName": "orders of monday", "maxInFlight": "50"}
rows.mapInArrow(meet_the_fate, rows.schema).write.format("rabbitmq").options(**options).mode("append").save()
spark.stop()
"""


def waiting(channel: BlockingChannel, *queues: str) -> int:
    """The messages in these queues, or in all."""
    declared = (channel.queue_declare(queue, passive=True) for queue in queues or QUEUES)
    return sum(queue.method.message_count or 0 for queue in declared)


def run(job: Path, url: str, fate: str) -> subprocess.Popen[bytes]:
    """Start the job in a process group of its own, with its Spark."""
    command = [sys.executable, str(job), url, fate, str(ROWS)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


def insert_once(db: sqlite3.Connection, message_id: str, body: bytes) -> bool:
    """The effect, with the id in its transaction, as docs/deduplication.md has it."""
    with db:
        insert = "INSERT INTO handled VALUES (?) ON CONFLICT DO NOTHING"
        is_new = bool(db.execute(insert, (message_id,)).rowcount)
        if is_new:
            db.execute("INSERT INTO effects VALUES (?)", (body.decode().rstrip("."),))
    return is_new


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_row_has_one_effect(vhost_url: str, channel: BlockingChannel, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    killed = run(job, vhost_url, "hang")
    try:
        deadline = time.monotonic() + 150
        while waiting(channel) < ROWS // 6:
            assert killed.poll() is None, "the job has ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)
    first = waiting(channel)
    assert first < ROWS, "it was killed too late"
    again = run(job, vhost_url, "retry")
    assert again.wait(200) == 0
    delivered = waiting(channel)
    assert delivered >= first + ROWS + 100, "no task was retried after it had published"

    ran: Counter[bool] = Counter()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE effects (value TEXT)")
        db.execute("CREATE TABLE handled (message_id TEXT PRIMARY KEY NOT NULL)")
        for queue in QUEUES:
            channel.basic_qos(prefetch_count=100)
            left = waiting(channel, queue)
            coming: Iterator[Any] = channel.consume(queue, inactivity_timeout=30)
            for method, properties, body in islice(coming, left):
                ran[insert_once(db, properties.message_id, body)] += 1
                channel.basic_ack(method.delivery_tag)
            channel.cancel()
        effects = Counter(value for (value,) in db.execute("SELECT value FROM effects"))
    assert ran == {True: ROWS, False: delivered - ROWS}
    assert effects == {f"row {n}": 2 for n in range(ROWS // 2)}

"""A job that is killed, run again and retried: its rows are in the queues more than once, with one message id each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 1_200
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


def waiting(channel: BlockingChannel) -> int:
    """The messages in all queues."""
    declared = (channel.queue_declare(queue, passive=True) for queue in ("q1", "q2", "q3"))
    return sum(queue.method.message_count or 0 for queue in declared)


def run(job: Path, url: str, fate: str) -> subprocess.Popen[bytes]:
    """Start the job in a process group of its own, with its Spark."""
    command = [sys.executable, str(job), url, fate, str(ROWS)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_row_has_one_message_id(
    vhost_url: str, channel: BlockingChannel, consumed: Callable[[], list[Any]], tmp_path: Path
) -> None:
    """So a consumer that handles an id once handles each row once."""
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
    assert waiting(channel) >= first + ROWS + 100, "no task was retried after it had published"

    rows_of = defaultdict(set)
    for message in consumed():
        rows_of[message.properties.message_id].add((message.key, message.body))
    assert len(rows_of) == ROWS
    rows = Counter(row for of_id in rows_of.values() for row in of_id)
    assert rows == {(f"key {n % 97}", b"row %d" % n + b"." * 2_000): 2 for n in range(ROWS // 2)}

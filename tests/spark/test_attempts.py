"""Tasks and stages that Spark runs again, in a Spark of their own that does so."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts import run_python

if TYPE_CHECKING:
    Consumed = Callable[[], list[Any]]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

JOB = """
import os
import sys
import time
from pathlib import Path
import pika
from pyspark import TaskContext
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")  # so a task has published some before it fails
    .getOrCreate()
)


def rows(name):
    value = f"concat('{name} ', id div 2, repeat('.', 200)) AS value"  # each row twice
    return spark.range(0, 20_000, 1, 6).selectExpr("concat('customer ', id % 97) AS key", value)


def write(frame, report):
    options = {"url": url, "exchange": "x", "maxInFlight": "100", "messageId": "auto"}
    frame.write.format("rabbitmq").options(**options, reportPath=f"{folder}/{report}.json").mode("append").save()


def in_queues():
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return sum(channel.queue_declare(q, passive=True).method.message_count for q in ("q1", "q2", "q3"))


def fail_half_way(batches):
    first, seen, before = TaskContext.get().attemptNumber() == 0, 0, in_queues()
    for batch in batches:
        seen += batch.num_rows
        yield batch
        if first and seen > 3_000:
            while in_queues() < before + 500:
                time.sleep(0.2)
            raise RuntimeError("half way")


def lose_the_shuffle(batches):
    for number, batch in enumerate(batches):
        yield batch
        marker = Path(folder, "lost")
        if number == 2 and not marker.exists():
            marker.touch()
            for file in Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]).rglob("shuffle_*"):
                file.unlink()


tasks, stage = rows("task"), rows("stage")
write(tasks.repartition(4, "key").mapInArrow(fail_half_way, tasks.schema), "tasks")
write(stage.repartition(6, "key").mapInArrow(lose_the_shuffle, stage.schema), "stage")
spark.stop()
"""


@pytest.mark.slow
def test_tasks_and_a_stage_that_run_again_after_a_shuffle(
    vhost_url: str, consumed: Consumed, tmp_path: Path
) -> None:
    """Tasks that all fail half way; then files of the shuffle that go while tasks read them."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    run_python(job, vhost_url, tmp_path)
    messages = consumed()

    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["attempt"] for task in tasks["tasks"]] == [1] * 4
    assert tasks["notes"] == [
        "Spark ran 4 of 4 tasks more than once: rows of the earlier attempts may be in the queues twice"
    ]
    assert sum(message.body.startswith(b"task") for message in messages) > 20_500  # some are there twice

    assert (tmp_path / "lost").exists()
    stage = json.loads((tmp_path / "stage.json").read_text())
    assert stage["confirmed"] == 20_000
    assert [task["attempt"] for task in stage["tasks"]] == [0] * 6
    assert "a stage" in " ".join(stage["notes"])  # by a gap in the numbers, by marks of tasks, or both

    # An id is that of one row, and a row keeps its id: a consumer that drops repeats sees every row once.
    rows_of = defaultdict(set)
    for message in messages:
        rows_of[message.properties.message_id].add((message.key, message.body))
    assert not [name for name, rows in rows_of.items() if len(rows) > 1]
    assert len(rows_of) == 40_000

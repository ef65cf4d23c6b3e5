"""Writes that meet their end, and writes that do not.

A broker that is killed and started under a write is no error: no task is run again, and repeats are few.
"""

from __future__ import annotations

import json
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import pika
import pytest
from exchange_types import CHX

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import skip_unless_ci

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 100_000
PARTITIONS = 8
QUEUES = ("d1", "d2")


def slow_until(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step before the write that lets rows through a few at a time, until the file is there."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        from pathlib import Path

        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                if not Path(marker).exists():
                    time.sleep(0.3)
                yield batch.slice(start, 500)

    return step


@pytest.fixture
def durable(broker: RunningBroker, vhost_url: str) -> str:
    """The exchange `durable` with two queues that survive a restart, on a broker of our own; its URL."""
    if not broker.owned:
        skip_unless_ci("kills or inspects the broker, so it needs one that the tests started")
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("durable", CHX, durable=True)
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "durable", "1")
    return vhost_url


def waiting(channel: BlockingChannel) -> dict[str, int]:
    """The messages in each queue."""
    declared = ((queue, channel.queue_declare(queue, durable=True, passive=True)) for queue in QUEUES)
    return {queue: answer.method.message_count or 0 for queue, answer in declared}


def all_waiting(url: str) -> int:
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        return sum(waiting(connection.channel()).values())


def wait_for_messages(url: str, least: int, seconds: float) -> None:
    """Wait until the queues have so many messages, or until the time is over."""
    deadline = time.monotonic() + seconds
    while all_waiting(url) < least and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.restarts
@pytest.mark.timeout(400)
def test_a_broker_that_is_killed_and_started(
    spark: SparkSession, broker: RunningBroker, durable: str, tmp_path: Path
) -> None:
    time.sleep(1)  # Mnesia has a new exchange on disk half a second after it has confirmed it
    marker = tmp_path / "killed"
    problems: list[Exception] = []

    def kill_and_start() -> None:
        try:
            # Less than a partition, so that a task that has a connection is not done.
            wait_for_messages(durable, ROWS // PARTITIONS // 5, 120)
            broker.kill()
            marker.touch()
            time.sleep(2)
            broker.start()
        except Exception as cause:  # noqa: BLE001  # it is raised below
            problems.append(cause)

    killer = threading.Thread(target=kill_and_start)
    killer.start()
    frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "concat('key ', id % 977) AS key", "cast(id AS string) AS value"
    )
    path = tmp_path / "report.json"
    paced = frame.mapInArrow(slow_until(str(marker)), frame.schema)
    options = {"url": durable, "exchange": "durable", "reportPath": str(path)}
    paced.write.format("rabbitmq").options(**options).mode("append").save()
    killer.join(200)
    assert not problems
    report = json.loads(path.read_text())
    assert report["confirmed"] == report["rows"] == ROWS
    assert report["reconnects"] >= 1, "the broker was killed after the write"
    assert [task["attempt"] for task in report["tasks"]] == [0] * PARTITIONS
    with pika.BlockingConnection(pika_parameters(durable)) as connection:
        channel = connection.channel()
        found: list[bytes] = []
        for queue, left in waiting(channel).items():
            coming: Iterator[Any] = channel.consume(queue, auto_ack=True, inactivity_timeout=30)
            found += [body for _, _, body in islice(coming, left)]
            channel.cancel()
    assert len(set(found)) == ROWS, "rows are lost"
    assert len(found) - ROWS <= report["republished"] <= 1_000 * report["reconnects"]


def test_a_job_that_is_cancelled_leaves_a_report_and_no_connection(
    spark: SparkSession, broker: RunningBroker, durable: str, tmp_path: Path
) -> None:
    def cancel() -> None:
        wait_for_messages(durable, 2_000, 60)
        spark.sparkContext.cancelAllJobs()

    def our_connections() -> list[str]:
        vhost = durable.rpartition("/")[2]
        listed = broker.run("rabbitmqctl", "--quiet", "list_connections", "vhost", "name").splitlines()
        return [line for line in listed if line.startswith(vhost)]

    frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('key ', id) AS key", "cast(id AS string) AS value")
    endless = frame.mapInArrow(slow_until(str(tmp_path / "never")), frame.schema)
    path = tmp_path / "report.json"
    writer = endless.write.format("rabbitmq").options(url=durable, exchange="durable", reportPath=str(path))
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Exception, match=r"(?i)cancelled|aborted|killed"):
        writer.mode("append").save()
    canceller.join(60)
    report = json.loads(path.read_text())
    assert report["failed"]
    assert report["confirmed"] <= all_waiting(durable) < ROWS
    deadline = time.monotonic() + 30
    while our_connections() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert our_connections() == []

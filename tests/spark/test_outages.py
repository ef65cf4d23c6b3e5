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

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import skip_unless_ci

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 200_000
PARTITIONS = 8
CHX: Any = "x-consistent-hash"  # pika's stubs know only the types of the specification


def slow_until(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step before the write that lets rows through a few at a time, until the file is there."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        from pathlib import Path

        for batch in batches:
            for start in range(0, batch.num_rows, 1_000):
                if not Path(marker).exists():
                    time.sleep(0.3)
                yield batch.slice(start, 1_000)

    return step


def durable(channel: Any) -> None:
    channel.exchange_declare("durable", CHX, durable=True)
    for queue in ("d1", "d2"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "durable", "1")


def waiting(url: str) -> int:
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        counts = [
            channel.queue_declare(queue, durable=True, passive=True).method.message_count
            for queue in ("d1", "d2")
        ]
        return sum(count or 0 for count in counts)


@pytest.mark.restarts
@pytest.mark.timeout(400)
def test_a_broker_that_is_killed_and_started(
    spark: SparkSession, broker: RunningBroker, vhost_url: str, tmp_path: Path
) -> None:
    if not broker.owned:
        skip_unless_ci("kills the broker, so it needs one that the tests started")
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        durable(connection.channel())
    time.sleep(1)  # Mnesia has a new exchange on disk half a second after it has confirmed it
    marker = tmp_path / "killed"
    problems: list[Exception] = []

    def kill_and_start() -> None:
        try:
            deadline = time.monotonic() + 120
            # Less than a partition, so that a task that has a connection is not done.
            while waiting(vhost_url) < ROWS // PARTITIONS // 5 and time.monotonic() < deadline:
                time.sleep(0.05)
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
    paced.write.format("rabbitmq").options(url=vhost_url, exchange="durable", reportPath=str(path)).mode(
        "append"
    ).save()
    killer.join(200)
    assert not problems
    report = json.loads(path.read_text())
    assert report["confirmed"] == report["rows"] == ROWS
    assert report["reconnects"] >= 1, "the broker was killed after the write"
    assert [task["attempt"] for task in report["tasks"]] == [0] * PARTITIONS
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        channel = connection.channel()
        found: list[bytes] = []
        for queue in ("d1", "d2"):
            left = channel.queue_declare(queue, durable=True, passive=True).method.message_count or 0
            coming: Iterator[Any] = channel.consume(queue, auto_ack=True, inactivity_timeout=30)
            found += [body for _, _, body in islice(coming, left)]
            channel.cancel()
    assert len(set(found)) == ROWS, "rows are lost"
    assert len(found) - ROWS <= report["republished"] <= 1_000 * report["reconnects"]


def test_a_job_that_is_cancelled_leaves_a_report_and_no_connection(
    spark: SparkSession, broker: RunningBroker, vhost_url: str, tmp_path: Path
) -> None:
    if not broker.owned:
        skip_unless_ci("lists the connections with rabbitmqctl, so it needs a broker that the tests started")
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        durable(connection.channel())

    def cancel() -> None:
        deadline = time.monotonic() + 60
        while waiting(vhost_url) < 2_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        spark.sparkContext.cancelAllJobs()

    def our_connections() -> list[str]:
        vhost = vhost_url.rpartition("/")[2]
        listed = broker.run("rabbitmqctl", "--quiet", "list_connections", "vhost", "name").splitlines()
        return [line for line in listed if line.startswith(vhost)]

    frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('key ', id) AS key", "cast(id AS string) AS value")
    endless = frame.mapInArrow(slow_until(str(tmp_path / "never")), frame.schema)
    path = tmp_path / "report.json"
    writer = endless.write.format("rabbitmq").options(url=vhost_url, exchange="durable", reportPath=str(path))
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Exception, match=r"(?i)cancelled|aborted|killed"):
        writer.mode("append").save()
    canceller.join(60)
    report = json.loads(path.read_text())
    assert report["failed"]
    assert report["confirmed"] <= waiting(vhost_url) < ROWS
    deadline = time.monotonic() + 30
    while our_connections() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert our_connections() == []

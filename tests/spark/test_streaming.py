"""`df.writeStream.format("rabbitmq")` with a real Spark and a real broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from canary import CANARY, canary_user
from declared import with_login
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rabbit_chx.broker.management import Management
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')"),
]

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


class Stream:
    """A stream of files, one of them a batch; what it writes goes on where it ended."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        self.checkpoint = folder / "checkpoint"
        self.reports = folder / "reports"
        (folder / "in").mkdir()
        self._files = 0
        rows = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
        self._rows = rows.json(str(folder / "in"))

    def add(self, keys: Sequence[str]) -> None:
        """One more batch; a body is its key and its number."""
        self._files += 1
        rows = ({"key": key, "value": f"{key} {i}"} for i, key in enumerate(keys))
        part = self._folder / f"{self._files}.part"
        part.write_text("\n".join(map(json.dumps, rows)))
        part.rename(self._folder / "in" / f"{self._files}.json")

    def run(
        self, options: Mapping[str, object], publisher: Callable[[DataFrame, int], None] | None = None
    ) -> None:
        """Write what is there, batch by batch, and return."""
        writer = self._rows.writeStream.queryName("orders")  # Spark adds the name to the options
        if publisher is not None:
            writer = writer.foreachBatch(publisher)
        else:
            texts = {"exchange": "x", **{name: str(value) for name, value in options.items()}}
            writer = writer.format("rabbitmq").options(**texts)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        try:
            query.awaitTermination(120)
        finally:
            query.stop()

    def report(self, batch: int) -> dict[str, Any]:
        """Of a batch."""
        report: dict[str, Any] = json.loads((self.reports / f"batch-{batch}.json").read_text())
        return report


def test_every_row_of_every_batch_once_and_a_report_of_each(
    stream: Stream, vhost_url: str, channel: BlockingChannel, consumed: Consumed
) -> None:
    channel.exchange_declare("y", CHX, durable=True, arguments={"alternate-exchange": "amq.fanout"})
    for weight in (1, 2, 3):
        channel.queue_bind(f"q{weight}", "y", str(weight))
    stream.add([f"k{i}" for i in range(500)])
    stream.add([f"k{i}" for i in range(300)])
    options = {"url": vhost_url, "exchange": "y", "ring": RING.to_json(), "reportPath": stream.reports}
    stream.run(options)
    stream.add(["k", "k"])
    stream.run(options)

    messages = consumed()
    assert Counter(message.body for message in messages) == Counter(
        f"k{i} {i}".encode() for count in (500, 300) for i in range(count)
    ) + Counter([b"k 0", b"k 1"])
    reports = [stream.report(batch) for batch in range(3)]
    assert [report["confirmed"] for report in reports] == [500, 300, 2]
    assert [report["batch_id"] for report in reports] == [0, 1, 2]
    assert all(report["seconds"] > max(task["seconds"] for task in report["tasks"]) for report in reports)
    assert ["alternate exchange" in " ".join(report["notes"]) for report in reports] == [True] * 3
    assert len({report["write_id"] for report in reports}) == 1  # a restart keeps the id of the query
    predicted: Counter[str] = Counter()
    for report in reports:
        predicted.update(report["predicted"])
    assert predicted == Counter(message.queue for message in messages)


def test_a_checkpoint_of_another_exchange_is_refused(
    stream: Stream, vhost_url: str, channel: BlockingChannel, consumed: Consumed
) -> None:
    for exchange in ("x", "amq.fanout"):
        channel.queue_bind("q1", exchange, "1")
    stream.add(["k"])
    stream.run({"url": vhost_url})
    stream.add(["k", "k"])
    other = {"url": vhost_url, "exchange": "amq.fanout", "preflight": "false"}
    with pytest.raises(
        StreamingQueryException, match=r"publishes to 'x' in vhost .* publishes to 'amq.fanout' in"
    ):
        stream.run(other)
    assert len(consumed()) == 1
    stream.checkpoint.joinpath("rabbitmq-target.json").unlink()
    stream.run(other)
    assert len(consumed()) == 2


def test_a_failed_batch_is_replayed_with_the_same_ids(
    stream: Stream, vhost_url: str, channel: BlockingChannel, consumed: Consumed
) -> None:
    channel.queue_bind("q1", "amq.direct", "bound")
    options = {
        "url": vhost_url,
        "exchange": "amq.direct",
        "messageId": "auto",
        "preflight": "false",
        "reportPath": stream.reports,
    }
    stream.add(["bound"] * 5 + ["not yet"])
    with pytest.raises(StreamingQueryException, match="no queue took 1 of the messages"):
        stream.run(options)
    failed = {message.body: message.properties.message_id for message in consumed()}
    assert len(failed) == 5
    assert stream.report(0)["failed"]

    channel.queue_bind("q1", "amq.direct", "not yet")
    stream.run(options)
    again = {message.body: message.properties.message_id for message in consumed()}
    assert len(again) == 6
    assert failed.items() <= again.items()
    assert (stream.report(0)["failed"], stream.report(0)["confirmed"]) == (False, 6)
    assert json.loads((stream.reports / "batch-0.json.previous").read_text())["failed"]


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_the_broker_is_checked_once_for_all_batches(
    stream: Stream, broker: RunningBroker, channel: BlockingChannel, vhost_url: str, way: str
) -> None:
    """The user may write and not declare, so that each look leaves an error line in the broker's log."""
    if broker.ring_via is None or broker.ring_via[:2] != ("docker", "exec"):
        pytest.skip(f"NO LOG TO READ: the broker is no container, but {broker.origin}")
    assert channel.is_open
    management, vhost = Management(str(broker.management_url)), vhost_url.rpartition("/")[2]
    for batch in range(4):
        stream.add([f"k{batch}"])
    with canary_user(management, vhost, "") as user:
        least = {"configure": "", "write": ".*", "read": ""}
        management.request("PUT", "permissions", vhost, user, body=least)
        url = with_login(vhost_url, user, CANARY)
        options = {"url": url, "reportPath": str(stream.reports), "connectionName": "task"}
        stream.run(options, batch_publisher({"exchange": "x", **options}) if way != "format" else None)
    assert [stream.report(batch)["confirmed"] for batch in range(4)] == [1] * 4
    command = ["docker", "logs", broker.ring_via[2]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    said = done.stdout + done.stderr
    refused = f"access to exchange 'x' in vhost '{vhost}' refused for user '{user}'"
    assert said.count(refused) == 1, said
    granted = re.findall(f"'{user}' authenticated and granted access to vhost '{vhost}'", said)
    assert len(granted) == 5  # the look, and a task for each batch

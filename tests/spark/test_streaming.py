"""`df.writeStream.format("rabbitmq")` with a real Spark and a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_connector
from rabbit_chx.broker.management import Management
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher

if TYPE_CHECKING:
    Consumed = Callable[[], list[Any]]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')"),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    spark_connector.register(spark)
    return Stream(spark, tmp_path)


class Stream:
    """A stream of files, one of them a batch; what it writes goes on where it ended."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        self.checkpoint = folder / "checkpoint"
        self.reports = folder / "reports"
        (folder / "in").mkdir()
        self._files = 0
        self.frame: DataFrame = (
            spark.readStream.schema("key string, value string")
            .option("maxFilesPerTrigger", 1)
            .json(str(folder / "in"))
        )

    def add(self, keys: Sequence[str]) -> None:
        """One more batch; a body is its key and its number."""
        self._files += 1
        rows = ({"key": key, "value": f"{key} {i}"} for i, key in enumerate(keys))
        part = self._folder / f"{self._files}.part"
        part.write_text("\n".join(map(json.dumps, rows)))
        part.rename(self._folder / "in" / f"{self._files}.json")

    def run(
        self,
        options: Mapping[str, object],
        frame: DataFrame | None = None,
        mode: str = "append",
        publisher: Callable[[DataFrame, int], None] | None = None,
    ) -> None:
        """Write what is there, batch by batch, and return."""
        texts = {"exchange": "x", **{name: str(value) for name, value in options.items()}}
        writer = (self.frame if frame is None else frame).writeStream
        if publisher is not None:
            writer = writer.foreachBatch(publisher)
        else:
            writer = writer.format("rabbitmq").options(**texts)
        query = (
            writer.option("checkpointLocation", str(self.checkpoint))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
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
    unusual: Any = "x-consistent-hash"  # pika's stubs know only the types of the specification
    channel.exchange_declare("y", unusual, durable=True, arguments={"alternate-exchange": "amq.fanout"})
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
    stream.add(["k"])
    stream.run(other)
    assert len(consumed()) == 3


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
    stream.add(["bound"] * 3)
    stream.run(options)
    first = consumed()
    assert len(first) == 3

    stream.add(["bound"] * 5 + ["not yet"])
    with pytest.raises(StreamingQueryException, match="no queue took 1 of the messages"):
        stream.run(options)
    failed = {message.body: message.properties.message_id for message in consumed()}
    assert len(failed) == 5
    assert stream.report(1)["failed"]
    assert stream.report(1)["batch_id"] == 1

    channel.queue_bind("q1", "amq.direct", "not yet")
    stream.run(options)
    again = {message.body: message.properties.message_id for message in consumed()}
    assert len(again) == 6
    assert failed.items() <= again.items()
    assert not set(again.values()) & {message.properties.message_id for message in first}
    assert (stream.report(1)["failed"], stream.report(1)["confirmed"]) == (False, 6)
    assert json.loads((stream.reports / "batch-1.json.previous").read_text())["failed"]


@pytest.fixture
def log(broker: RunningBroker) -> Callable[[], str]:
    """What the broker has written since the test began."""
    if broker.ring_via is None or broker.ring_via[:2] != ("docker", "exec"):
        pytest.skip(f"NO LOG TO READ: the broker is no container, but {broker.origin}")
    since = datetime.now(UTC).isoformat()

    def read() -> str:
        command = ["docker", "logs", "--since", since, broker.ring_via[2]]  # type: ignore[index]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout + done.stderr

    return read


@pytest.fixture
def url_of_a_writer(broker: RunningBroker, vhost_url: str, broker_user: str) -> str:
    """The URL of a user of the test's vhost who may write, and nothing else."""
    assert broker.management_url is not None
    least = {"configure": "", "write": ".*", "read": ""}
    Management(broker.management_url).request("PUT", "permissions", broker_user, broker_user, body=least)
    return vhost_url.replace("guest:guest@", f"{broker_user}:c4nary-password@")


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_the_broker_is_checked_once_for_all_batches(
    stream: Stream, url_of_a_writer: str, log: Callable[[], str], way: str
) -> None:
    """The user may not declare, so that each look leaves an error line."""
    user = url_of_a_writer.rpartition("/")[2]  # and the vhost
    for batch in range(4):
        stream.add([f"k{batch}"])
    options = {"url": url_of_a_writer, "reportPath": str(stream.reports), "connectionName": "task"}
    stream.run(options, publisher=batch_publisher({"exchange": "x", **options}) if way != "format" else None)
    assert [stream.report(batch)["confirmed"] for batch in range(4)] == [1] * 4
    said = log()
    refused = f"access to exchange 'x' in vhost '{user}' refused for user '{user}'"
    assert said.count(refused) == 1, said
    granted = re.findall(f"'{user}' authenticated and granted access to vhost '{user}'", said)
    assert len(granted) == 5  # the look, and a task for each batch


@pytest.mark.usefixtures("channel")
def test_what_a_stream_cannot_be(stream: Stream, vhost_url: str, tmp_path: Path) -> None:
    stream.add(["k"])
    file = tmp_path / "report.json"
    file.touch()
    with pytest.raises(
        StreamingQueryException, match=r"outputMode\('complete'\): messages in queues cannot be"
    ):
        stream.run({"url": vhost_url}, stream.frame.groupBy("key", "value").count().drop("count"), "complete")
    with pytest.raises(
        StreamingQueryException, match="a stream has a report for each batch, so pass a folder"
    ):
        stream.run({"url": vhost_url, "reportPath": file})
    with pytest.raises(StreamingQueryException, match="exchange 'nope' does not exist"):
        stream.run({"url": vhost_url, "exchange": "nope"})


def test_the_example_confirms_all_rows(
    spark: SparkSession, vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    spark_connector.register(spark)
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    csv = import_module("flights_data").flights_csv()
    assert import_module("streaming").run(vhost, spark, csv, 5_000) == 5_000
    said = capsys.readouterr().out
    assert said.count(" rows confirmed\n") == 4
    assert "5,000 messages in the queues" in said

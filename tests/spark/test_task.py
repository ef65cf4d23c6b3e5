"""What a task does with its rows, against a real broker; only Spark around it is left out, for speed."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.types import DataType, IntegerType, MapType, StringType, StructType, TimestampType

from rabbit_chx.broker.management import Management
from rabbit_chx.errors import AccessRefusedError, InputError, PublishError
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports import RowSample, TaskReport, WriteReport, hash_key
from spark_connector.writing import tasks
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task
from spark_connector.writing.write_plan import WritePlan

if TYPE_CHECKING:
    Consumed = Callable[[], list[Any]]

pytestmark = pytest.mark.broker

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
TYPES: dict[str, tuple[DataType, Any]] = {
    "headers": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "priority": (IntegerType(), pa.int32()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
}


def write(url: str, columns: dict[str, list[Any]], *, batches: int = 1, **options: object) -> TaskReport:
    text = {"url": url, "exchange": "x", **{name: str(value) for name, value in options.items()}}
    parsed = WriteOptions.parse(text)
    types = {name: TYPES.get(name, (StringType(), pa.string())) for name in columns}
    schema = StructType()
    for name, (kind, _) in types.items():
        schema = schema.add(name, kind)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, type=types[name][1]) for name, values in columns.items()], names=list(columns)
    )
    positions = MessageColumns.of(schema, parsed)
    return TaskWriter(WritePlan(positions, parsed), Task.current("w", 7)).publish_partition([batch] * batches)


def plan_of(options: WriteOptions) -> WritePlan:
    schema = StructType().add("key", StringType()).add("value", StringType())
    return WritePlan(MessageColumns.of(schema, options), options)


def rows(count: int) -> dict[str, list[Any]]:
    return {"key": [f"key {i}" for i in range(count)], "value": [f"body {i}" for i in range(count)]}


def test_every_part_of_a_message_is_written(
    vhost_url: str, channel: BlockingChannel, consumed: Consumed
) -> None:
    channel.queue_bind("q1", "amq.fanout")
    report = write(
        vhost_url,
        {
            "key": ["a", "b"],
            "value": ["one", "two"],
            "exchange": [None, "amq.fanout"],
            "headers": [[("h", "1"), ("c", "own")], None],
            "message_id": ["m1", None],
            "content_type": ["text/plain", None],
            "ttl_ms": ["60000", None],
            "priority": [9, None],
            "timestamp": [datetime(2013, 1, 1, 0, 0, 1, 500_000, UTC), None],
        },
        allowExchangeColumn="true",
        columnNames='{"expiration": "ttl_ms"}',
        headersConst='{"c": "all", "n": 5}',
        persistent="false",
    )
    assert (report.rows, report.published, report.confirmed) == (2, 2, 2)
    messages = {message.body: message for message in consumed()}
    assert messages[b"one"].queue == RING.destination_for("a")
    first, second = messages[b"one"].properties, messages[b"two"].properties
    assert first.headers == {"h": "1", "c": "own", "n": 5}
    assert (first.message_id, first.content_type, first.expiration, first.priority) == (
        "m1",
        "text/plain",
        "60000",
        9,
    )
    assert (first.timestamp, first.delivery_mode) == (1_356_998_401, 1)
    assert (second.headers, second.message_id, second.priority, second.timestamp) == (
        {"c": "all", "n": 5},
        None,
        None,
        None,
    )


def test_made_ids_go_on_over_batches(vhost_url: str, consumed: Consumed) -> None:
    write(vhost_url, rows(2), batches=2, messageId="auto")
    first, second = sorted({(message.body, message.properties.message_id[:32]) for message in consumed()})
    write(vhost_url, rows(2), batches=2, messageId="auto")
    assert sorted((message.body, message.properties.message_id) for message in consumed()) == [
        first,
        (first[0], f"{first[1]}-1"),
        second,
        (second[0], f"{second[1]}-1"),
    ]


def test_made_ids_need_a_write(vhost_url: str) -> None:
    options = WriteOptions.parse({"url": vhost_url, "exchange": "x", "messageId": "auto"})
    with pytest.raises(InputError, match="does not report the streaming query: add a column message_id"):
        TaskWriter(plan_of(options), Task.current()).publish_partition([])


def test_bad_rows_are_skipped_counted_and_shown_without_their_bodies(
    vhost_url: str, consumed: Consumed
) -> None:
    columns: dict[str, list[Any]] = {
        "key": ["good", None, "k" * 256],
        "value": ["body", "secret body", "secret body"],
    }
    report = write(vhost_url, columns, batches=20, badRows="skip", ring=RING.to_json())
    assert len(consumed()) == 20
    assert (report.rows, report.skipped, report.published, report.confirmed) == (60, 40, 20, 20)
    assert report.predicted == {RING.destination_for("good"): 20}
    assert len(report.samples) == 10
    assert [sample.row for sample in report.samples] == [1, 2, 4, 5, 7, 8, 10, 11, 13, 14]
    assert report.samples[1].key_hash == hash_key(b"k" * 256)
    whole = WriteReport("x", (report,), "replayed", notes=("a note",))
    assert "secret" not in whole.to_json() + str(whole)
    assert json.loads(whole.to_json())["skipped"] == 40
    assert re.search(r"rows +60\nskipped +40\npublished +20\n", str(whole))
    assert "queue, predicted (replayed ring)" in str(whole)
    assert str(whole).endswith("note: a note")


def test_only_bad_rows_open_no_connection() -> None:
    report = write("amqp://127.0.0.1:1", {"key": [None], "value": ["v"]}, badRows="skip")
    assert (report.rows, report.skipped, report.published) == (1, 1, 0)


def test_unroutable_rows_are_skipped_and_counted(
    vhost_url: str, channel: BlockingChannel, consumed: Consumed
) -> None:
    channel.queue_bind("q1", "amq.direct", "there")
    columns = {"key": ["there", "nowhere"], "value": ["a", "secret body"]}
    report = write(vhost_url, columns, exchange="amq.direct", onUnroutable="skip")
    assert (report.published, report.confirmed, report.returned) == (2, 1, 1)
    assert report.samples == (RowSample(0, None, "312 NO_ROUTE", hash_key(b"nowhere")),)
    assert [message.body for message in consumed()] == [b"a"]
    with pytest.raises(PublishError, match=r"partition 0: exchange 'amq\.direct': no queue took 1 of"):
        write(vhost_url, columns, exchange="amq.direct")


def test_a_full_queue_fails_after_retries(vhost_url: str, channel: BlockingChannel) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("full", arguments=full)
    channel.queue_bind("full", "amq.direct", "k")
    for options in ({"nackRetries": 1, "reconnectBackoff": "10ms"}, {"ordering": "per-key"}):
        with pytest.raises(PublishError, match=r"basic\.nack"):
            write(vhost_url, {"value": ["a"] * 5}, exchange="amq.direct", routingKey="k", **options)


def test_the_next_address_is_tried(vhost_url: str, consumed: Consumed) -> None:
    report = write(f"amqp://127.0.0.1:1/nowhere,{vhost_url}", rows(10))
    assert report.confirmed == len(consumed()) == 10


@pytest.mark.usefixtures("channel")
def test_the_password_is_taken_from_the_task(
    vhost_url: str, monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    url = vhost_url.replace("guest:guest@", "guest@")
    monkeypatch.setenv("RABBIT_PASSWORD", "guest")
    write(url, rows(1), passwordEnv="RABBIT_PASSWORD")
    assert len(consumed()) == 1
    monkeypatch.setenv("RABBIT_PASSWORD", "c4nary")
    with pytest.raises(AccessRefusedError) as caught:
        write(url, rows(1), passwordEnv="RABBIT_PASSWORD")
    assert "c4nary" not in str(caught.value)


@pytest.mark.usefixtures("channel")
def test_the_connection_is_named_after_the_task(broker: RunningBroker, vhost_url: str) -> None:
    """Looked up while the task waits for its second batch."""
    assert broker.management_url is not None
    management = Management(broker.management_url)
    vhost = vhost_url.rpartition("/")[2]

    def names() -> set[str]:
        connections = management.request("GET", "vhosts", vhost, "connections")
        return {connection["client_properties"].get("connection_name") for connection in connections}

    batch = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
    options = WriteOptions.parse({"url": vhost_url, "exchange": "x"})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        until = time.monotonic() + 60
        while "spark:-:0.0.0" not in names():
            assert time.monotonic() < until, names()
            time.sleep(0.2)  # the page is a few seconds late
        yield batch

    TaskWriter(plan_of(options), Task.current("w")).publish_partition(batches())


@pytest.mark.usefixtures("channel")
def test_a_lost_connection_is_opened_again(broker: RunningBroker, vhost_url: str, consumed: Consumed) -> None:
    """The broker's administrator closes it while the task waits for its second batch."""
    assert broker.management_url is not None
    management = Management(broker.management_url)
    vhost = vhost_url.rpartition("/")[2]
    options = WriteOptions.parse(
        {"url": vhost_url, "exchange": "x", "reconnectBackoff": "10ms", "connectionName": "victim"}
    )

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"key": ["k"], "value": ["one"]})
        until = time.monotonic() + 60
        victims: list[str] = []
        while not victims:
            assert time.monotonic() < until
            victims = [
                connection["name"]
                for connection in management.request("GET", "vhosts", vhost, "connections")
                if connection["client_properties"].get("connection_name") == "victim"
            ]
            time.sleep(0.2)  # the page is a few seconds late
        management.request("DELETE", "connections", victims[0])
        yield pa.RecordBatch.from_pydict({"key": ["k"], "value": ["two"]})

    report = TaskWriter(plan_of(options), Task.current("w")).publish_partition(batches())
    assert (report.rows, report.confirmed, report.reconnects) == (2, 2, 1)
    assert [message.body for message in consumed()][-1:] == [b"two"]
    assert "reconnects" in WriteReport("x", (report,), None).to_json()


def test_lines_in_the_log(
    vhost_url: str,
    consumed: Consumed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_PROGRESS_S", 0.0)
    with caplog.at_level(logging.INFO, "spark_connector"):
        write(vhost_url, rows(1_000), batches=3)
    lines = [record.message for record in caplog.records if record.name == "spark_connector.writing.tasks"]
    assert lines[-1].startswith(
        "exchange 'x', partition 0, attempt 0, done: 3000 rows read, 0 skipped, 3000 confirmed"
    )
    assert any(", so far: " in line for line in lines[:-1])
    assert Counter(message.queue for message in consumed()).total() == 3_000


@pytest.mark.usefixtures("channel")
def test_a_long_task_says_on_stderr_how_far_it_is(
    vhost_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody has configured logging, as in Spark's workers."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    write(vhost_url, rows(10))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(tasks, "_PROGRESS_S", 0.0)
    write(vhost_url, rows(1_000), batches=3)
    *during, last = capsys.readouterr().err.splitlines()
    assert last.startswith(
        "exchange 'x', partition 0, attempt 0, done: 3000 rows read, 0 skipped, 3000 confirmed"
    )
    assert during
    assert all(", so far: " in line for line in during)

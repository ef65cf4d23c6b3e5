"""`df.write.format("rabbitmq")` with a real Spark and a real broker."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

import spark_connector
from rabbit_chx.routing import HashRing

if TYPE_CHECKING:
    Consumed = Callable[[], list[Any]]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])


def frame(spark: SparkSession, rows: int = 1_000, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr(
        "concat('key ', id) AS key", "concat('body ', id) AS value"
    )


def write(df: DataFrame, url: str, *, mode: str = "append", **options: object) -> None:
    text = {"url": url, "exchange": "x", **{name: str(value) for name, value in options.items()}}
    df.write.format("rabbitmq").options(**text).mode(mode).save()


@pytest.mark.core
def test_every_row_is_in_the_predicted_queue(spark: SparkSession, vhost_url: str, consumed: Consumed) -> None:
    write(frame(spark, rows=25_000), vhost_url)
    messages = consumed()
    assert sorted(m.body for m in messages) == sorted(b"body %d" % i for i in range(25_000))
    assert all(RING.destination_for(m.key) == m.queue for m in messages)
    assert all(m.key.split()[1] == m.body.decode().split()[1] for m in messages)


@pytest.mark.parametrize("columns", [["value"], ["key", "value"]])
def test_rows_go_to_a_queue_by_the_default_exchange(
    spark: SparkSession, vhost_url: str, channel: BlockingChannel, columns: list[str]
) -> None:
    channel.queue_declare("one queue/ö")
    report = spark_connector.publish(
        frame(spark, rows=2_000).select(*columns), {"url": vhost_url, "queue": "one queue/ö"}
    )
    assert (report.confirmed, report.queue, report.exchange) == (2_000, "one queue/ö", "")
    assert "to queue 'one queue/ö'" in str(report)
    bodies = set[Any]()
    while (got := channel.basic_get("one queue/ö", auto_ack=True))[0] is not None:
        bodies.add(got[2])
    assert bodies == {b"body %d" % i for i in range(2_000)}


def test_binary_columns_are_written_in_any_order_and_case(
    spark: SparkSession, vhost_url: str, consumed: Consumed
) -> None:
    df = frame(spark, rows=10).selectExpr(
        "encode(value, 'utf-8') AS VALUE", "encode(key, 'utf-8') AS Routing_Key"
    )
    write(df, vhost_url, MAXINFLIGHT="3")
    assert sorted((m.key, m.body) for m in consumed()) == sorted(
        (f"key {i}", b"body %d" % i) for i in range(10)
    )


@pytest.mark.parametrize("large", ["true", "false"])
def test_columns_become_message_properties(
    spark: SparkSession, vhost_url: str, consumed: Consumed, large: str
) -> None:
    df = spark.range(1).selectExpr(
        "'k' AS key",
        "cast('body' AS binary) AS value",
        "map('h', 'ü', 'n', null) AS headers",
        "'m' AS message_id",
        "timestamp '2013-01-01 00:00:01.9+00:00' AS timestamp",
        "cast(9 AS tinyint) AS priority",
        "1 AS delivery_mode",
    )
    changed = {
        "spark.sql.execution.arrow.useLargeVarTypes": large,
        "spark.sql.session.timeZone": "America/New_York",
    }
    before = {name: spark.conf.get(name) for name in changed}
    try:
        for name, value in changed.items():
            spark.conf.set(name, value)
        write(df, vhost_url, messageId="column")
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)
    (message,) = consumed()
    sent = message.properties
    assert message.body == b"body"
    assert (sent.headers, sent.message_id, sent.timestamp) == ({"h": "ü", "n": None}, "m", 1_356_998_401)
    assert (sent.priority, sent.delivery_mode) == (9, 1)


@pytest.mark.usefixtures("channel")
def test_bad_rows_are_counted_over_partitions(spark: SparkSession, vhost_url: str, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr("if(id % 10 = 7, null, 'k') AS key", "'v' AS value")
    write(df, vhost_url, badRows="skip", reportPath=tmp_path)
    (file,) = tmp_path.glob("write-*.json")
    report = json.loads(file.read_text())
    assert (report["rows"], report["skipped"], report["confirmed"]) == (100, 10, 90)
    assert [(sample["partition"], sample["row"]) for sample in report["samples"]] == [
        (partition, row) for partition in (0, 1) for row in range(7, 50, 10)
    ]


@pytest.mark.pyspark("4.1", "to register a format again that Spark has found by itself")
@pytest.mark.usefixtures("channel")
def test_speculation_can_be_refused(spark: SparkSession, vhost_url: str) -> None:
    from spark_connector.datasource import data_source  # not on PySpark 3.5

    spark.dataSource.register(data_source(speculation=True))
    try:
        line = failure(frame(spark), vhost_url, AnalysisException, onSpeculation="fail")
    finally:
        spark_connector.register(spark)
    assert "spark.speculation is on, whose copies of a task publish its rows again" in line


@pytest.mark.usefixtures("channel")
def test_the_report_counts_rows_by_predicted_queue(
    spark: SparkSession, vhost_url: str, consumed: Consumed, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    write(frame(spark, rows=5_000, partitions=3), vhost_url, ring=RING.to_json(), reportPath=path)
    report = json.loads(path.read_text())
    assert report["confirmed"] == 5_000
    assert report["ring_provenance"] == "replayed"
    assert report["predicted"] == Counter(m.queue for m in consumed())
    assert [task["partition"] for task in report["tasks"]] == [0, 1, 2]
    assert sum(task["rows"] for task in report["tasks"]) == 5_000


@pytest.mark.usefixtures("channel")
def test_empty_frames_and_partitions_write_nothing(
    spark: SparkSession, vhost_url: str, consumed: Consumed
) -> None:
    write(frame(spark, rows=0), vhost_url)
    write(frame(spark, rows=1, partitions=4), vhost_url)
    assert len(consumed()) == 1


@pytest.mark.core
def test_a_registered_session_writes(spark: SparkSession, vhost_url: str, consumed: Consumed) -> None:
    spark_connector.register(spark)
    write(frame(spark, rows=3), vhost_url)
    assert len(consumed()) == 3


def failure(df: DataFrame, url: str, kind: type[PySparkException], **options: object) -> str:
    """The line of the error that tells the cause; it comes within seconds and shows no password."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        write(df, url, **options)  # type: ignore[arg-type]
    assert time.monotonic() - started < 30
    text = str(caught.value)
    assert "secret" not in text
    assert "guest:guest" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("rabbit_chx.errors."))
    return line


@pytest.mark.usefixtures("channel")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchange": "nope"}, "exchange 'nope' does not exist: check its name"),
        (
            {"exchange": "amq.topic", "ordering": "per-key"},
            "exchange 'amq.topic' is of type topic, and option 'ordering' needs x-consistent-hash",
        ),
        ({"exchange": "", "queue": "nope"}, "queue 'nope' does not exist: check its name"),
        (
            {"exchange": "", "queue": "q", "ring": RING.to_json()},
            "option 'ring' needs an exchange that hashes, and all rows go to queue 'q'",
        ),
        ({"queue": "q"}, "options 'exchange' and 'queue' are both given"),
        (
            {"exchange": "", "queue": "q", "routingKey": "k"},
            "options 'queue' and 'routingKey' are both given",
        ),
        ({"mode": "overwrite"}, "mode('overwrite'): messages in queues cannot be overwritten; use 'append'"),
    ],
)
def test_bad_options_are_refused(
    spark: SparkSession, vhost_url: str, options: dict[str, object], message: str
) -> None:
    assert message in failure(frame(spark), vhost_url, AnalysisException, **options)


@pytest.mark.usefixtures("channel")
@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ("guest:guest@", "guest:secret@", "AccessRefusedError.*check user name, password"),
        (r":\d+/", ":1/", "UnreachableError.*no server answers there .*check host and port"),
        (r"/rabbit_chx-\w+", "/nowhere", "NotFoundError.*vhost nowhere not found"),
        ("guest:guest@", "guest:sec/secret@", "UriError"),
        ("$", "?cacert=x", "UriError.*cacertfile"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_an_error(
    spark: SparkSession, vhost_url: str, pattern: str, replacement: str, message: str
) -> None:
    url = re.sub(pattern, replacement, vhost_url, count=1)
    assert re.search(message, failure(frame(spark), url, AnalysisException))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ["if(id = 700, repeat('k', 256), 'k') AS key", "'v' AS value"],
            "partition 1: row 200: column 'key' is longer than 255 bytes",
        ),
    ],
)
def test_bad_rows_fail_the_job(
    spark: SparkSession, vhost_url: str, consumed: Consumed, columns: list[str], message: str
) -> None:
    df = spark.range(0, 1_000, 1, 2).selectExpr(*columns)
    assert re.search(message, failure(df, vhost_url, PythonException))
    assert len(consumed()) < 1_000


def test_an_unbound_exchange_fails_the_job_with_its_remedy(
    spark: SparkSession, vhost_url: str, channel: BlockingChannel
) -> None:
    unusual: Any = "x-consistent-hash"  # pika's stubs know only the types of the specification
    channel.exchange_declare("unbound", unusual)
    line = failure(frame(spark), vhost_url, PythonException, exchange="unbound")
    assert re.search(r"'unbound': no queue took \d+ of the messages .* bind queues to the exchange", line)


def test_a_failed_write_leaves_a_report_next_to_the_earlier_one(
    spark: SparkSession, vhost_url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    write(frame(spark, rows=10), vhost_url, reportPath=path)
    assert json.loads(path.read_text())["confirmed"] == 10
    for queue in ("q1", "q2", "q3"):
        channel.queue_delete(queue)
    rows = frame(spark, rows=100, partitions=3).where(
        "key = 'key 99'"
    )  # the other tasks have nothing to publish
    assert "no queue took" in failure(rows, vhost_url, PythonException, reportPath=path)
    report = json.loads(path.read_text())
    assert report["failed"]
    assert report["unfinished"] + len(report["tasks"]) == 3
    assert report["unfinished"] >= 1
    assert report["confirmed"] == 0
    assert json.loads((tmp_path / "report.json.previous").read_text())["confirmed"] == 10

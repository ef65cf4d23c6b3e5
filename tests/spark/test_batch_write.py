"""`df.write.format("rabbitmq")` with a real Spark and a real broker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

import spark_connector
from rabbit_chx.routing import HashRing

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

Frame = Callable[..., DataFrame]
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])


def write(df: DataFrame, url: str, *, mode: str = "append", **options: object) -> None:
    text = {"url": url, "exchange": "x", **{name: str(value) for name, value in options.items()}}
    df.write.format("rabbitmq").options(**text).mode(mode).save()


@pytest.mark.core
def test_every_row_is_in_the_predicted_queue(
    frame: Frame, vhost_url: str, consumed: Consumed, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    write(frame(25_000, 3), vhost_url, ring=RING.to_json(), reportPath=path)
    messages = consumed()
    assert sorted(m.body for m in messages) == sorted(b"body %d" % i for i in range(25_000))
    assert all(RING.destination_for(m.key) == m.queue for m in messages)
    assert all(m.key.split()[1] == m.body.decode().split()[1] for m in messages)
    report = json.loads(path.read_text())
    assert (report["confirmed"], report["ring_provenance"]) == (25_000, "replayed")
    assert report["predicted"] == Counter(m.queue for m in messages)
    assert [task["partition"] for task in report["tasks"]] == [0, 1, 2]
    assert sum(task["rows"] for task in report["tasks"]) == 25_000


def test_rows_go_to_a_queue_by_the_default_exchange(
    frame: Frame, vhost_url: str, channel: BlockingChannel
) -> None:
    channel.queue_declare("one queue/ö", durable=True)
    report = spark_connector.publish(
        frame(rows=2_000).select("value"), {"url": vhost_url, "queue": "one queue/ö"}
    )
    assert (report.confirmed, report.queue, report.exchange) == (2_000, "one queue/ö", "")
    assert "to queue 'one queue/ö'" in str(report)
    bodies: set[object] = set(iter(lambda: channel.basic_get("one queue/ö", auto_ack=True)[2], None))
    assert bodies == {b"body %d" % i for i in range(2_000)}


@pytest.mark.parametrize("large", ["true", "false"])
def test_columns_become_message_properties(
    spark: SparkSession,
    vhost_url: str,
    consumed: Consumed,
    configure: Callable[[str, str], None],
    large: str,
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
    configure("spark.sql.execution.arrow.useLargeVarTypes", large)
    configure("spark.sql.session.timeZone", "America/New_York")
    write(df, vhost_url, messageId="column")
    (message,) = consumed()
    sent = message.properties
    assert message.body == b"body"
    assert (sent.headers, sent.message_id, sent.timestamp) == ({"h": "ü", "n": None}, "m", 1_356_998_401)
    assert (sent.priority, sent.delivery_mode) == (9, 1)


def failure(df: DataFrame, url: str, kind: type[PySparkException], **options: object) -> str:
    """Return the line of the error with the cause; it shows no password."""
    with pytest.raises(kind) as caught:
        write(df, url, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "secret" not in text
    assert "guest:guest" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("rabbit_chx.errors."))
    return line


@pytest.mark.usefixtures("channel")
def test_what_cannot_be_written_is_refused_by_the_driver(frame: Frame, vhost_url: str) -> None:
    wrong = vhost_url.replace("guest:guest@", "guest:secret@")
    nowhere = re.sub(r"/rabbit_chx-\w+", "/nowhere", vhost_url)
    for url, options, message in (
        (vhost_url, {"exchange": "nope"}, "exchange 'nope' does not exist: check its name"),
        (vhost_url, {"exchange": "", "queue": "nope"}, "queue 'nope' does not exist: check its name"),
        (vhost_url, {"mode": "overwrite"}, r"mode\('overwrite'\): messages in queues cannot be overwritten"),
        (wrong, {}, "AccessRefusedError.*check user name, password"),
        (nowhere, {}, r"NotFoundError.*vhost nowhere not found"),
    ):
        assert re.search(message, failure(frame(), url, AnalysisException, **options))


def test_a_write_without_a_queue_fails_and_leaves_a_report_next_to_the_earlier_one(
    frame: Frame, vhost_url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    write(frame(rows=10), vhost_url, reportPath=path)
    assert json.loads(path.read_text())["confirmed"] == 10
    for queue in ("q1", "q2", "q3"):
        channel.queue_delete(queue)
    rows = frame(rows=100, partitions=3).where("key = 'key 99'")  # the other tasks have none
    line = failure(rows, vhost_url, PythonException, reportPath=path)
    assert re.search(r"'x': no queue took \d+ of the messages .* bind queues to the exchange", line)
    report = json.loads(path.read_text())
    assert report["failed"]
    assert report["unfinished"] + len(report["tasks"]) == 3
    assert report["unfinished"] >= 1
    assert report["confirmed"] == 0
    assert json.loads((tmp_path / "report.json.previous").read_text())["confirmed"] == 10

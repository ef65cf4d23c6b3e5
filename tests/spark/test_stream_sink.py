"""Writes into the streams of a real broker: what is in them after repeats, and what is refused before it is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from copied_rows import copy_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from stream_sink_jobs import PLACING, STREAMS, expected, found, frame, load_into, orders_in

import spark_connector
from rabbit_chx import Publisher, Topology
from rabbit_chx.broker import Broker, DiagnosticsRing, pika_parameters
from rabbit_chx.errors import InputError, NotFoundError, PublishError, RowError
from rabbit_chx.routing import ModulusHashExchange
from rabbit_chx.streams import StreamPublisher, references
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, skip_unless_ci
from rabbit_chx.topology import plan
from spark_connector import batch_publisher, dry_run, place_for_streams, publish
from spark_connector.writing.stream_layout import StreamLayout

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.chx_broker(">=3.13")]

ROWS = 30_000


@pytest.fixture
def url(vhost: RunningBroker) -> str:
    """The stream URL of a vhost with the super stream `orders`."""
    return orders_in(vhost)


@pytest.fixture
def options(url: str) -> dict[str, Any]:
    return load_into(url)


def placed(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return place_for_streams(frame(spark, rows), PLACING)


def name_of(frame: DataFrame, app_id: str = "load") -> str:
    return StreamLayout.of(PLACING, frame.schema).name(app_id)


@pytest.mark.core
def test_each_row_is_stored_once(spark: SparkSession, url: str, options: dict[str, object]) -> None:
    report = publish(placed(spark), options)
    assert found(url) == expected(ROWS)
    assert report.streams is not None
    assert (report.rows, report.confirmed, report.streams.verified) == (ROWS, ROWS, ROWS)
    assert report.streams.rows == Counter(stream for stream, *_ in expected(ROWS))
    assert (report.streams.known, report.exchange, report.notes) == (0, "orders", ())
    again = publish(placed(spark), options)
    streams = again.streams
    assert streams is not None
    assert (streams.known, streams.verified, streams.lost, streams.doubled) == (ROWS, ROWS, 0, 0)
    assert "known" in str(again)
    assert found(url) == expected(ROWS)


@pytest.mark.parametrize("copies", [1, 500])
def test_rows_that_an_amqp_client_has_copied_are_not_stored_again(
    spark: SparkSession, vhost: RunningBroker, url: str, options: dict[str, object], copies: int
) -> None:
    options["verify"] = "tail"
    publish(placed(spark, 3_000), options)
    copy_rows(vhost.url, STREAMS[0], copies, offset=20)
    again = publish(placed(spark, 3_000), options)
    assert again.streams is not None
    assert (again.streams.known, again.streams.repaired, again.notes) == (3_000, 0, ())
    stored = found(url)
    assert len(stored) == 3_000 + copies
    assert sorted(set(stored)) == expected(3_000)


@pytest.mark.slow
def test_the_format_writes_each_row_once_when_it_is_repeated(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    spark_connector.register(spark)
    path = tmp_path / "report.json"
    texts = {name: str(value) for name, value in options.items()}
    for _ in range(2):
        placed(spark).write.format("rabbitmq").options(**texts, reportPath=str(path)).mode("append").save()
    assert found(url) == expected(ROWS)
    assert json.loads(path.read_text())["streams"] == {
        "rows": Counter(stream for stream, *_ in expected(ROWS)),
        "known": ROWS, "repaired": 0, "verified": ROWS, "lost": 0, "doubled": 0, "changed": 0, "unverified": 0, "differences": [],
    }  # fmt: skip


@pytest.mark.slow
def test_a_lower_version_is_refused_or_skipped(
    spark: SparkSession, url: str, options: dict[str, object]
) -> None:
    publish(placed(spark), {**options, "version": 2})
    with pytest.raises(InputError, match=r"has rows of version 2 already, .* version 1"):
        publish(placed(spark), options)
    with pytest.raises(InputError, match=r"partition \d: .* version 2"):  # by the tasks
        publish(placed(spark), {**options, "preflight": False})
    report = publish(placed(spark), {**options, "onStaleVersion": "skip"})
    assert (report.rows, report.skipped, report.confirmed) == (ROWS, ROWS, 0)
    assert any(
        "has rows of version 2 already: nothing of version 1 is written" in note for note in report.notes
    )
    assert found(url) == expected(ROWS)
    later = publish(placed(spark), {**options, "version": 3}).streams
    assert later is not None
    assert (later.known, later.verified) == (0, ROWS)
    assert Counter(found(url)) == Counter(expected(ROWS) * 2)


def test_rows_are_ordered_by_a_column(spark: SparkSession, url: str, options: dict[str, object]) -> None:
    """The bodies are numbers: each stream has them in ascending order, and a repeat stores nothing again."""
    rows = frame(spark, 3_000).withColumn("at", F.regexp_extract("value", "[0-9]+", 0).cast("int"))
    ordered, options = place_for_streams(rows, PLACING, order_by="at"), {**options, "orderBy": "at"}
    for known in (0, 3_000):
        report = publish(ordered, options)
        assert report.streams is not None
        assert report.streams.known == known
    rows_found = found(url)
    assert sorted(rows_found) == expected(3_000)
    for stream in STREAMS:
        numbers = [int(value.rstrip(b".")) for where, _, value in rows_found if where == stream]
        assert numbers == sorted(numbers)
    with pytest.raises(InputError, match=r"by at, key and value, .* with order_by='at'"):
        publish(place_for_streams(rows, PLACING), {**options, "version": 2})


def test_rows_that_are_not_placed_are_refused(
    spark: SparkSession, url: str, options: dict[str, object]
) -> None:
    with pytest.raises(InputError, match=r"'orders-\d', .* partition 0 .*place_for_streams"):
        publish(frame(spark, ROWS).coalesce(1), options)
    with pytest.raises(InputError, match=r"in the same order: .*place_for_streams"):
        publish(placed(spark).sortWithinPartitions(F.rand(7)), options)
    assert found(url) == []


@pytest.mark.slow
def test_a_repeat_with_other_rows_is_refused(
    spark: SparkSession, url: str, options: dict[str, object]
) -> None:
    publish(placed(spark), options)
    with pytest.raises(PublishError, match="the rows differ from the earlier run"):
        publish(placed(spark).withColumn("value", F.concat("value", F.lit("!"))), options)
    with pytest.raises(Exception, match=r"version 1 of .*, and this run gives \d,\d{3}:"):
        publish(placed(spark).where("value > '1'"), {**options, "verify": "off"})
    with pytest.raises(Exception, match="this run gives 0:"):
        publish(placed(spark).where("value = ''"), options)
    assert found(url) == expected(ROWS)


def test_a_repeat_with_another_body_is_found(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    publish(placed(spark), options)
    body = F.when(F.col("value").startswith("500."), F.concat("value", F.lit("!"))).otherwise(F.col("value"))
    path = tmp_path / "report.json"
    with pytest.raises(
        PublishError, match=r"1 have another key or body\. stream 'orders-\d': row \d.* has another body"
    ):
        publish(placed(spark).withColumn("value", body), {**options, "reportPath": str(path)})
    report = json.loads(path.read_text())
    assert (report["failed"], report["streams"]["changed"], report["streams"]["verified"]) == (
        True,
        1,
        ROWS - 1,
    )
    assert found(url) == expected(ROWS)


@pytest.mark.core
def test_rows_that_are_lost_or_doubled_are_found(
    spark: SparkSession, vhost: RunningBroker, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    """Somebody else uses the name: of a program, the last id alone; of an AMQP publisher, the id of the first row."""
    rows = placed(spark)
    of_last = [row for row in expected(ROWS) if row[0] == "orders-2"]
    with StreamPublisher(url, stream="orders-2", name=name_of(rows)) as publisher:
        publisher.publish_many([of_last[-1][1]], [of_last[-1][2]], ids=[(1 << 32) + len(of_last)])
    path = tmp_path / "report.json"
    with pytest.raises(
        PublishError,
        match=rf"{ROWS - len(of_last) + 1:,} .*, {len(of_last) - 1:,} are lost and 0 ",
    ):
        publish(rows, {**options, "reportPath": str(path)})
    report = json.loads(path.read_text())
    assert (report["failed"], report["streams"]["lost"]) == (True, len(of_last) - 1)

    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        properties = pika.BasicProperties(message_id=f"{name_of(rows)}:{(2 << 32) + 1}")
        connection.channel().basic_publish("", "orders-0", b"doubled", properties)
    with pytest.raises(
        PublishError, match=rf"{ROWS - 1:,} are stored once, 0 are lost and 1 are there more than once"
    ):
        publish(rows, {**options, "version": 2})
    publish(rows, {**options, "version": 3})


def test_bad_rows_are_refused_or_skipped(spark: SparkSession, options: dict[str, object]) -> None:
    with_null = frame(spark, 100).withColumn("key", F.expr("nullif(key, 'key 7')"))
    rows = place_for_streams(with_null, PLACING)
    assert rows.rdd.getNumPartitions() == 4
    with pytest.raises(RowError, match="column 'key' is null"):
        publish(rows, options)
    report = publish(rows, {**options, "version": 2, "badRows": "skip"})
    assert (report.rows, report.skipped, report.confirmed) == (100, 1, 99)
    with pytest.raises(InputError, match="column 'message_id'"):
        publish(frame(spark, 10).withColumn("message_id", F.lit("m")), options)


def test_what_a_batch_must_have(spark: SparkSession, options: dict[str, object]) -> None:
    for name in ("appId", "version"):
        with pytest.raises(InputError, match=f"option '{name}' is missing.* appId"):
            publish(placed(spark, 10), {**options, name: None})
    with pytest.raises(NotFoundError, match="super stream 'nope'"):
        publish(placed(spark, 10), {**options, "superStream": "nope"})
    with pytest.raises(InputError, match="option 'version' is for batch writes"):
        batch_publisher({**options})(placed(spark, 10), 0)
    with pytest.raises(InputError, match="dry_run counts what an exchange would route"):
        dry_run(placed(spark, 10), options)
    with pytest.raises(InputError, match="column 'value' is missing"):
        place_for_streams(frame(spark, 10).drop("value"), PLACING)


def test_at_least_once_takes_rows_in_any_order(spark: SparkSession, url: str) -> None:
    nobody = "rabbitmq-stream://127.0.0.1:1"
    report = publish(frame(spark, ROWS), {"url": f"{nobody},{url}", "superStream": "orders"})
    assert sorted(found(url)) == expected(ROWS)
    assert report.streams is not None
    assert (report.confirmed, report.streams.rows) == (ROWS, Counter(stream for stream, *_ in expected(ROWS)))


@pytest.fixture
def hashed(vhost: RunningBroker) -> RunningBroker:
    """The vhost with the exchange `x`, behind which are streams."""
    if not vhost.ring_via:
        pytest.skip("nothing reads the ring of this broker")
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        for stream in STREAMS:
            connection.create_stream(stream)
    with Broker(vhost.url) as broker:
        broker.declare("x", [(stream, 1) for stream in STREAMS], queue_arguments={"x-queue-type": "stream"})
    return vhost


@pytest.mark.slow
def test_rows_are_written_once_behind_a_modulus_exchange(spark: SparkSession, vhost: RunningBroker) -> None:
    with Broker(vhost.url, vhost.management_url) as broker:  # without a ring source
        if broker.release.numbers < (4, 3, 0):
            pytest.skip("before 4.3 the type needs a plugin")
        streams = Topology.from_toml(
            '[[exchanges]]\nname = "bills"\ntype = "x-modulus-hash"\nqueues = ["bills.{1..10}"]\n'
            '[[queues]]\nname = "bills.{1..10}"\ntype = "stream"\n'
        )
        broker.apply(plan(streams, broker.topology()))
        exchange = broker.exchange("bills")
    assert isinstance(exchange, ModulusHashExchange)
    names = [str(stream) for stream in exchange.destinations]
    options: dict[str, Any] = {"url": vhost.stream_url, "exchange": "bills"}
    once = {"delivery": "exactly-once", "appId": "load", "version": 1, "verify": "full"}
    rows = place_for_streams(frame(spark, ROWS), exchange)
    for known in (0, ROWS):  # the second run repeats the first
        report = publish(rows, {**options, **once}, ring=exchange)
        assert report.streams is not None
        assert (report.confirmed, report.streams.verified, report.streams.known) == (ROWS, ROWS, known)
    written = found(vhost.stream_url, names)
    assert len(written) == ROWS
    keys = {key for _, key, _ in written}
    with Publisher(vhost.url, "bills") as publisher:  # the broker routes
        publisher.publish_many(sorted(keys), ["routed"] * len(keys))
    routed = {key: stream for stream, key, value in found(vhost.stream_url, names) if value == b"routed"}
    assert {(key, stream) for stream, key, _ in written} == set(routed.items())

    key = min(keys)
    spark_connector.register(spark)
    replayed = spark_connector.replay(spark, options, key, "2020-01-01T00:00:00Z", ring=exchange)
    assert replayed.rdd.getNumPartitions() == 1
    assert replayed.count() == sum(stored == key for _, stored, _ in written) + 1
    twice = ModulusHashExchange("bills", [("s", "1"), ("s", "2")], None, "read")
    with pytest.raises(InputError, match="stream 's' is bound 2 times"):
        publish(frame(spark, 10), {**options, **once}, ring=twice)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_are_written_once_behind_a_hash_exchange(
    spark: SparkSession, hashed: RunningBroker, delivery: str
) -> None:
    with Broker(hashed.url, ring_source=DiagnosticsRing(list(hashed.ring_via or ()))) as broker:
        ring = broker.ring("x")
    options: Mapping[str, Any] = {
        "url": hashed.stream_url, "exchange": "x", "ringVia": " ".join(hashed.ring_via or ()), "delivery": delivery,
    }  # fmt: skip
    once = {"appId": "load", "version": 1, "verify": "full"} if delivery == "exactly-once" else {}
    report = publish(place_for_streams(frame(spark, ROWS), ring), {**options, **once})
    rows = found(hashed.stream_url)
    assert sorted(row[1:] for row in rows) == sorted(row[1:] for row in expected(ROWS))
    assert all(ring.destination_for(key) == stream for stream, key, _ in rows)
    assert report.streams is not None
    assert report.streams.rows == Counter(stream for stream, *_ in rows)
    guessed = ring.with_release(ring.release).to_json()
    with pytest.raises(InputError, match=r"the ring is assumed .*: pass ringVia"):
        publish(frame(spark, 10), {**options, **once, "ringVia": None, "ring": guessed})


@pytest.mark.slow
@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
def test_a_repeated_micro_batch_is_known(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    """Each micro-batch is a version. One that is repeated, since its number is not in the checkpoint, is known."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        lines = (f"{n}\n" for n in range(number * 10_000, (number + 1) * 10_000))
        (source / f"{number}.txt").write_text("".join(lines))
    ids = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    rows = place_for_streams(
        ids.selectExpr("concat('key ', value % 977) AS key", "concat(value, repeat('.', 60)) AS value"),
        PLACING,
    )
    spark_connector.register(spark)
    texts = {name: str(value) for name, value in options.items() if name not in ("appId", "version")}
    reports = tmp_path / "reports"

    def run() -> None:
        writer = rows.writeStream.format("rabbitmq").options(**texts, reportPath=str(reports))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()
    run()
    assert Counter(found(url)) == Counter(expected(ROWS))
    last = json.loads((reports / "batch-2.json").read_text())
    assert (last["streams"]["known"], last["streams"]["verified"]) == (10_000, 10_000)


def test_for_each_batch_writes_each_row_once(
    spark: SparkSession, url: str, options: dict[str, object], tmp_path: Path
) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1_000).load()
    rows = place_for_streams(
        source.selectExpr("concat('key ', value % 977) AS key", "string(value) AS value"), PLACING
    )
    reports: list[Any] = []
    publish_batch = batch_publisher({**options, "version": None}, on_report=reports.append)
    query = (
        rows.writeStream.foreachBatch(publish_batch).option("checkpointLocation", str(tmp_path / "c")).start()
    )
    while len(reports) < 2 and query.isActive:
        query.awaitTermination(1)
    query.stop()
    values = [int(value) for _, _, value in found(url)]
    assert len(set(values)) == len(values)
    # Of the batch that ran when the query was stopped, a part may be there.
    assert set(range(2_000)) <= set(values)
    assert [report.streams.verified for report in reports[:2]] == [1_000, 1_000]


def test_the_names_are_counted_before_the_write(
    spark: SparkSession, vhost: RunningBroker, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered: a stream with 250 names takes long to make."""
    if not vhost.owned:
        skip_unless_ci("it enables a plugin, so it needs a broker that the tests started")
    vhost.run("rabbitmq-plugins", "enable", "rabbitmq_stream_management")
    counted = {**options, "managementUrl": vhost.management_url}
    publish(placed(spark, 100), counted)
    publish(placed(spark, 100), {**counted, "appId": "another"})
    monkeypatch.setattr(references, "_TOO_MANY", 2)
    publish(placed(spark, 100), {**counted, "version": 2})
    with pytest.raises(InputError, match=r"stream 'orders-\d' remembers 3 publishers with 'third/"):
        publish(placed(spark, 100), {**counted, "appId": "third"})

"""Writes into the streams of a real broker: what is in them after repeats, and what is refused before it is sent."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from bounded import Beside, until
from copied_rows import copy_rows
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from stream_site import each_form
from super_streams import declare_super_stream

import spark_connector
from rabbit_chx import Publisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, DiagnosticsRing, pika_parameters
from rabbit_chx.errors import InputError, MismatchError, PublishError, RowError
from rabbit_chx.routing import ModulusHashExchange, SuperStream
from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan
from rabbit_chx.topology.objects import RECORD_PREFIX
from spark_connector import batch_publisher, place_for_streams, publish
from spark_connector.writing.stream_layout import StreamLayout

pytestmark = [pytest.mark.spark, pytest.mark.broker]

STREAMS = ("orders-0", "orders-1", "orders-2")
PLACING = SuperStream(STREAMS)
ROWS = 30_000


@pytest.fixture
def url(vhost: RunningBroker) -> str:
    """The stream URL of a vhost with the super stream `orders`."""
    declare_super_stream(vhost.url, "orders", dict(zip("012", STREAMS, strict=True)))
    return vhost.stream_url


@pytest.fixture
def options(url: str) -> dict[str, Any]:
    """Of a write into it, exactly once, that is read back."""
    once = {"delivery": "exactly-once", "appId": "load", "version": 1, "verify": "full"}
    return {"url": url, "superStream": "orders", **once}


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Rows in no order."""
    numbers = spark.range(0, rows, 1, 4)
    return numbers.selectExpr("concat('key ', id % 977) AS key", "concat(id, repeat('.', 60)) AS value")


def expected(rows: int) -> list[tuple[str, bytes, bytes]]:
    """What is stored if each row of `frame` is there once: stream, key and value, sorted."""
    pairs = [(b"key %d" % (number % 977), b"%d" % number + b"." * 60) for number in range(rows)]
    return sorted((str(PLACING.partition_for(key)), key, value) for key, value in pairs)


def found(url: str, streams: Iterable[str] = STREAMS) -> list[tuple[str, bytes, bytes]]:
    """Every row of every stream, in the order of the stream."""
    rows: list[Any] = []
    for stream in streams:
        with StreamReader(url, stream) as reader:
            for batch in reader:
                keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
                rows += zip([stream] * len(batch), keys, values, strict=True)
    return rows


def placed(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return place_for_streams(frame(spark, rows), PLACING)


def name_of(frame: DataFrame, app_id: str = "load") -> str:
    return StreamLayout.of(PLACING, frame.schema).name(app_id)


@pytest.mark.core
def test_each_row_is_stored_once(spark: SparkSession, url: str, options: dict[str, object]) -> None:
    of_streams = Counter(stream for stream, *_ in expected(ROWS))
    for known in (0, ROWS):
        report = publish(placed(spark), options)
        assert found(url) == expected(ROWS)
        streams = report.streams
        assert streams is not None
        assert (report.rows, report.confirmed, report.exchange, report.notes) == (ROWS, ROWS, "orders", ())
        assert (streams.rows, streams.known, report.published) == (of_streams, known, ROWS - known)
        assert (streams.verified, streams.lost, streams.doubled) == (ROWS, 0, 0)
    assert "known" in str(report)
    assert "to super stream 'orders', " in str(report)
    assert report.placed_streams == len(STREAMS)
    assert publish(placed(spark), {**options, "version": 2}).confirmed == ROWS
    with pytest.raises(MismatchError, match="this run gives 0:"):
        publish(placed(spark).where("value = ''"), {**options, "version": 2})
    with pytest.raises(InputError, match=r"has rows of version 2 already, .* version 1"):
        publish(placed(spark), options)


def test_each_row_is_stored_once_in_sub_entries(
    spark: SparkSession, url: str, options: dict[str, Any]
) -> None:
    options |= {"subEntryRows": 100, "compression": "lz4"}
    for known in (0, ROWS):
        report = publish(placed(spark), options)
        assert found(url) == expected(ROWS)
        assert report.streams is not None
        assert (report.streams.known, report.streams.verified) == (known, ROWS)
    for other in {"subEntryRows": 50}, {"compression": "gzip"}, {"subEntryRows": None, "compression": None}:
        with pytest.raises(
            InputError, match="with subEntryRows 100 and compression lz4, and subEntryRows is now"
        ):
            publish(placed(spark), options | other)
    assert found(url) == expected(ROWS)
    assert publish(placed(spark), options | {"version": 2, "subEntryRows": 50}).confirmed == ROWS


def test_rows_that_are_bad_or_not_placed_are_refused(
    spark: SparkSession, url: str, options: dict[str, object]
) -> None:
    with pytest.raises(InputError, match=r"'orders-\d', .* partition 0 .*place_for_streams"):
        publish(frame(spark, ROWS).coalesce(1), options)
    with pytest.raises(InputError, match=r"in the same order: .*place_for_streams"):
        publish(placed(spark).sortWithinPartitions(F.rand(7)), options)
    assert found(url) == []
    with_null = frame(spark, 100).withColumn("key", F.expr("nullif(key, 'key 7')"))
    rows = place_for_streams(with_null, PLACING)
    assert rows.rdd.getNumPartitions() == 4
    with pytest.raises(RowError, match="column 'key' is null"):
        publish(rows, options)
    report = publish(rows, {**options, "version": 2, "badRows": "skip"})
    assert (report.rows, report.skipped, report.confirmed) == (100, 1, 99)


def test_rows_that_an_amqp_client_has_copied_are_not_stored_again(
    spark: SparkSession, vhost: RunningBroker, url: str, options: dict[str, object]
) -> None:
    options["verify"] = "tail"
    publish(placed(spark, 3_000), options)
    copy_rows(vhost.url, STREAMS[0], 500, offset=20)
    again = publish(placed(spark, 3_000), options)
    assert again.streams is not None
    assert (again.streams.known, again.streams.repaired, again.notes) == (3_000, 0, ())
    stored = found(url)
    assert len(stored) == 3_500
    assert sorted(set(stored)) == expected(3_000)


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
    with pytest.raises(InputError, match=r"the order of at, key and value, .* with order_by='at'"):
        publish(place_for_streams(rows, PLACING), {**options, "version": 2})


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


def test_at_least_once_takes_rows_in_any_order(spark: SparkSession, url: str) -> None:
    nobody = "rabbitmq-stream://127.0.0.1:1"
    report = publish(frame(spark, ROWS), {"url": f"{nobody},{url}", "superStream": "orders"})
    assert sorted(found(url)) == expected(ROWS)
    assert report.streams is not None
    assert (report.confirmed, report.streams.rows) == (ROWS, Counter(stream for stream, *_ in expected(ROWS)))


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


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_are_written_once_behind_a_hash_exchange(
    spark: SparkSession, vhost: RunningBroker, delivery: str
) -> None:
    if not vhost.ring_via:
        pytest.skip("nothing reads the ring of this broker")
    with Broker(vhost.url, ring_source=DiagnosticsRing(list(vhost.ring_via))) as broker:
        broker.declare("x", dict.fromkeys(STREAMS, 1), queue_arguments={"x-queue-type": "stream"})
        ring = broker.ring("x")
    options: dict[str, Any] = {
        "url": vhost.stream_url, "exchange": "x", "ringVia": " ".join(vhost.ring_via), "delivery": delivery,
    }  # fmt: skip
    once = {"appId": "load", "version": 1, "verify": "full"} if delivery == "exactly-once" else {}
    report = publish(place_for_streams(frame(spark, ROWS), ring), {**options, **once})
    rows = found(vhost.stream_url)
    assert sorted(row[1:] for row in rows) == sorted(row[1:] for row in expected(ROWS))
    assert all(ring.destination_for(key) == stream for stream, key, _ in rows)
    assert report.streams is not None
    assert report.streams.rows == Counter(stream for stream, *_ in rows)
    replayed = ring.with_release(ring.release).to_json()
    with pytest.raises(InputError, match=r"the ring is replayed.*: pass ringVia"):
        publish(frame(spark, 10), {**options, **once, "ringVia": None, "ring": replayed})


def test_a_recorded_ring_is_read(spark: SparkSession, vhost: RunningBroker) -> None:
    """On Mnesia, the record of a ring of streams may not be certain: then nothing is written, as without a record."""
    with Broker(vhost.url, vhost.management_url) as broker:
        broker.declare("x", dict.fromkeys(STREAMS, 1), queue_arguments={"x-queue-type": "stream"})
        ring, is_on_khepri = broker.ring("x"), broker.release.store == "khepri"
    assert ring.order.is_certain or not is_on_khepri
    amqp = ConnectionSettings.from_uri(vhost.url)
    options = {
        "url": vhost.stream_url, "exchange": "x", "managementUrl": str(vhost.management_url),
        "addresses": json.dumps({f"{amqp.host}:5672": f"{amqp.host}:{amqp.port}"}),
    }  # fmt: skip
    once = {**options, "delivery": "exactly-once", "appId": "load", "version": "1"}
    placed = place_for_streams(frame(spark, ROWS), ring)
    if ring.order.is_certain:
        spark_connector.register(spark)
        placed.write.format("rabbitmq").options(**once).mode("append").save()
        report = publish(placed, once)
        assert report.streams is not None
        assert (report.streams.known, report.published, report.ring_provenance) == (ROWS, 0, "recorded")
        assert all(note.startswith("publisher names were not counted, ") for note in report.notes)
        assert publish(frame(spark, 100), options).confirmed == 100
        rows = found(vhost.stream_url)
        assert len(rows) == ROWS + 100
        assert all(ring.destination_for(key) == stream for stream, key, _ in rows)
        with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
            connection.channel().exchange_delete(f"{RECORD_PREFIX}x")
    for given in options, once:
        with pytest.raises(
            InputError, match=r"the ring is of an unknown order .*: record the ring, or pass ringVia"
        ):
            publish(placed, given)


def test_a_version_is_not_written_again_from_columns_of_other_types(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    text = frame(spark, 100)
    binary = text.withColumn("key", F.col("key").cast("binary"))
    assert publish(place_for_streams(text, PLACING), options).notes == ()
    with pytest.raises(InputError, match="types differ: rows would be stored a second time"):
        publish(place_for_streams(binary, PLACING), options)
    assert len(found(options["url"])) == 100
    assert publish(place_for_streams(binary, PLACING), {**options, "version": 2}).notes == ()


each_way = pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            "format", marks=[pytest.mark.slow, pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")]
        ),
        "foreachBatch",
    ],
)
Start = Callable[[DataFrame, dict[str, Any]], StreamingQuery]


@pytest.fixture
def start(way: str, tmp_path: Path) -> Start:
    """Starts a query, which goes on from the checkpoint of the one before."""

    def begin(rows: DataFrame, options: dict[str, Any]) -> StreamingQuery:
        given = {**options, "version": None, "reportPath": str(tmp_path / "reports")}
        if way == "foreachBatch":
            writer = rows.writeStream.foreachBatch(batch_publisher(given))
        else:
            texts = {
                name: str(value) for name, value in given.items() if value is not None and name != "appId"
            }
            writer = rows.writeStream.format("rabbitmq").options(**texts)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        return writer.start()

    return begin


def add_file(source: Path, number: int) -> None:
    """Add 10,000 rows of `frame`, for a micro-batch."""
    source.mkdir(exist_ok=True)
    lines = (f"{n}\n" for n in range(number * 10_000, (number + 1) * 10_000))
    (source / f"{number}.txt").write_text("".join(lines))


def streamed(spark: SparkSession, source: Path) -> DataFrame:
    """The rows of files, in a micro-batch for each, placed."""
    ids = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    return place_for_streams(
        ids.selectExpr("concat('key ', value % 977) AS key", "concat(value, repeat('.', 60)) AS value"),
        PLACING,
    )


@each_way
def test_a_repeated_micro_batch_is_known(
    spark: SparkSession, url: str, options: dict[str, Any], tmp_path: Path, start: Start
) -> None:
    """Each micro-batch is a version. One that is repeated, since its number is not in the checkpoint, is known."""
    for number in range(3):
        add_file(tmp_path / "in", number)
    rows = streamed(spark, tmp_path / "in")
    start(rows, options).awaitTermination()
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()
    start(rows, options).awaitTermination()
    assert Counter(found(url)) == Counter(expected(ROWS))
    last = json.loads((tmp_path / "reports" / "batch-2.json").read_text())
    assert (last["streams"]["known"], last["streams"]["verified"]) == (10_000, 10_000)


@each_way
def test_a_query_that_has_written_a_part_of_a_micro_batch_goes_on_in_the_same_sub_entries(
    spark: SparkSession, url: str, options: dict[str, Any], tmp_path: Path, start: Start
) -> None:
    """With others it is refused before a row is sent."""
    options |= {"subEntryRows": 100, "compression": "lz4"}
    fails, others_end = tmp_path / "fails", tmp_path / "others end"
    fails.touch()

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # pickled by value
        task: Any = TaskContext.get()
        if fails.exists() and task.partitionId() == 2:
            while not others_end.exists():
                time.sleep(0.05)
            raise RuntimeError("in the midst of a micro-batch")
        yield from batches

    for number in range(2):
        add_file(tmp_path / "in", number)
    placed = streamed(spark, tmp_path / "in")
    rows = placed.mapInArrow(fail, placed.schema)
    broken = start(rows, options)
    part = sum(row[0] != STREAMS[2] for row in expected(10_000))
    try:
        until(
            lambda: broken.exception() or len(found(url)) == part, "two streams have their rows", every_s=0.5
        )
    finally:
        others_end.touch()
    with pytest.raises(StreamingQueryException, match="in the midst of a micro-batch"):
        broken.awaitTermination()
    fails.unlink()
    with pytest.raises(
        StreamingQueryException, match="with subEntryRows 100 and compression lz4, and subEntryRows is now 50"
    ):
        start(rows, options | {"subEntryRows": 50}).awaitTermination()
    assert len(found(url)) == part
    start(rows, options).awaitTermination()
    assert Counter(found(url)) == Counter(expected(20_000))
    report = json.loads((tmp_path / "reports" / "batch-0.json").read_text())
    assert (report["streams"]["known"], report["streams"]["verified"]) == (part, 10_000)


@pytest.mark.slow
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@each_form
def test_the_second_of_two_jobs_at_once_ends_and_no_row_is_doubled(
    spark: SparkSession, url: str, options: dict[str, Any], tmp_path: Path, entries: dict[str, str]
) -> None:
    """The second one begins when a task of the first waits half way. It ends, and the first goes on."""
    # Spark gives 10,000 rows at a time, a task publishes 32,768 or more at once, and each stream has 45,000 or more.
    count, half_way, go_on = 150_000, 40_000, tmp_path / "go on"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # pickled by value
        task: Any = TaskContext.get()
        given = 0
        for batch in batches:
            while task.partitionId() == 0 and given >= half_way and not go_on.exists():
                time.sleep(0.05)
            yield batch
            given += batch.num_rows

    def write(rows: DataFrame) -> None:
        streams = publish(rows, options | entries).streams
        assert streams is not None
        assert streams.verified == count

    rows = placed(spark, count)
    first = Beside(lambda: write(rows.mapInArrow(hold, rows.schema)))
    first.start()
    try:
        until(lambda: len(found(url)) >= half_way // 2, "rows of the first job are stored")
        write(rows)
        assert first.is_alive()
    finally:
        go_on.touch()
    first.finish()
    assert found(url) == expected(count)

"""Versions of a job in real streams: what is known of one that has failed, and what may not differ when it is written again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bounded import Beside, until
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from super_streams import declare_super_stream

import spark_connector
from rabbit_chx import StreamReader, SuperStream
from rabbit_chx.errors import InputError
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher, place_for_streams, publish

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]

STREAMS = ("trips-0", "trips-1")
PLACING = SuperStream(STREAMS)
#: More rows of a stream than a task publishes at once, so that a task which fails at its end has stored some.
ROWS = 260_000
FAILS_AT = 122_000
NOT_ENDED = "version 1 of appId 'load' has begun, and its end is not stored"


@pytest.fixture
def options(vhost: RunningBroker) -> dict[str, Any]:
    """Of a write, exactly once, into the super stream `trips`."""
    declare_super_stream(vhost.url, "trips", dict(zip("01", STREAMS, strict=True)))
    return {
        "url": vhost.stream_url,
        "superStream": "trips",
        "delivery": "exactly-once",
        "appId": "load",
        "version": 1,
    }


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Rows in no order, with a number."""
    numbers = spark.range(0, rows, 1, 4)
    return numbers.selectExpr(
        "concat('key ', id % 977) AS key", "concat('trip ', id) AS value", "id * 7919 % 100003 AS at"
    )


def placed(rows: DataFrame, order_by: str | None = None) -> DataFrame:
    return place_for_streams(rows if order_by else rows.drop("at"), PLACING, order_by=order_by)


def fail(rows: DataFrame, options: dict[str, Any], folder: Path) -> None:
    """Write rows, of which each task raises an error in the middle, when some of them are stored."""
    stored_some = folder / "stored"
    stored_some.unlink(missing_ok=True)

    def raise_in_the_middle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            seen += batch.num_rows
            end = time.monotonic() + 300
            while seen > FAILS_AT and time.monotonic() < end and not stored_some.exists():
                time.sleep(0.05)
            if seen > FAILS_AT:
                raise RuntimeError("an error of a user")
            yield batch

    before = count(options["url"])

    def wait_until_some_are_stored() -> None:
        until(lambda: count(options["url"]) > before, "some rows are stored", 400)
        stored_some.touch()

    beside = Beside(wait_until_some_are_stored)
    beside.start()
    with pytest.raises(Exception, match="an error of a user"):
        publish(rows.mapInArrow(raise_in_the_middle, rows.schema), options)
    beside.finish()


def count(url: str) -> int:
    return sum(stored(url).values())


def stored(url: str, column: str = "value") -> Counter[bytes]:
    """How often each value is stored."""
    found = Counter[bytes]()
    for stream in STREAMS:
        with StreamReader(url, stream, include=[] if column == "value" else [column]) as reader:
            for batch in reader:
                values: list[Any] = batch[column].to_pylist()
                found.update(values)
    return found


def each_once(url: str, rows: int = ROWS) -> bool:
    found = stored(url)
    return len(found) == rows and set(found.values()) == {1}


def test_a_version_that_has_not_ended_is_named_when_the_next_one_begins(
    spark: SparkSession, options: dict[str, Any], tmp_path: Path
) -> None:
    """And a version that was completed is not. What is said of the earlier one afterwards is true."""
    rows = placed(frame(spark))
    fail(rows, options, tmp_path)
    before = len(stored(options["url"]))
    assert 0 < before < ROWS
    report = publish(rows, options)
    assert report.notes == ()
    assert report.streams is not None
    # A task that Spark ends with its job may store some more rows after the error.
    assert before <= report.streams.known < ROWS
    assert publish(rows, options | {"version": 2}).notes == ()

    fail(rows, options | {"appId": "other"}, tmp_path)
    (note,) = publish(rows, options | {"appId": "other", "version": 2}).notes
    assert note.startswith(NOT_ENDED.replace("load", "other"))
    assert "end a failed version before the next one" in note
    words = "onStaleVersion=skip leaves such a stream out; if that version has not ended, only another appId stores its rows"
    with pytest.raises(InputError, match=words):
        publish(rows, options | {"appId": "other"})
    skipped = publish(rows, options | {"appId": "other", "onStaleVersion": "skip"})
    assert skipped.confirmed == 0
    assert all("what an earlier run of it has stored stays" in note for note in skipped.notes)
    assert publish(rows, options | {"appId": "other", "version": 3}).notes == ()


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_rows_are_in_the_order_of_the_column_that_place_for_streams_has_marked(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    """The order is given once. A column that is read back from a file has no mark of an earlier placing."""
    spark_connector.register(spark)
    rows = placed(frame(spark, 3_000), order_by="at")
    assert publish(rows, options).notes == ()
    rows.write.format("rabbitmq").options(**options).mode("append").save()
    assert each_once(options["url"], 3_000)
    numbers = {f"trip {number}".encode(): number * 7919 % 100003 for number in range(3_000)}
    for stream in STREAMS:
        with StreamReader(options["url"], stream) as reader:
            order = [numbers[row["value"]] for batch in reader for row in batch.to_pylist()]
        assert order == sorted(order)
    with pytest.raises(
        InputError, match=r"'orderBy' is 'key', and place_for_streams has sorted the rows by 'at': leave"
    ):
        publish(rows, options | {"version": 2, "orderBy": "key"})
    again = place_for_streams(rows, PLACING)
    report = publish(again, options | {"version": 2, "ignoreUnknownColumns": True})
    assert report.confirmed == 3_000
    unmarked = rows.mapInArrow(
        lambda batches: batches, rows.schema.simpleString().removeprefix("struct<")[:-1].replace(":", " ")
    )
    with pytest.raises(InputError, match="set the option orderBy to it") as refused:
        publish(unmarked, options | {"version": 3, "ignoreUnknownColumns": True})
    assert "trip " not in str(refused.value)
    assert publish(unmarked, options | {"version": 3, "orderBy": "at"}).confirmed == 3_000


def test_a_version_is_not_written_again_with_another_order_filter_or_list_of_streams(
    spark: SparkSession, vhost: RunningBroker, options: dict[str, Any]
) -> None:
    rows = frame(spark, 3_000)
    plain = placed(rows)
    publish(plain, options)
    as_bytes = plain.withColumn("key", F.col("key").cast("binary"))
    others: list[tuple[DataFrame, dict[str, str]]] = [(placed(rows, order_by="at"), {}), (as_bytes, {})]
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        has_filters = not connection.no_filters
    if has_filters:
        others.append((plain, {"filterValueColumn": "key"}))
    for other, more in others:
        with pytest.raises(InputError, match=r"version 1 of appId 'load', .* would be stored a second time"):
            publish(other, {**options, **more, "preflight": False})
    assert each_once(vhost.stream_url, 3_000)
    publish(placed(rows, order_by="at"), options | {"version": 2})
    for version in (1, 2):  # the first one was written without an order
        with pytest.raises(InputError, match="would be stored a second time"):
            publish(placed(rows.drop("at"), order_by="key"), options | {"version": version})
    assert publish(placed(rows, order_by="at"), options | {"version": 2}).published == 0

    declare_super_stream(vhost.url, "trips", {"2": "trips-2"})
    with pytest.raises(InputError, match="would be stored a second time"):
        publish(
            place_for_streams(rows, SuperStream([*STREAMS, "trips-2"]), order_by="at"),
            options | {"version": 2},
        )
    with pytest.raises(
        InputError, match="stores all rows of the write, also those that an earlier run has stored"
    ):
        publish(placed(rows, order_by="at"), options | {"version": 3})


@pytest.mark.chx_broker(">=3.13", "filter values")
def test_rows_that_differ_in_their_filter_value_alone_have_an_order(
    spark: SparkSession, options: dict[str, Any], tmp_path: Path
) -> None:
    """The second attempt has them in another one."""
    options |= {"filterValueColumn": "region"}
    numbers = spark.range(0, ROWS, 1, 4)
    first, second = (
        place_for_streams(
            numbers.selectExpr(
                "'key' AS key", "'trip' AS value", f"if(id % 4 = {residue}, 'east', 'west') AS region"
            ),
            PLACING,
        )
        for residue in (0, 1)
    )
    fail(first, options, tmp_path)
    assert 0 < count(options["url"]) < ROWS
    publish(second, options)
    assert stored(options["url"], "filter_value") == {b"east": ROWS // 4, b"west": ROWS * 3 // 4}


@pytest.mark.parametrize("app_id", ["load", None])
def test_a_second_attempt_of_a_micro_batch_without_rows_is_an_error(
    spark: SparkSession, options: dict[str, Any], tmp_path: Path, app_id: str | None
) -> None:
    """Spark runs no task for it."""
    options |= {"version": None, "appId": app_id}
    frame(spark, 1_000).drop("at").write.parquet(str(tmp_path / "in"))
    write = batch_publisher(options)
    attempts: list[int] = []

    def write_batch(batch: DataFrame, number: int) -> None:
        attempts.append(number)
        if len(attempts) == 2:
            batch = batch.where("value = 'none'")
        write(place_for_streams(batch, PLACING), number)
        if len(attempts) == 1:
            raise RuntimeError("after the first attempt")

    def run() -> None:
        source = spark.readStream.schema("key string, value string").parquet(str(tmp_path / "in"))
        writer = source.writeStream.foreachBatch(write_batch).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="after the first attempt"):
        run()
    assert each_once(options["url"], 1_000)
    with pytest.raises(StreamingQueryException, match=r"has \d+ rows of version 1 .*, and this run gives 0"):
        run()
    run()
    assert (attempts, each_once(options["url"], 1_000)) == ([0, 0, 0], True)


@pytest.mark.extended
@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
def test_a_task_of_a_micro_batch_with_more_rows_than_it_sorts_in_memory_stores_each_once(
    spark: SparkSession, configure: Callable[[str, str], None], options: dict[str, Any], tmp_path: Path
) -> None:
    """It was refused, and its query stuck: the micro-batch is in the checkpoint."""
    spark_connector.register(spark)
    configure("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    options |= {"version": None, "verify": "tail"}
    options = {name: value for name, value in options.items() if value is not None}
    spark.range(0, 6_000, 1, 2).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    # 360 MB for one stream.
    rows = source.selectExpr("'one key' AS key", "concat(reverse(string(id)), repeat('.', 60000)) AS value")
    writer = place_for_streams(rows, PLACING).writeStream.format("rabbitmq").options(**options)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    stream = str(PLACING.partition_for("one key"))
    values: list[bytes] = []
    with StreamReader(options["url"], stream) as reader:
        for batch in reader:
            values += [row["value"].rstrip(b".") for row in batch.select(["value"]).to_pylist()]
    assert len(values) == 6_000
    assert sorted(values) == sorted(str(number)[::-1].encode() for number in range(6_000))
    assert values == sorted(values, key=lambda value: value.ljust(60_010, b"."))

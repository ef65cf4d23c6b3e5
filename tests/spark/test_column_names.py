"""A column's name is data: each entry takes frames whose names have dots, backticks and spaces, as the key and beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from publishing_support import Consumed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from super_streams import declare_super_stream

import spark_connector
from rabbit_chx.routing import HashRing, SuperStream
from rabbit_chx.testing import RunningBroker
from spark_connector import batch_publisher, place, place_for_streams, publish, queue_for

pytestmark = [pytest.mark.spark, pytest.mark.broker]

NAMES = ("user.id", "a`b", "first name", "`key`")
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
STREAMS = ("orders-0", "orders-1", "orders-2")
ROWS = 4


def rows_of(df: DataFrame) -> DataFrame:
    """Rows whose key is in each of the columns."""
    key = F.concat(F.lit("key "), F.col("id"))
    columns = [key.alias(name) for name in NAMES]
    field = F.struct(F.lit("another key").alias("id")).alias("user")  # what `user.id` means without quotes
    return df.select(F.col("id").cast("string").alias("value"), field, *columns)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    spark_connector.register(spark)
    return rows_of(spark.range(0, ROWS, 1, 2))


def by_publish(rows: DataFrame, options: Mapping[str, str], _: Path) -> None:
    assert publish(rows, options).confirmed == ROWS


def by_format(rows: DataFrame, options: Mapping[str, str], _: Path) -> None:
    rows.write.format("rabbitmq").options(**options).mode("append").save()


def as_stream(rows: DataFrame, folder: Path) -> DataFrame:
    """The rows as a streaming frame with the same columns."""
    spark = rows.sparkSession
    source = folder / "in"
    spark.range(0, ROWS, 1, 2).write.mode("append").parquet(str(source))
    return rows_of(spark.readStream.schema("id long").parquet(str(source)))


def by_streaming_format(rows: DataFrame, options: Mapping[str, str], folder: Path) -> None:
    query = as_stream(rows, folder).writeStream.format("rabbitmq").options(**options)
    query.trigger(availableNow=True).start(checkpointLocation=str(folder / "checkpoint")).awaitTermination()


def by_foreach_batch(rows: DataFrame, options: Mapping[str, str], folder: Path) -> None:
    query = as_stream(rows, folder).writeStream.foreachBatch(batch_publisher(options))
    query.trigger(availableNow=True).start(checkpointLocation=str(folder / "checkpoint")).awaitTermination()


@pytest.mark.parametrize(
    "write",
    [
        by_publish,
        by_format,
        pytest.param(by_streaming_format, marks=pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")),
        by_foreach_batch,
    ],
)
def test_each_write_takes_each_name(
    rows: DataFrame,
    options: dict[str, str],
    consumed: Consumed,
    tmp_path: Path,
    write: Callable[[DataFrame, Mapping[str, str], Path], None],
) -> None:
    """As the key, as a property, and beside them."""
    names = dict(zip(("key", "message_id", "type"), NAMES, strict=False))
    write(rows, {**options, "columnNames": json.dumps(names), "ignoreUnknownColumns": "true"}, tmp_path)
    messages = consumed()
    assert {message.body for message in messages} == {str(number).encode() for number in range(ROWS)}
    for message in messages:
        written = {message.key, message.properties.message_id, message.properties.type}
        assert written == {f"key {message.body.decode()}"}


def test_each_name_places_rows(rows: DataFrame) -> None:
    queues = [str(RING.destination_for(f"key {number}")) for number in range(ROWS)]
    predicted = rows.orderBy("value").select([queue_for(name, RING).alias(name) for name in NAMES])
    assert [{*row} for row in predicted.collect()] == [{queue} for queue in queues]
    for name in NAMES:
        placed = place(rows, RING, key=name, order_by=["value", name]).select(F.spark_partition_id(), "value")
        expected = {(int(queue[1:]) - 1, str(number)) for number, queue in enumerate(queues)}
        assert {(partition, value) for partition, value in placed.collect()} == expected


def test_each_name_orders_rows_of_streams(rows: DataFrame, vhost: RunningBroker) -> None:
    declare_super_stream(vhost.url, "orders", dict(zip("012", STREAMS, strict=True)))
    super_stream = SuperStream(STREAMS)
    for name in NAMES:
        frame = rows.withColumn("key", F.lit("one key")).withColumn(name, -F.col("value").cast("int"))
        placed = place_for_streams(frame, super_stream, order_by=name)
        assert [row["value"] for row in placed.collect()] == ["3", "2", "1", "0"]
        assert place_for_streams(rows, super_stream, key=name).columns == rows.columns
        options = {
            "url": vhost.stream_url, "superStream": "orders", "delivery": "exactly-once", "appId": name, "version": 1,
            "orderBy": name, "ignoreUnknownColumns": True,
        }  # fmt: skip
        assert publish(placed, options).confirmed == ROWS

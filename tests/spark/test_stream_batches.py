"""`spark.read.format("rabbitmq")` of streams with a real Spark and a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pika
import pyspark
import pytest
from exchange_types import CHX, FANOUT
from packaging.version import Version
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from streamed import Streamed
from super_streams import create_super_stream

from rabbit_chx import Publisher, StreamPublisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROWS = 3_000

Read = Callable[..., DataFrame]


def filled(vhost: RunningBroker, name: str, rows: int = ROWS, **arguments: str) -> Streamed:
    """A stream with numbered rows."""
    stream = Streamed(vhost, name, {name.replace("_", "-"): text for name, text in arguments.items()})
    bodies = [f"{name} {number}" for number in range(rows)]
    with Publisher(vhost.url, "") as publisher:  # the default exchange
        publisher.publish_many([name] * rows, bodies)
    return stream


def values(frame: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in frame.select("value").collect()]


def numbered(name: str, *numbers: int) -> list[str]:
    return [f"{name} {number}" for number in range(*numbers)]


def test_all_rows_of_a_stream_are_read_in_order(vhost: RunningBroker, read: Read) -> None:
    """Spark plans once for a DataFrame, so each of its actions has the same rows."""
    stream = filled(vhost, "s")
    frame = read(stream="s")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("stream", "string"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
    ]
    rows = frame.collect()
    assert [row.offset for row in rows] == list(range(ROWS))
    assert [bytes(row.value).decode() for row in rows] == numbered("s", ROWS)
    assert {(bytes(row.key), row.stream) for row in rows} == {(b"s", "s")}
    now = datetime.now(UTC).timestamp()
    assert now - 120 < rows[0].timestamp.timestamp() <= now
    stream.publish(["later"])
    if Version(pyspark.__version__) >= Version("4.1"):
        assert frame.count() == ROWS
    assert read(stream="s").count() == ROWS + 1


@pytest.mark.core
def test_a_view_is_read_and_a_table_names_it(spark: SparkSession, vhost: RunningBroker) -> None:
    """To a table Spark passes no options at all."""
    stream = Streamed(vhost, "s", {})
    stream.publish(["a", "b", "c"])
    options = f"OPTIONS (url '{vhost.stream_url}', stream 's')"
    spark.sql(f"CREATE TEMPORARY VIEW orders_view USING rabbitmq {options}")
    try:
        values = spark.sql("SELECT CAST(value AS string) AS value FROM orders_view").collect()
        assert [row.value for row in values] == ["a", "b", "c"]
        spark.sql(f"CREATE TABLE orders_table USING rabbitmq {options}")
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING rabbitmq"):
            spark.sql("SELECT * FROM orders_table").collect()
        spark.sql(
            "CREATE TABLE orders_written (key STRING, value STRING) USING rabbitmq OPTIONS (queue 'orders')"
        )
        with pytest.raises(Exception, match=r"write with df\.write\.format"):
            spark.sql("INSERT INTO orders_written VALUES ('k', 'v')")
        with pytest.raises(Exception, match=r"the path 'orders' .* pass the option 'queue'"):
            spark.table("orders_view").write.format("rabbitmq").mode("append").save("orders")
        spark.catalog.createTable("orders_made", source="rabbitmq", url=vhost.stream_url, stream="s")
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING rabbitmq"):
            spark.table("orders_made").collect()
    finally:
        spark.catalog.dropTempView("orders_view")
        for table in ("orders_table", "orders_made", "orders_written"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_times_bound_a_read_and_further_columns_are_read(vhost: RunningBroker, read: Read) -> None:
    filled(vhost, "s", 10)
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        headers: dict[str, Any] = {"tenant": "t1", "n": 5}
        about = pika.BasicProperties(headers=headers, message_id="m-1", content_type="text/plain")
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("rows", "k", b"with headers", about)
    assert values(read(stream="s", endingTimestamp=between.isoformat())) == numbered("s", 10)
    milliseconds = int(between.timestamp() * 1000)
    frame = read(
        stream="s",
        startingTimestamp=milliseconds,
        include="message_id,properties,exchange",
        includeHeaders="true",
    )
    assert frame.columns[5:] == ["exchange", "message_id", "properties", "headers"]
    (row,) = frame.collect()
    assert (bytes(row.key), bytes(row.value), row.exchange, row.message_id) == (
        b"k",
        b"with headers",
        "rows",
        "m-1",
    )
    assert row.properties["content_type"] == "text/plain"
    assert (row.headers["tenant"], row.headers["n"]) == ("t1", "5")


@pytest.mark.chx_broker(">=3.13", "super streams by protocol")
def test_the_streams_of_a_super_stream_and_of_an_exchange_are_read(vhost: RunningBroker, read: Read) -> None:
    with Streamed(vhost, "s", {}).connection(None) as connection:
        create_super_stream(connection, "orders", ["orders-0", "orders-1"], ["0", "1"])
    keys = [f"key {number % 50}" for number in range(ROWS)]
    with StreamPublisher(vhost.stream_url, super_stream="orders") as publisher:
        publisher.publish_many(keys, numbered("row", ROWS))
    rows = read(superStream="orders").collect()
    assert sorted(bytes(row.value).decode() for row in rows) == sorted(numbered("row", ROWS))
    assert {row.stream for row in rows} == {"orders-0", "orders-1"}

    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("hashed", CHX)
        channel.exchange_declare("slot", FANOUT)
        channel.queue_declare("plain", durable=True)
        channel.queue_bind("plain", "hashed", "1")
        channel.queue_bind("orders-0", "hashed", "1")
        channel.exchange_bind("slot", "hashed", "1")
        channel.queue_bind("orders-1", "slot")
    # Without its own login the management API is asked with that of the broker.
    management_url = f"http://{str(vhost.management_url).rpartition('@')[2]}"
    frame = read(exchange="hashed", managementUrl=management_url)
    assert sorted(values(frame)) == sorted(numbered("row", ROWS))
    with pytest.raises(AnalysisException, match=r"no stream is bound to exchange 'amq\.topic'"):
        read(exchange="amq.topic", managementUrl=management_url).count()


def test_what_cannot_be_read_is_refused_by_the_driver(
    spark: SparkSession, vhost: RunningBroker, read: Read
) -> None:
    filled(vhost, "s", 10)
    for options, says in (
        ({"stream": "s,t"}, "there is no stream 't'"),
        ({"superStream": "t"}, "super stream 't'"),
        ({"stream": "s", "startingOffsets": '{"s": 11}'}, "which ends at offset 10"),
    ):
        with pytest.raises(AnalysisException, match=says):
            read(**options).count()
    reader = spark.read.format("rabbitmq").schema("value string")
    with pytest.raises(AnalysisException, match=r"leave \.schema"):
        reader.options(url=vhost.stream_url, stream="s").load().count()


@pytest.mark.slow
def test_filters_are_refused_on_the_driver_or_read_a_part_of_the_rows(
    spark: SparkSession, vhost: RunningBroker, read: Read
) -> None:
    with Streamed(vhost, "s", {}).connection(None) as connection:
        if connection.no_filters:
            # Spark raises an error of the driver as AnalysisException, and that of a task as another one.
            with pytest.raises(AnalysisException, match=r"does not filter streams: upgrade to 3\.13"):
                read(stream="s", filterValues="r0").count()
            return
        create_super_stream(connection, "orders", ["orders-0", "orders-1"], ["0", "1"])
    rows = spark.range(0, 400, 1, 1).selectExpr(
        "'key 99' AS key", "string(id) AS value", "concat('r', id % 2) AS region"
    )
    target = {"url": vhost.stream_url, "superStream": "orders", "ignoreUnknownColumns": "true"}
    for further in ({"filterValueColumn": "region"}, {"subEntryRows": "50", "compression": "lz4"}):
        rows.write.format("rabbitmq").options(**target, **further).mode("append").save()
    filtered = {"superStream": "orders", "filterValues": "r0"}
    assert sorted(map(int, values(read(**filtered)))) == [*range(0, 400, 2)]
    assert read(**filtered, filterMatchUnfiltered=True).count() == 600
    assert read(superStream="orders").where("key = 'key 99'").count() == 800

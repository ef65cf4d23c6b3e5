"""Looking at an exchange before publishing."""

from __future__ import annotations

import pytest
from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from pyspark.sql import SparkSession

import spark_connector
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import MismatchError, NotFoundError
from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.exchange_check import ExchangeFacts, inspect_exchange
from spark_connector.writing.preflight import check_broker

pytestmark = pytest.mark.broker


def test_an_exchange_is_inspected_without_a_change(channel: BlockingChannel, vhost_url: str) -> None:
    settings = ConnectionSettings.from_uri(vhost_url)
    channel.exchange_declare("hashing", CHX, arguments={"hash-header": "h"}, auto_delete=True)
    channel.exchange_declare("(ä)", CHX, durable=True, arguments={"alternate-exchange": "amq.fanout"})
    plain = ExchangeFacts("x-consistent-hash", alternate_exchange=False)
    assert inspect_exchange(settings, "x") == inspect_exchange(settings, "hashing") == plain
    assert inspect_exchange(settings, "(ä)").alternate_exchange
    with pytest.raises(NotFoundError, match="exchange 'nope' does not exist"):
        inspect_exchange(settings, "nope")
    channel.exchange_declare("other", FANOUT, durable=True, arguments={"alternate-exchange": "amq.topic"})
    assert inspect_exchange(settings, "other") == ExchangeFacts("fanout", alternate_exchange=True)
    assert inspect_exchange(settings, "amq.topic").type == "topic"
    with pytest.raises(NotFoundError):
        inspect_exchange(settings, "nope")  # the look above has not made it


@pytest.mark.parametrize(
    "option", [{"routing": "client"}, {"ringVia": "docker exec x"}, {"ordering": "per-key"}]
)
@pytest.mark.usefixtures("channel")
def test_what_needs_a_hash_exchange_says_so(vhost_url: str, option: dict[str, str]) -> None:
    (name,) = option
    options = WriteOptions.parse({"url": vhost_url, "exchange": "amq.topic", **option})
    with pytest.raises(
        MismatchError, match=f"'amq.topic' is of type topic, and option '{name}' needs x-consistent-hash"
    ):
        check_broker(options)


@pytest.mark.spark
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.parametrize("type_", ["topic", "direct", "fanout"])
def test_a_frame_is_written_to_an_exchange_of_any_type(
    spark: SparkSession, channel: BlockingChannel, vhost_url: str, type_: str
) -> None:
    spark_connector.register(spark)
    channel.exchange_declare("any", ExchangeType(type_), durable=True)
    channel.queue_declare("orders")
    channel.queue_bind("orders", "any", "orders.new")
    rows = spark.range(10).selectExpr("'orders.new' AS key", "string(id) AS value")
    rows.write.format("rabbitmq").options(url=vhost_url, exchange="any").mode("append").save()
    assert channel.queue_declare("orders", passive=True).method.message_count == 10

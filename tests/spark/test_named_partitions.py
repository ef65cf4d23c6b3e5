"""Super streams whose binding keys are names: Spark writes and reads them as AMQP clients do, by binding key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from super_streams import declare_super_stream

from rabbit_chx import SuperStream
from rabbit_chx.errors import InputError
from rabbit_chx.streams import StreamReader
from rabbit_chx.testing import RunningBroker
from spark_connector import place_for_streams, publish

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.chx_broker(">=3.13")]

KEYS = ["apple", "pear", "plum"]
NAMED = [f"fruit-{key}" for key in KEYS]
OTHERS = ["s.0", "s.1", "s.2"]
ROWS = 300
ONCE = {"delivery": "exactly-once", "appId": "load", "version": 1, "verify": "full"}
Declare = Callable[[list[str]], dict[str, Any]]


@pytest.fixture
def declare(vhost: RunningBroker) -> Declare:
    """Declares the super stream `fruit`, with a partition for each key, and returns the options of a write."""

    def make(names: list[str]) -> dict[str, Any]:
        declare_super_stream(vhost.url, "fruit", dict(zip(KEYS, names, strict=True)))
        return {"url": vhost.stream_url, "superStream": "fruit", "routing": "key"}

    return make


def fruits(spark: SparkSession, keys: list[str] = KEYS) -> DataFrame:
    return spark.createDataFrame(
        [(keys[n % len(keys)], f"row {n}") for n in range(ROWS)], "key string, value string"
    )


def keys_in(vhost: RunningBroker, stream: str) -> list[str]:
    with StreamReader(vhost.stream_url, stream) as reader:
        keys: list[Any] = [key for batch in reader for key in batch["key"].to_pylist()]
    return [key.decode() for key in keys]


@pytest.mark.parametrize("names", [NAMED, OTHERS], ids=["named_after_keys", "others"])
def test_rows_are_in_the_partition_that_is_bound_with_their_key(
    spark: SparkSession,
    vhost: RunningBroker,
    declare: Declare,
    names: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = declare(names)
    by_key = SuperStream(names, KEYS, routing="key")
    assert publish(fruits(spark), options).confirmed == ROWS
    assert [keys_in(vhost, name) for name in names] == [[key] * (ROWS // 3) for key in KEYS]
    with pytest.raises(Exception, match=r"no partition is bound with the key b'banana'"):
        publish(fruits(spark, ["banana"]), options)
    if names == OTHERS:  # the protocol does not show the binding keys
        with pytest.raises(InputError, match=r"binding key of partition 's\.0' .* delivery at-least-once"):
            publish(place_for_streams(fruits(spark), by_key), options | ONCE)
        return
    with caplog.at_level(logging.WARNING):
        publish(fruits(spark), options | {"routing": "hash"})
        assert "are names" not in caplog.text
        del options["routing"]
        publish(fruits(spark), options)
    assert "the binding keys of super stream 'fruit' are names" in caplog.text


@pytest.mark.slow
def test_each_row_is_stored_once_in_the_partition_of_its_key(
    spark: SparkSession, vhost: RunningBroker, declare: Declare
) -> None:
    options = declare(NAMED) | ONCE
    by_key = SuperStream(NAMED, KEYS, routing="key")
    for known in (0, ROWS):
        report = publish(place_for_streams(fruits(spark), by_key), options)
        assert report.streams is not None
        assert (report.streams.known, report.streams.verified) == (known, ROWS)
    assert [keys_in(vhost, name) for name in NAMED] == [[key] * (ROWS // 3) for key in KEYS]
    with pytest.raises(InputError, match=r"belongs to 'fruit-\w+', and all rows of partition"):
        publish(place_for_streams(fruits(spark), SuperStream(NAMED)), options | {"version": 2})
    with pytest.raises(InputError, match=r"belongs to no stream|partition 3 has rows"):
        publish(place_for_streams(fruits(spark, ["banana"]), by_key), options | {"version": 3})


@pytest.mark.pyspark("4.1", "filter pushdown")
def test_rows_of_a_key_are_read_from_its_partition(
    spark: SparkSession,
    declare: Declare,
    read: Callable[..., DataFrame],
    configure: Callable[[str, str], None],
) -> None:
    options = declare(NAMED)
    publish(fruits(spark), options)

    def found(condition: str, **more: str) -> DataFrame:
        return read(superStream="fruit", pushFilters="keys", **more).where(condition)

    configure("spark.sql.python.filterPushdown.enabled", "true")
    frame = found("key = 'pear'", routing="key")
    assert (frame.count(), frame.rdd.getNumPartitions()) == (ROWS // 3, 1)
    assert found("key = 'banana'", routing="key").count() == 0
    with pytest.raises(Exception, match="are names"):
        found("key = 'pear'").count()
    assert found("offset < 5").count() == 15

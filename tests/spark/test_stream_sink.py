"""Writes into the streams of a real broker, exactly once: what is in the streams after retries, repeats and faults."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rabbit_chx.routing import SuperStream
from rabbit_chx.streams import StreamReader
from rabbit_chx.streams.connection import StreamConnection, stream_settings
from rabbit_chx.testing import RunningBroker
from spark_connector import place_for_streams, publish

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.chx_broker(">=3.13")]

STREAMS = ("orders-0", "orders-1", "orders-2")
PLACING = SuperStream(STREAMS)
ROWS = 30_000


@pytest.fixture
def url(vhost: RunningBroker) -> str:
    """The stream URL of a vhost with the super stream `orders`."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_super_stream("orders", STREAMS, ["0", "1", "2"])
    return vhost.stream_url


@pytest.fixture
def options(url: str) -> dict[str, object]:
    return {
        "url": url,
        "superStream": "orders",
        "delivery": "exactly-once",
        "appId": "load",
        "version": 1,
        "verify": "full",
    }


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(
        "concat('key ', id % 977) AS key", "concat(id, repeat('.', 60)) AS value"
    )


def found(url: str) -> list[tuple[str, bytes, bytes]]:
    """Every row of every stream, in its order."""
    rows: list[Any] = []
    for stream in STREAMS:
        with StreamReader(url, stream) as reader:
            for batch in reader:
                rows += zip(
                    [stream] * len(batch), batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True
                )
    return rows


def expected(rows: int = ROWS) -> list[tuple[str, bytes, bytes]]:
    """What is stored once of `frame`: each key in its stream, sorted."""
    all_rows = [(b"key %d" % (n % 977), b"%d" % n + b"." * 60) for n in range(rows)]
    return sorted((PLACING.partition_for(key), key, value) for key, value in all_rows)


def test_each_row_is_stored_once(spark: SparkSession, url: str, options: dict[str, object]) -> None:
    report = publish(place_for_streams(frame(spark), PLACING), options)
    assert found(url) == expected()
    assert report.streams is not None
    assert (report.rows, report.confirmed, report.streams.verified) == (ROWS, ROWS, ROWS)
    assert report.streams.rows == Counter(stream for stream, *_ in expected())
    again = publish(place_for_streams(frame(spark), PLACING), options).streams
    assert again is not None
    assert (again.known, again.verified, again.lost, again.doubled) == (ROWS, ROWS, 0, 0)
    assert found(url) == expected()

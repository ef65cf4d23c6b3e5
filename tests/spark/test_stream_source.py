"""`spark.readStream.format("rabbitmq")` with a real Spark and a real broker: each row comes once, over all restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stream_queries
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from spark_driver import SparkDriver
from stream_queries import Rows, batches, values, wait_until
from streamed import Streamed
from super_streams import create_super_stream

import spark_connector
from rabbit_chx.testing import RunningBroker, skip_unless_ci

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.2", "a bound of micro-batches"),
    pytest.mark.chx_broker(">=3.9", "streams"),
]

Run = Callable[..., list[Rows]]


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    """An empty stream."""
    return Streamed(vhost, "s", {})


@pytest.fixture
def run(spark: SparkSession, vhost: RunningBroker, tmp_path: Path) -> Run:
    """Runs a query on one checkpoint until it has all that is there, and returns the rows of all micro-batches so far."""
    spark_connector.register(spark)

    def run(
        before: Callable[[int], None] | None = None, behind: list[Any] | None = None, **options: object
    ) -> list[Rows]:
        texts = {"url": vhost.stream_url, "stream": "s", "startingOffsets": "earliest"}
        texts |= {name: str(value) for name, value in options.items()}
        for attempt in range(3):
            query = stream_queries.start(spark, str(tmp_path), texts, available_now=True, before=before)
            try:
                assert query.awaitTermination(120), "AvailableNow does not end"
                break
            except StreamingQueryException as error:
                if attempt == 2 or not stream_queries.python_came_late(error):
                    raise
            finally:
                query.stop()
        if behind is not None:
            behind += map(spark_connector.offsets_behind_latest, query.recentProgress)
        return batches(tmp_path)

    return run


def numbered(*numbers: int) -> list[str]:
    return [f"row {number}" for number in range(*numbers)]


@pytest.mark.core
def test_a_query_goes_on_where_it_ended_and_an_idle_stream_makes_no_batches(
    stream: Streamed, run: Run, tmp_path: Path
) -> None:
    stream.publish(numbered(1_000))
    first = run()
    assert [len(rows) for rows in first] == [0, 1_000]  # the first one notes where the query begins
    assert values(first) == numbered(1_000)
    *_, offsets = (tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()
    assert json.loads(offsets)["streams"]["s"]["next"] == 1_000  # people can read it
    assert run() == first
    stream.store_offsets()  # they take offsets, and are no rows
    assert run() == first
    stream.publish(numbered(1_000, 1_500))
    assert values(run()) == numbered(1_500)


@pytest.mark.slow
def test_micro_batches_keep_to_their_bounds(stream: Streamed, run: Run, vhost: RunningBroker) -> None:
    stream.publish(numbered(2_000))
    Streamed(vhost, "t", {}).publish(numbered(2_000, 3_000))  # to both streams, as both are bound
    behind: list[Any] = []
    found = run(behind=behind, stream="s,t", maxOffsetsPerTrigger=1_500, minPartitions=4)
    assert [len(rows) for rows in found] == [0, 1_500, 1_500, 1_000]
    assert [sum(each["byStream"].values()) for each in behind if each][-3:] == [2_500, 1_000, 0]
    for name, expected in (("s", numbered(3_000)), ("t", numbered(2_000, 3_000))):
        rows = [value for batch in found for stream_, _, value in batch if stream_ == name]
        assert sorted(rows) == sorted(expected)
    assert {stream_ for stream_, _, _ in found[1]} == {"s", "t"}
    stream.publish(["x" * 1_000] * 100)
    more = run(stream="s,t", maxBytesPerTrigger="20k")[len(found) :]
    assert sum(len(rows) for rows in more) == 200
    assert max(len(rows) for rows in more) < 50


@pytest.mark.slow
def test_a_query_that_fails_at_any_point_and_is_started_again(stream: Streamed, run: Run) -> None:
    stream.publish(numbered(1_000))
    options = {"maxOffsetsPerTrigger": 400, "startingOffsets": '{"s": 100}'}

    for batch in range(4):

        def fail(number: int, batch: int = batch) -> None:
            if number == batch:
                raise RuntimeError(f"in batch {number}")

        with pytest.raises(StreamingQueryException, match=f"in batch {batch}"):
            run(fail, **options)
        stream.publish([f"later {batch}"])
    found = run(**options)
    assert values(found) == numbered(100, 1_000) + [f"later {batch}" for batch in range(4)]
    assert [len(rows) for rows in found[:3]] == [0, 400, 400]


@pytest.mark.slow
def test_a_driver_that_is_killed_in_the_first_batch(
    stream: Streamed, run: Run, vhost: RunningBroker, tmp_path: Path
) -> None:
    """`latest` is then the place that it was when the query began, not when it was started again."""
    stream.publish(["before the query"])
    options = {"url": vhost.stream_url, "stream": "s", "startingOffsets": "latest"}
    driver = SparkDriver(tmp_path / "driver", "local[1]")
    try:
        driver.begin(stream_queries.hang_in, folder=str(tmp_path), options=options, batch=0)
        wait_until((tmp_path / "hangs").exists, "the first batch does not begin")
        assert (tmp_path / "checkpoint" / "offsets" / "0").exists()
        assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    finally:
        driver.kill()
    stream.publish(numbered(100))
    assert values(run(startingOffsets="latest")) == numbered(100)


@pytest.mark.slow
@pytest.mark.chx_broker(">=3.13", "super streams by protocol")
def test_a_query_that_goes_on(
    spark: SparkSession, stream: Streamed, vhost: RunningBroker, broker: RunningBroker, tmp_path: Path
) -> None:
    """It is idle for a while, its super stream grows, and its broker is killed."""
    if not broker.owned:
        skip_unless_ci("it kills the broker, so it needs one that the tests started")
    with stream.connection(None) as connection:
        create_super_stream(connection, "orders", ["orders-0"], ["0"])
        connection.create_stream("orders-1", {})
    stream.bind("orders-0", "rows", "", {})
    spark_connector.register(spark)
    options = {"url": vhost.stream_url, "superStream": "orders", "startingOffsets": "earliest"}
    query = stream_queries.start(spark, str(tmp_path), options, available_now=False)

    def has(rows: int) -> Callable[[], bool]:
        return lambda: query.exception() is not None or len(values(batches(tmp_path))) >= rows

    try:
        stream.publish(numbered(100))
        wait_until(has(100), "the rows do not come")
        count = len(batches(tmp_path))
        time.sleep(3)
        assert len(batches(tmp_path)) == count  # no more micro-batches of an idle stream

        stream.bind("orders-1", "orders", "1", {"x-stream-partition-order": 1})
        stream.bind("orders-1", "rows", "", {})
        stream.publish(numbered(100, 200))  # to both streams
        wait_until(has(300), "the rows of the new stream do not come")

        broker.kill()
        time.sleep(2)
        broker.start()
        stream.publish(numbered(200, 300))
        wait_until(has(500), "the rows behind the kill do not come")
        assert query.exception() is None
    finally:
        query.stop()
    rows = [row for batch in batches(tmp_path) for row in batch]
    assert [value for name, _, value in rows if name == "orders-0"] == numbered(300)
    assert [value for name, _, value in rows if name == "orders-1"] == numbered(100, 300)


@pytest.mark.slow
def test_rows_that_are_lost_fail_the_query(stream: Streamed, run: Run) -> None:
    stream.publish(numbered(100))
    run()
    stream.make_again()
    stream.publish(numbered(1_000))
    with pytest.raises(StreamingQueryException, match="the log of stream 's' has been rewritten"):
        run()
    found = run(failOnDataLoss="false")
    assert values(found) == numbered(100) + numbered(100, 1_000)
    stream.make_again()
    with pytest.raises(StreamingQueryException, match="was read up to offset 1000, and it ends at offset 0"):
        run()

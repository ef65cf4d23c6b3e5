"""`spark.readStream.format("rabbitmq")` with a real Spark and a real broker: each row comes once, over all restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from broker_faults import faults_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from streamed import Streamed
from super_streams import create_super_stream

import spark_connector
from rabbit_chx.testing import RunningBroker, skip_unless_ci

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.2", "a bound of micro-batches"),
]

Rows = list[tuple[str, int, str]]
Run = Callable[..., list[Rows]]


def start(
    spark: SparkSession, folder: Path, options: dict[str, str], before: Callable[[int], None], **trigger: Any
) -> StreamingQuery:
    """Start a query that writes each micro-batch into a file, in place of what it wrote there before.

    Args:
        spark: the session.
        folder: it gets the checkpoint, and a file for each micro-batch.
        options: the options of the source.
        before: is called with the number of a micro-batch whose rows were read, and are not yet written.
        trigger: the trigger of the query.
    """

    def write(frame: DataFrame, batch: int) -> None:
        rows = [(row.stream, row.offset, bytes(row.value).decode()) for row in frame.collect()]
        before(batch)
        begun = folder / f"begun-{batch}.json"
        begun.write_text(json.dumps(rows))
        begun.replace(folder / f"batch-{batch}.json")  # those who look meanwhile see it whole

    frame = spark.readStream.format("rabbitmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start()


def batches(folder: Path) -> list[Rows]:
    """The rows of each micro-batch."""
    count = len(list(folder.glob("batch-*.json")))
    return [
        [tuple(row) for row in json.loads((folder / f"batch-{number}.json").read_text())]
        for number in range(count)
    ]


def values(found: list[Rows]) -> list[str]:
    return [value for rows in found for _, _, value in rows]


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    """An empty stream."""
    return Streamed(vhost, "s", {})


@pytest.fixture
def run(spark: SparkSession, vhost: RunningBroker, tmp_path: Path) -> Run:
    """Runs a query on one checkpoint until it has all that is there, and returns the rows of all micro-batches so far."""

    def run(
        before: Callable[[int], None] = lambda _: None, behind: list[Any] | None = None, **options: object
    ) -> list[Rows]:
        texts = {"url": vhost.stream_url, "stream": "s", "startingOffsets": "earliest"}
        texts |= {name: str(value) for name, value in options.items()}
        for attempt in range(3):
            query = start(spark, tmp_path, texts, before, availableNow=True)
            try:
                assert query.awaitTermination(120), "AvailableNow does not end"
                break
            except StreamingQueryException as error:
                # Spark waits 10 s for its Python, without an option (PythonWorkerFactory.createSimpleWorker).
                if attempt == 2 or "failed to connect back" not in str(error):
                    raise
            finally:
                query.stop()
        if behind is not None:
            behind += map(spark_connector.offsets_behind_latest, query.recentProgress)
        return batches(tmp_path)

    return run


def numbered(*numbers: int) -> list[str]:
    return [f"row {number}" for number in range(*numbers)]


def test_a_query_goes_on_where_it_ended_and_an_idle_stream_makes_no_batches(
    stream: Streamed, run: Run, tmp_path: Path
) -> None:
    stream.publish(numbered(1_000))
    first = run()
    assert [len(rows) for rows in first] == [0, 1_000]  # the first one notes where the query begins
    assert values(first) == numbered(1_000)
    *_, offsets = (tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()
    assert json.loads(offsets)["streams"]["s"]["next"] == 1_000  # people can read it
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
    """`latest` is the place that it was when the query began, not when it was started again."""
    stream.publish(["before the query"])
    options = {"maxOffsetsPerTrigger": 400, "startingOffsets": "latest"}

    for batch in range(4):

        def fail(number: int, batch: int = batch) -> None:
            if number == batch:
                raise RuntimeError(f"in batch {number}")

        with pytest.raises(StreamingQueryException, match=f"in batch {batch}"):
            run(fail, **options)
        stream.publish([f"later {batch}"] if batch else numbered(1_000))
    found = run(**options)
    assert values(found) == numbered(1_000) + [f"later {batch}" for batch in range(1, 4)]
    assert [len(rows) for rows in found[:3]] == [0, 400, 400]


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
    options = {"url": vhost.stream_url, "superStream": "orders", "startingOffsets": "earliest"}
    query = start(spark, tmp_path, options, lambda _: None, processingTime="100 milliseconds")

    def has(rows: int) -> Callable[[], bool]:
        return lambda: query.exception() is not None or len(values(batches(tmp_path))) >= rows

    try:
        stream.publish(numbered(100))
        until(has(100), "the rows do not come")
        count = len(batches(tmp_path))
        time.sleep(3)
        assert len(batches(tmp_path)) == count  # no more micro-batches of an idle stream

        stream.bind("orders-1", "orders", "1", {"x-stream-partition-order": 1})
        stream.bind("orders-1", "rows", "", {})
        stream.publish(numbered(100, 200))  # to both streams
        until(has(300), "the rows of the new stream do not come")

        faults_of(broker).kill()
        time.sleep(2)
        faults_of(broker).start()
        stream.publish(numbered(200, 300))
        until(has(500), "the rows behind the kill do not come")
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
    assert values(found) == numbered(100) + numbered(1_000)
    stream.make_again()
    with pytest.raises(StreamingQueryException, match="was read up to offset 1000, and it ends at offset 0"):
        run()

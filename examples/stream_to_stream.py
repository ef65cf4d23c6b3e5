"""Flights through two hash exchanges of streams, each flight exactly once: written, read as a stream, worked on, written, read back.

A batch writes all flights into the streams behind `flights`. A streaming query reads them from there, keeps those that left late, and
writes them into the streams behind `late`, under their destination. A batch reads these back and compares each row with
the CSV file.

python examples/stream_to_stream.py [--limit ROWS]
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from flights import QUEUES, read_flights
from on_found_broker import main
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from rabbit_chx import Broker, HashRing
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker
from spark_connector import place_for_streams

SOURCE, TARGET = "flights", "late"
ROWS_PER_BATCH = 100_000


def declare(broker: RunningBroker) -> dict[str, HashRing]:
    """Make the exchanges and their streams, and return their rings."""
    with Broker(broker.url, ring_source=broker.ring_via) as live:
        for exchange in (SOURCE, TARGET):
            streams = {queue.replace(SOURCE, exchange): weight for queue, weight in QUEUES.items()}
            live.declare(exchange, streams, queue_arguments={"x-queue-type": "stream"})
        return {exchange: live.ring(exchange) for exchange in (SOURCE, TARGET)}


def late(flights: DataFrame) -> DataFrame:
    """Return the flights that left at least an hour late, under the airport that they went to."""
    flight = F.from_json(F.col("value").cast("string"), "dest STRING, dep_delay INT")
    return flights.where(flight["dep_delay"] >= 60).select(flight["dest"].alias("key"), "value")


def predict(flights: DataFrame, ring: HashRing) -> Counter[tuple[str, str, str]]:
    """Return how often each stream will have each row: the stream, the key and the value."""
    rows = late(flights).toArrow()
    streams = [str(ring.destinations[index]) for index in ring.indices(rows["key"])]
    return Counter(
        zip(streams, *(map(str, rows[name].to_pylist()) for name in ("key", "value")), strict=True)
    )


def run(broker: RunningBroker, spark: SparkSession, csv: Path, limit: int | None = None) -> bool:
    """Run both jobs. Return whether the late flights are in their streams, each once."""
    url = broker.stream_url
    if url is None:
        raise SystemExit(f"{broker.origin} has no port of the stream protocol: enable rabbitmq_stream")
    rings = declare(broker)
    flights = read_flights(spark, csv, limit).select("key", "value").cache()
    predicted = predict(flights, rings[TARGET])

    def options(exchange: str) -> dict[str, str]:
        return {"url": url, "exchange": exchange, "ring": rings[exchange].to_json()}

    exactly_once = {"delivery": "exactly-once", "verify": "full"}
    (
        place_for_streams(flights, rings[SOURCE], key="key")
        .write.format("rabbitmq")
        .options(**options(SOURCE), **exactly_once, appId="flights of 2013", version=1)
        .mode("append")
        .save()
    )
    stream = (
        spark.readStream.format("rabbitmq")
        .options(url=url, stream=",".join(map(str, rings[SOURCE].destinations)))
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_PER_BATCH)
        .load()
    )
    with tempfile.TemporaryDirectory() as folder:
        query = (
            place_for_streams(late(stream), rings[TARGET], key="key")
            .writeStream.format("rabbitmq")
            .options(**options(TARGET), **exactly_once, reportPath=f"{folder}/reports/")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        reports = [json.loads(path.read_text()) for path in Path(folder, "reports").iterdir()]
    written = sum((Counter(report["streams"]["rows"]) for report in reports), Counter())
    streams = ",".join(map(str, rings[TARGET].destinations))
    found = spark.read.format("rabbitmq").options(url=url, stream=streams).load()
    rows = found.select("stream", found["key"].cast("string"), found["value"].cast("string")).toArrow()
    there = Counter(zip(*(rows[name].to_pylist() for name in ("stream", "key", "value")), strict=True))
    print(
        f"{flights.count():,} flights through the streams of {SOURCE!r}, those that left late into the streams of {TARGET!r}:\n"
    )
    print(show(rings[TARGET], predicted, written, there))
    return predicted == there


def show(
    ring: HashRing,
    predicted: Counter[tuple[str, str, str]],
    written: Counter[str],
    there: Counter[tuple[str, str, str]],
) -> str:
    """Return the result as a table."""

    def by_stream(rows: Counter[tuple[str, str, str]]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (stream, _, _), count in rows.items():
            counts[stream] += count
        return counts

    expected, found = by_stream(predicted), by_stream(there)
    headings = ("predicted", "written", "read back")
    columns = (TableColumn("stream", numeric=False), *map(TableColumn, headings))
    lines = [
        (stream, expected[stream], written[stream], found[stream]) for stream in map(str, ring.destinations)
    ]
    mismatches = sum(count for row, count in there.items() if row not in predicted)
    missing = (predicted - there).total()
    repeated = (there - predicted).total() - mismatches
    return "\n".join(
        [
            render_table(columns, lines, ("", predicted.total(), written.total(), there.total())),
            "",
            f"mismatches {mismatches}, missing {missing}, repeated {repeated}",
        ]
    )


if __name__ == "__main__":
    main(run, __doc__ or "")

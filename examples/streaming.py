"""Publish a stream that ends and continues: flights arrive as files, and each file is a micro-batch.

python examples/streaming.py [--limit ROWS]
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from flights import EXCHANGE, QUEUES, connect, count_ready, read_flights
from on_found_broker import main
from pyspark.sql import DataFrame, SparkSession

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

FILES = 2  # in each of the two runs


def write_what_is_there(stream: DataFrame, url: str, folder: Path) -> None:
    """Write every file that no earlier run has written, and return."""
    query = (
        stream.writeStream.format("rabbitmq")
        .options(url=url, exchange=EXCHANGE, messageId="auto", reportPath=str(folder / "reports"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(broker: RunningBroker, spark: SparkSession, csv: Path, limit: int | None = None) -> int:
    """Run one stream twice, and return the number of messages that are then in the queues."""
    with Broker(broker.url, ring_source=broker.ring_via) as live:
        live.declare(EXCHANGE, QUEUES.items())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("reports", "flights"):
            (folder / part).mkdir()
        flights = read_flights(spark, csv, limit).select("key", "value")
        stream = (
            spark.readStream.schema(flights.schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{folder}/flights")
        )
        for half in flights.randomSplit([1.0, 1.0], seed=1):
            half.repartition(FILES).write.mode("append").parquet(f"{folder}/flights")
            write_what_is_there(stream, broker.url, folder)
        for path in sorted((folder / "reports").iterdir()):
            report = json.loads(path.read_text())
            print(f"batch {report['batch_id']}: {report['confirmed']:,} of {report['rows']:,} rows confirmed")
    with connect(broker.url) as connection:
        ready = count_ready(connection.channel())
    print(f"{ready:,} messages in the queues")
    return ready


if __name__ == "__main__":
    main(run, __doc__ or "")

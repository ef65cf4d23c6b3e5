"""Publish a stream with a report for each micro-batch, on PySpark 3.5 and newer.

python examples/foreach_batch.py [--limit ROWS]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from flights import EXCHANGE, QUEUES, read_flights
from on_found_broker import main
from pyspark.sql import SparkSession

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker
from spark_connector import WriteReport, batch_publisher

FILES = 3


def run(broker: RunningBroker, spark: SparkSession, csv: Path, limit: int | None = None) -> list[WriteReport]:
    """Stream a few files, one in each micro-batch, and return the reports."""
    with Broker(broker.url, ring_source=broker.ring_via) as live:
        live.declare(EXCHANGE, QUEUES.items())
        ring = live.ring(EXCHANGE)
    options = {"url": broker.url, "exchange": EXCHANGE, "messageId": "auto"}
    reports: list[WriteReport] = []

    def show(report: WriteReport) -> None:
        reports.append(report)
        print(
            f"batch {report.batch_id}: {report.confirmed:,} of {report.rows:,} rows confirmed, {report.predicted}"
        )

    with tempfile.TemporaryDirectory() as folder:
        flights = read_flights(spark, csv, limit).select("key", "value")
        flights.repartition(FILES).write.parquet(f"{folder}/flights")
        stream = spark.readStream.schema(flights.schema).option("maxFilesPerTrigger", 1)
        query = (
            stream.parquet(f"{folder}/flights")
            .writeStream.foreachBatch(batch_publisher(options, ring, on_report=show))
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return reports


if __name__ == "__main__":
    main(run, __doc__ or "")

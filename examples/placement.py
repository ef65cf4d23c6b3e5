"""Publish with one task for each queue, so that each aircraft's flights stay in order.

python examples/placement.py [--limit ROWS]
"""

from __future__ import annotations

from pathlib import Path

from flights import EXCHANGE, QUEUES, read_flights
from on_found_broker import main
from pyspark.sql import SparkSession

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker
from spark_connector import WriteReport, place, publish


def run(broker: RunningBroker, spark: SparkSession, csv: Path, limit: int | None = None) -> WriteReport:
    """Publish in the order of departure, and return the report."""
    with Broker(broker.url, ring_source=broker.ring_via) as live:
        live.declare(EXCHANGE, QUEUES.items())
        ring = live.ring(EXCHANGE)
    options = {"url": broker.url, "exchange": EXCHANGE, "ignoreUnknownColumns": True, "badRows": "skip"}
    flights = read_flights(spark, csv, limit)

    # Ten partitions in all; a heavier queue has more of them. `id` begins with the date.
    placed = place(flights, ring, partitions=10, order_by="id")
    report = publish(placed, options, ring)
    print(report)
    return report


if __name__ == "__main__":
    main(run, __doc__ or "")

"""Write, predict and place over Spark Connect: the server needs the packages, and the client needs no Java.

pip install 'pyspark[connect]'
python examples/connect.py [--limit ROWS] [--url AMQP_URL] [--remote sc://HOST:15002]
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from flights import EXCHANGE, QUEUES, read_flights
from flights_data import flights_csv
from pyspark.sql import SparkSession

from rabbit_chx import Broker, HashRing
from rabbit_chx.testing import find_broker, temporary_vhost
from spark_connector import place, publish, queue_for, register


def run(spark: SparkSession, url: str, limit: int | None = None) -> None:
    """Write by the format, count rows by queue, then publish placed rows and print the report."""
    with Broker(url) as broker:
        broker.declare(EXCHANGE, QUEUES, allow_existing=True)  # an earlier run may have declared it
    ring = HashRing.from_bindings(QUEUES.items())
    options = {"url": url, "exchange": EXCHANGE}
    flights = read_flights(spark, flights_csv(), limit).select("key", "value")

    register(spark)
    flights.write.format("rabbitmq").options(**options).mode("append").save()
    print(f"written  {flights.count():,} rows")

    queues = flights.groupBy(queue_for("key", ring).alias("queue")).count().orderBy("queue").collect()
    print("queues  ", {row["queue"]: row["count"] for row in queues})

    placed = place(flights, ring, slices={"flights.e": 2})
    report = publish(placed, options, ring)
    print(
        f"published {report.confirmed:,} of {report.rows:,} rows by {len(report.tasks)} tasks: {report.predicted}"
    )


def main() -> None:
    """Run the example on the broker of ``--url``, or on one that is found or started."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, help="the number of flights to take (default: all)")
    parser.add_argument("--url", help="the broker's AMQP URI (default: a broker that is found or started)")
    parser.add_argument(
        "--remote", default="local[2]", help="the Spark Connect server (default: one that is started here)"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        url = arguments.url
        if url is None:
            broker = stack.enter_context(find_broker())
            url = stack.enter_context(temporary_vhost(broker)).url
        spark = SparkSession.builder.remote(arguments.remote).getOrCreate()
        run(spark, url, arguments.limit)
        spark.stop()


if __name__ == "__main__":
    main()

"""What the smaller examples share: a broker that is found or started, a Spark, and the flights."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from flights import start_spark
from flights_data import flights_csv
from pyspark.sql import SparkSession

from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost


def main(run: Callable[[RunningBroker, SparkSession, Path, int | None], object], about: str) -> None:
    """Run an example as a program.

    Args:
        run: the example.
        about: a text whose first line describes the example.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--limit", type=int, help="the number of flights to take (default: all)")
    limit = parser.parse_args().limit
    with find_broker() as broker, temporary_vhost(broker) as vhost:
        spark = start_spark()
        try:
            run(vhost, spark, flights_csv(), limit)
        finally:
            spark.stop()

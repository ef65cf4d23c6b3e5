"""Fixtures of the tests that start a real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_connector
from rabbit_chx.testing import RunningBroker


@pytest.fixture
def read(spark: SparkSession, vhost: RunningBroker) -> Callable[..., DataFrame]:
    """Reads streams of the test's vhost."""
    spark_connector.register(spark)

    def load(**options: object) -> DataFrame:
        texts = {name: str(value) for name, value in {"url": vhost.stream_url, **options}.items()}
        return spark.read.format("rabbitmq").options(**texts).load()

    return load


@pytest.fixture
def configure(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets an option of Spark until the end of the test."""
    before: dict[str, str | None] = {}

    def set_option(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_option
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    """Makes a frame of numbered rows in partitions."""

    def make(rows: int = 1_000, partitions: int = 2) -> DataFrame:
        numbers = spark.range(0, rows, 1, partitions)
        return numbers.selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")

    return make


@pytest.fixture
def options(vhost_url: str) -> dict[str, object]:
    """Of a write to the exchange `x` of the test's vhost."""
    return {"url": vhost_url, "exchange": "x"}

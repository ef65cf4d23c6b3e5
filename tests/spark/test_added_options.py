"""Names that Spark itself puts among the options of a source, a sink or a table are not mistakes of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from streamed import Streamed

import spark_connector
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark_connector.register(spark)
    return spark


@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
@pytest.mark.parametrize("way", ["queryName", "start"])
def test_a_query_with_a_name_writes(
    session: SparkSession, vhost_url: str, consumed: Callable[[], list[Any]], tmp_path: Path, way: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"key": "k", "value": "v"}\n')
    rows = session.readStream.schema("key string, value string").json(str(tmp_path / "in"))
    writer = (
        rows.writeStream.format("rabbitmq")
        .options(url=vhost_url, exchange="x")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    query = writer.queryName("orders").start() if way == "queryName" else writer.start(queryName="orders2")
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert [message.body for message in consumed()] == [b"v"]


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_view_is_read_and_a_table_names_it(session: SparkSession, vhost: RunningBroker) -> None:
    """To a table Spark passes no options at all."""
    stream = Streamed(vhost, "s", {})
    stream.publish(["a", "b", "c"])
    options = f"OPTIONS (url '{vhost.stream_url}', stream 's')"
    session.sql(f"CREATE TEMPORARY VIEW orders_view USING rabbitmq {options}")
    try:
        values = session.sql("SELECT CAST(value AS string) AS value FROM orders_view").collect()
        assert [row.value for row in values] == ["a", "b", "c"]
        session.sql(f"CREATE TABLE orders_table USING rabbitmq {options}")
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING rabbitmq"):
            session.sql("SELECT * FROM orders_table").collect()
    finally:
        session.catalog.dropTempView("orders_view")
        session.sql("DROP TABLE IF EXISTS orders_table")

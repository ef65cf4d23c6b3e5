"""Names that Spark itself puts among the options of a source, a sink or a table are not mistakes of the user; queries with a name: test_streaming.py."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_view_is_read_and_a_table_names_it(spark: SparkSession, vhost: RunningBroker) -> None:
    """To a table Spark passes no options at all."""
    spark_connector.register(spark)
    stream = Streamed(vhost, "s", {})
    stream.publish(["a", "b", "c"])
    options = f"OPTIONS (url '{vhost.stream_url}', stream 's')"
    spark.sql(f"CREATE TEMPORARY VIEW orders_view USING rabbitmq {options}")
    try:
        values = spark.sql("SELECT CAST(value AS string) AS value FROM orders_view").collect()
        assert [row.value for row in values] == ["a", "b", "c"]
        spark.sql(f"CREATE TABLE orders_table USING rabbitmq {options}")
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING rabbitmq"):
            spark.sql("SELECT * FROM orders_table").collect()
        spark.catalog.createTable("orders_made", source="rabbitmq", url=vhost.stream_url, stream="s")
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING rabbitmq"):
            spark.table("orders_made").collect()
    finally:
        spark.catalog.dropTempView("orders_view")
        for table in ("orders_table", "orders_made"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


FLOW = """
from pyspark import pipelines
from pyspark.sql import SparkSession

spark = SparkSession.active()
pipelines.create_sink("rabbit", "rabbitmq", {{"url": {url!r}, "exchange": "x"}})


@pipelines.append_flow(target="rabbit", name="orders")
def orders():
    return spark.readStream.schema("key string, value string").json({folder!r})
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.pyspark("4.1", "create_sink")
def test_a_sink_of_a_pipeline_writes(
    vhost_url: str, consumed: Callable[[], list[Any]], tmp_path: Path
) -> None:
    for folder in ("in", "transformations"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"key": "k", "value": "v"}\n')
    (tmp_path / "transformations" / "flow.py").write_text(
        FLOW.format(url=vhost_url, folder=str(tmp_path / "in"))
    )
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(
        f"name: demo\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    program = str(Path(sys.executable).with_name("spark-pipelines"))
    done = subprocess.run(
        [program, "run", "--spec", str(spec)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Flow orders has COMPLETED" in done.stdout + done.stderr
    assert [message.body for message in consumed()] == [b"v"]

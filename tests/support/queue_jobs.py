"""What a `SparkDriver` is sent: a queue that is drained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import spark_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def drain(spark: SparkSession, url: str, queue: str, folder: Path, stop_at: int) -> None:
    """Write batches of 500 to a folder, and wait for the end with one of them written and not acknowledged."""
    written = 0

    def write(df: DataFrame) -> None:
        nonlocal written
        df.write.mode("append").parquet(str(folder / "rows"))
        written += 1
        if written == stop_at:
            (folder / "holds").touch()
            time.sleep(300)

    spark_connector.drain(spark, {"url": url, "queue": queue, "maxRows": 500}, write)

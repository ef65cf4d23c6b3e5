"""docs/spark.md says what the code does, and its Python blocks run as written but for the address of the broker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from blocks import run_blocks
from pyspark.sql import SparkSession

from rabbit_chx.testing import RunningBroker

PAGE = "docs/spark.md"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
def test_the_snippets_run(
    spark: SparkSession, vhost: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None  # the page's own getOrCreate takes it
    words = {"amqp://guest:guest@localhost": vhost.url}
    assert vhost.ring_via is not None, "the page reads a ring: set RABBIT_CHX_TEST_RING_VIA"
    words |= {"docker compose exec -T rabbitmq": " ".join(vhost.ring_via)}
    words |= {f'"{name}"': repr(str(tmp_path / name)) for name in ("reports", "checkpoint", "drained")}
    names: dict[str, Any] = {}
    run_blocks(PAGE, words, names)
    assert "customer-" in capsys.readouterr().out  # a row that was looked at
    query = names["query"]
    until = time.monotonic() + 60
    try:
        while not (tmp_path / "reports" / "batch-1.json").exists():
            assert query.exception() is None
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        query.stop()

"""Every Python block of docs/spark.md, run as written but for the address of the broker."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rabbit_chx import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_the_snippets_run(spark: SparkSession, vhost: RunningBroker, tmp_path: Path) -> None:
    assert spark is not None  # the page's own getOrCreate takes it
    with Broker(vhost.url) as broker:
        broker.declare("orders", [("orders.1", 1), ("orders.2", 1)])
        names: dict[str, Any] = {}
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            code = block.replace("amqp://guest:guest@localhost", vhost.url)
            for name in ("reports", "checkpoint"):
                code = code.replace(f'"{name}"', repr(str(tmp_path / name)))
            exec(compile(code, "spark.md", "exec"), names)  # noqa: S102  # that is what is tested
        query = names["query"]
        until = time.monotonic() + 60
        try:
            while not (tmp_path / "reports" / "batch-1.json").exists():
                assert query.exception() is None
                assert time.monotonic() < until
                time.sleep(0.2)
        finally:
            query.stop()

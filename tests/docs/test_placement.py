"""Every Python block of docs/placement.md, run as written but for the address of the broker and the number of rows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from blocks import python_blocks, run_blocks
from pyspark.sql import SparkSession

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PAGE = "docs/placement.md"


def test_the_snippets_run(
    spark: SparkSession,
    vhost: RunningBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None  # the document's own getOrCreate takes it
    assert vhost.ring_via is not None
    assert vhost.management_url is not None
    assert len(python_blocks(PAGE)) == 6
    words = {
        "amqp://guest:guest@localhost": vhost.url,
        "http://guest:guest@localhost:15672": vhost.management_url,
        "docker compose exec -T rabbitmq": shlex.join(vhost.ring_via),
        "100_000": "2_000",
        '"checkpoint"': f'"{tmp_path}"',
        '"rows.svg"': repr(str(tmp_path / "rows.svg")),
    }
    names: dict[str, Any] = {}
    try:
        run_blocks(PAGE, words, names)
        names["query"].processAllAvailable()
    finally:
        if "query" in names:
            names["query"].stop()
    assert (tmp_path / "rows.svg").stat().st_size
    said = capsys.readouterr().out
    assert "True 2000" in said
    assert "2000 {" in said
    assert "to exchange 'orders'" in said

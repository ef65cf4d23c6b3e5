"""The examples, on part of their real data."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts import run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DOCUMENT = EXAMPLES.parent / "docs" / "placement.md"
ROWS = 5_000


def example(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


@pytest.fixture(scope="module")
def csv() -> Path:
    path: Path = example("flights_data").flights_csv()
    return path


def test_placement(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = example("placement").run(vhost, spark, csv, ROWS)
    assert report.confirmed == ROWS
    assert all(len(task.predicted) == 1 for task in report.tasks if task.rows)
    said = capsys.readouterr().out
    assert "dry run, nothing was sent: 5,000 rows" in said
    assert "(read ring)" in said


def test_foreach_batch(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = example("foreach_batch").run(vhost, spark, csv, ROWS)
    assert sum(report.confirmed for report in reports) == ROWS
    assert [report.batch_id for report in reports] == [0, 1, 2]
    assert "batch 2: " in capsys.readouterr().out


def test_the_snippets_of_the_document(
    spark: SparkSession,
    vhost: RunningBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None  # the document's own getOrCreate takes it
    assert vhost.ring_via is not None
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    try:
        for block in blocks:
            code = block.replace("amqp://guest:guest@localhost", vhost.url)
            code = code.replace("docker compose exec -T rabbitmq", shlex.join(vhost.ring_via))
            code = code.replace("100_000", "2_000")
            exec(compile(code.replace('"checkpoint"', f'"{tmp_path}"'), DOCUMENT.name, "exec"), names)  # noqa: S102
        names["query"].processAllAvailable()
    finally:
        if "query" in names:
            names["query"].stop()
    said = capsys.readouterr().out
    assert "True 2000" in said
    assert "2000 {" in said
    assert "to exchange 'orders'" in said


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.usefixtures("csv")
def test_connect(vhost_url: str) -> None:
    done = run_python(EXAMPLES / "connect.py", "--limit", ROWS, "--url", vhost_url)
    assert "written  5,000 rows" in done.stdout
    assert "dry run  True" in done.stdout
    assert "published 5,000 of 5,000 rows by 6 tasks" in done.stdout
    assert "guest:guest" not in done.stdout + done.stderr

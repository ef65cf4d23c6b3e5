"""The examples, the job of the demo and the notebook, on part of their real data."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rabbit_chx import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS = 5_000
FLIGHTS = 20_000  # of the demo, so that some have no aircraft


def example(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


@pytest.fixture(scope="module")
def csv() -> Path:
    path: Path = example("flights_data").flights_csv()
    return path


@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_the_demo_finds_every_flight_where_it_predicts_it(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example("flights").run(vhost, spark, csv, FLIGHTS)
    said = capsys.readouterr().out
    assert "mismatches 0, missing 0, repeated 0" in said
    assert said.count("20,000") >= 5  # read, written, and the three totals


@pytest.mark.slow
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_the_demo_counts_rows_that_are_lost_doubled_or_in_another_queue(
    spark: SparkSession, vhost: RunningBroker, csv: Path
) -> None:
    demo = example("flights")
    with Broker(vhost.url, ring_source=vhost.ring_via) as broker:
        broker.declare(demo.EXCHANGE, demo.QUEUES.items())
        ring = broker.ring(demo.EXCHANGE)
    flights = demo.read_flights(spark, csv, limit=FLIGHTS).cache()
    prediction = demo.predict(flights, ring)
    without_aircraft = flights.where("NOT has_aircraft")
    assert len(prediction.place) == FLIGHTS
    assert prediction.without_aircraft == without_aircraft.count() > 50
    keys = without_aircraft.groupBy("key").count()  # they are not one hot key
    assert keys.where("key LIKE 'flight %'").count() == keys.count() > 30

    with demo.connect(vhost.url) as connection:
        channel = connection.channel()
        channel.queue_unbind("flights.b", demo.EXCHANGE, "1")
        channel.queue_bind("flights.b", demo.EXCHANGE, "1")  # the same weight, but at the end of the ring
        report = demo.write(flights, vhost.url, ring)
        assert channel.basic_get("flights.a", auto_ack=True)[0] is not None
        method, _, body = channel.basic_get("flights.c", auto_ack=True)
        assert method is not None
        for _ in range(2):
            channel.basic_publish("", "flights.c", body)
        findings = demo.check(channel, prediction)
    assert report["confirmed"] == sum(report["predicted"].values()) == FLIGHTS
    assert sum(findings.rows.values()) == FLIGHTS
    assert (findings.missing, findings.repeated, findings.good) == (1, 1, False)
    assert findings.mismatches > FLIGHTS / 10
    assert "first mismatch: 2013-" in demo.show(prediction, report, findings)


@pytest.mark.slow
def test_placement_predicts_the_queue_of_each_task(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = example("placement").run(vhost, spark, csv, ROWS)
    assert report.confirmed == ROWS
    assert all(len(task.predicted) == 1 for task in report.tasks if task.rows)
    said = capsys.readouterr().out
    assert "(read ring)" in said


@pytest.mark.slow
def test_foreach_batch_confirms_all_rows(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = example("foreach_batch").run(vhost, spark, csv, ROWS)
    assert sum(report.confirmed for report in reports) == ROWS
    assert [report.batch_id for report in reports] == [0, 1, 2]
    assert "batch 2: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.pyspark("4.1", "writeStream.format('rabbitmq')")
def test_streaming_confirms_all_rows(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example("streaming").run(vhost, spark, csv, ROWS) == ROWS
    said = capsys.readouterr().out
    assert said.count(" rows confirmed\n") == 4
    assert "5,000 messages in the queues" in said


@pytest.mark.slow
@pytest.mark.pyspark("4.2", "readStream.format('rabbitmq')")
def test_stream_to_stream_copies_each_row_once(
    spark: SparkSession, vhost: RunningBroker, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example("stream_to_stream").run(vhost, spark, csv, ROWS)
    said = capsys.readouterr().out
    assert "mismatches 0, missing 0, repeated 0" in said
    assert "5,000 flights" in said


@pytest.mark.slow
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
def test_the_notebook_runs_and_shows_pictures(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, by a kernel of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own
        import nbformat
        from nbclient import NotebookClient

        monkeypatch.setenv("RABBIT_CHX_TEST_URL", broker.url)
        monkeypatch.setenv("RABBIT_CHX_TEST_MANAGEMENT_URL", broker.management_url or "")
        monkeypatch.setenv("RABBIT_CHX_TEST_RING_VIA", shlex.join(broker.ring_via or ()))
        root = str(EXAMPLES.parent)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
        notebook = nbformat.read(EXAMPLES / "notebook.ipynb", 4)
        NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = {
        cell.source.strip().splitlines()[-1]: cell.outputs
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    for value in ("ring", "change"):
        (picture,) = (output["data"]["text/html"] for output in shown[value])
        assert "<svg" in picture, value
    printed = "".join(output.get("text", "") for output in shown["print(report)"])
    assert "20,000" in printed
    (planned,) = (output["data"]["text/html"] for output in shown["change"])
    assert "1 queue created" in planned
    (predicted,) = (output["data"]["text/html"] for output in shown["predicted"])
    assert predicted.count("True") == 5

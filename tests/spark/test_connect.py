"""What goes over Spark Connect: the example, and a stream whose reports arise on the server.

A Connect server has a fixed port. The tests of one file run one after the other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from publishing_support import Consumed
from scripts import run_python

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.0", "a Connect server in pyspark's own package"),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Of a process of its own: one Python cannot hold a classic and a Connect session.
STREAM = """
import sys
from pathlib import Path

from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import SparkSession

from rabbit_chx import HashRing
from spark_connector import batch_publisher

url, folder = sys.argv[1:]


def note(report):
    Path(folder, f"report-{report.batch_id}").write_text(report.to_json())


spark = SparkSession.builder.remote("local[2]").getOrCreate()
rows = spark.range(300).selectExpr("CAST(id AS string) AS key", "CAST(id AS string) AS value")
rows.repartition(3).write.parquet(f"{folder}/rows")
stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/rows")
ring = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
publisher = batch_publisher({"url": url, "exchange": "x"}, ring, on_report=note)
writer = stream.writeStream.foreachBatch(publisher).trigger(availableNow=True)
for attempt in range(3):
    try:
        query = writer.option("checkpointLocation", f"{folder}/checkpoint-{attempt}").start()
    except SparkException as error:
        # Spark waits 10 s for the Python that is to call the publisher (PythonWorkerFactory.createSimpleWorker).
        # It has no option for this, and a busy machine may need longer.
        if attempt == 2 or "failed to connect back" not in str(error):
            raise
    else:
        break
if not query.awaitTermination(120):
    raise SystemExit("the stream does not end")
spark.stop()
"""


@pytest.mark.slow
def test_a_stream_reports_each_batch(vhost_url: str, consumed: Consumed, tmp_path: Path) -> None:
    run_python("-c", STREAM, vhost_url, tmp_path)
    reports = [json.loads((tmp_path / f"report-{batch}").read_text()) for batch in range(3)]
    assert [report["batch_id"] for report in reports] == [0, 1, 2]
    assert sum(report["confirmed"] for report in reports) == 300
    assert sorted(int(message.body) for message in consumed()) == list(range(300))


@pytest.mark.slow
def test_the_example_writes_and_publishes_all_rows(vhost_url: str) -> None:
    done = run_python(EXAMPLES / "connect.py", "--limit", 5_000, "--url", vhost_url)
    assert "written  5,000 rows" in done.stdout
    assert "published 5,000 of 5,000 rows by 6 tasks" in done.stdout
    assert "guest:guest" not in done.stdout + done.stderr

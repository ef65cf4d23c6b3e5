"""A Python without our packages says so in words. That Spark finds the format by itself: test_secrets.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bare_python import bare_python

pytestmark = [pytest.mark.spark, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROOT = Path(__file__).resolve().parents[2]


NOT_ACTIVATED = """
import spark_connector
from pyspark.sql import SparkSession
from rabbit_chx import HashRing
from spark_connector import executor_functions
from spark_connector.placing import placement

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
rows = spark.range(1).selectExpr("'k' AS key", "'v' AS value")
options = {"url": "amqp://127.0.0.1:1", "exchange": "x", "preflight": "false"}
ring = HashRing.from_bindings([("q1", 1)])


written = rows.write.format("rabbitmq").options(**options).mode("append").save
registered = lambda: spark_connector.register(spark)
published = lambda: spark_connector.publish(rows, options)
predicted = lambda: rows.select(spark_connector.queue_for("key", ring)).collect()


def unchecked():  # as where the driver cannot know the Python of the workers
    for module in (executor_functions, placement):
        module.check_worker_python = lambda spark: None


for step in (written, registered, published, predicted, unchecked, registered, written, published, predicted):
    try:
        step()
        print("done")
    except Exception as cause:
        print(f"{type(cause).__name__}: {cause}".replace("\\n", " "))
spark.stop()
"""


@pytest.mark.slow
def test_workers_without_our_packages_are_an_error_with_its_remedy(tmp_path: Path) -> None:
    """A job of a virtual environment that is not activated: its workers are the `python3` of `PATH`.

    What looks at them first says so. The page quotes what Spark says by itself. What is not looked at first says it
    in the planner or in the task.
    """
    other_python = bare_python(tmp_path / "bare")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {other_python} "$@"\n')
    python.chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    environment.pop("PYTHONPATH", None)
    (tmp_path / "job.py").write_text(NOT_ACTIVATED)
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_spark, *by_us, _, _, of_planner, of_task, of_column = done.stdout.splitlines()
    not_found = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: rabbitmq."
    assert not_found in by_spark
    assert not_found in (ROOT / "docs" / "spark" / "write.md").read_text()
    assert len(by_us) == 3
    lacks = f"MissingExtraError: Spark's workers run {python}, which lacks spark_connector, rabbit_chx"
    export = f": start the job with `export PYSPARK_PYTHON={sys.executable}`"
    assert {line.partition(", or set ")[0] for line in by_us} == {lacks + export}
    remedy = "install the package with its extra spark there, or set PYSPARK_PYTHON to a Python that has it"
    for line, which in (
        (of_planner, "that plans for Spark"),
        (of_task, "of this Spark executor"),
        (of_column, "of this Spark executor"),
    ):
        assert f"the Python {which}, {other_python}, cannot load rabbit-chx (No module named" in line
        assert remedy in line

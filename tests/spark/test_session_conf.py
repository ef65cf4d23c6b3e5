"""What a session's configuration does to a write: speculation, and passwords that stand in it.

Spark finds the format by itself here: nobody has called `register`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from publishing_support import Consumed
from scripts import run_python

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

JOB = """
import os
import sys
from pathlib import Path
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
os.environ.update(RABBIT_PW="c4nary-password", RABBIT_PASSWORD="c4nary-password")  # as executors of a cluster get it
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.speculation", "true")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", Path(folder, "events").as_uri())
    .config("spark.eventLog.compress", "false")
    .config("spark.executorEnv.RABBIT_PW", "c4nary-in-clear")  # a value with `password` in it is masked, too
    .config("spark.executorEnv.RABBIT_PASSWORD", "c4nary-masked")
    .getOrCreate()
)
df = spark.range(0, 100, 1, 2).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")
user = url.replace(":c4nary-password@", "@")


def write(name, **options):
    options = {"url": url, "exchange": "x", "reportPath": f"{folder}/{name}.json", **options}
    try:
        df.write.format("rabbitmq").options(**options).mode("append").save()
    except Exception as cause:
        (line,) = [line for line in str(cause).splitlines() if "InputError" in line][-1:]
        print(name, "FAILED", line)
    else:
        print(name, "WRITTEN")


write("fail", onSpeculation="fail")
write("ordered", ordering="per-key")
write("warn")
write("pw", url=user, passwordEnv="RABBIT_PW", onSpeculation="ignore")
write("password", url=user, passwordEnv="RABBIT_PASSWORD", onSpeculation="ignore")
spark.stop()
"""


@pytest.mark.slow
def test_a_session_without_register_warns_of_speculation_and_of_a_password_that_spark_shows(
    vhost_url: str, broker_user: str, consumed: Consumed, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    (tmp_path / "events").mkdir()
    url = vhost_url.replace("guest:guest@", f"{broker_user}:c4nary-password@")
    said = run_python(job, url, tmp_path).stdout.splitlines()
    outcome = dict(line.split(" ", 1) for line in said)
    reports = {
        name: json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("fail", "ordered", "warn", "pw", "password")
    }

    # Copies of tasks: refused before a message is sent, or noted.
    assert "spark.speculation is on" in outcome["fail"]
    assert "onSpeculation is fail: set spark.speculation to false" in outcome["fail"]
    assert "ordering is per-key: set spark.speculation to false" in outcome["ordered"]
    assert [outcome[name] for name in ("warn", "pw", "password")] == ["WRITTEN"] * 3
    assert len(consumed()) == 300
    assert "copies of a task publish its rows again" in " ".join(reports["warn"]["notes"])
    assert [reports[name]["failed"] for name in ("fail", "ordered", "warn")] == [True, True, False]
    assert reports["fail"]["confirmed"] == 0

    # The event log shows the one in clear, and masks those whose names it knows; the report says so
    # beforehand.
    logged = "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert '"spark.executorEnv.RABBIT_PW":"c4nary-in-clear"' in logged
    assert "spark.executorEnv.RABBIT_PASSWORD" in logged
    assert "c4nary-masked" not in logged
    assert (
        "if it is set as spark.executorEnv.RABBIT_PW, Spark shows the password" in reports["pw"]["notes"][0]
    )
    assert reports["password"]["notes"] == []

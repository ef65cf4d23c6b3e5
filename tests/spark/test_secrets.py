"""No password in anything that Spark writes or shows, even where it is told to show local variables.

In the same job: a task that fails once is run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Consumed = Callable[[], list[Any]]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

JOB = """
import os
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from spark_connector.datasource import data_source

url, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,2]")
    .config("spark.ui.enabled", "false")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", Path(folder, "events").as_uri())
    .config("spark.eventLog.compress", "false")
    .config("spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "true")
    .config("spark.sql.warehouse.dir", Path(folder, "warehouse").as_uri())
    .getOrCreate()
)
df = spark.range(0, 100, 1, 2).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")
bad = df.selectExpr("cast(null AS string) AS key", "value")
user = url.replace(":c4nary-password@", "@")
report = Path(folder, "report")


class Broken(data_source()):
    @classmethod
    def name(cls):
        return "broken"

    def writer(self, schema, overwrite):
        from spark_connector.options.addresses import Brokers

        Brokers.of = lambda values: values["password"]["unforeseen"]
        return super().writer(schema, overwrite)


def write(df, save="save", name="rabbitmq", **options):
    options = {"url": url, "exchange": "x", **options}
    try:
        getattr(df.write.format(name).options(**options).mode("append"), save)(*["t"] * (save != "save"))
    except Exception as cause:
        print("FAILED", cause)
    else:
        print("WRITTEN")


def fail_once(batches):
    context = TaskContext.get()
    for batch in batches:
        yield batch
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("once")


write(df, exchange="nope")
spark.dataSource.register(Broken)
write(df, name="broken", url=user, password="c4nary-password")
write(df, url=url.replace("c4nary-password", "c4nary-wrong"))
write(bad, url=user, password="c4nary-password")
for read in (spark.read, spark.read.schema("a int")):
    try:
        read.format("rabbitmq").options(url=user, password="c4nary-password").load().collect()
    except Exception as cause:
        print("FAILED", cause)
write(df, url=user, passwordEnv="SECRET_OF_RABBIT", exchange="nope")
write(df, save="saveAsTable", reportPath=str(report))
write(df, url=user, passwordEnv="SECRET_OF_RABBIT", reportPath=str(report))
write(df, url=user, passwordFile=str(Path(folder, "password")), reportPath=str(report))
write(df.mapInArrow(fail_once, df.schema), messageId="auto", exchange="twice", reportPath=str(report / "twice.json"))

stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
query = (
    stream.selectExpr("string(value) AS key", "string(value) AS value")
    .writeStream.format("rabbitmq")
    .options(url=user, password="c4nary-password", exchange="x", reportPath=str(report))
    .option("checkpointLocation", str(Path(folder, "checkpoint")))
    .trigger(once=True)
    .start()
)
query.awaitTermination()
print(query.lastProgress)
query.explain(extended=True)
spark.stop()
"""


@pytest.fixture
def output(vhost_url: str, broker_user: str, channel: Any, tmp_path: Path) -> tuple[Path, str, str]:
    """The folder of the job, its stdout and its stderr."""
    channel.exchange_declare("twice", "x-consistent-hash")
    channel.queue_bind("q1", "twice", "1")
    job = tmp_path / "job.py"
    job.write_text(JOB)
    (tmp_path / "password").write_text("c4nary-password\n")
    for name in ("events", "report"):
        (tmp_path / name).mkdir()
    url = vhost_url.replace("guest:guest@", f"{broker_user}:c4nary-password@")
    done = subprocess.run(
        [sys.executable, job, url, tmp_path],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SECRET_OF_RABBIT": "c4nary-password"},
    )
    assert done.returncode == 0, done.stderr
    return tmp_path, done.stdout, done.stderr


def test_no_password_anywhere_and_a_second_attempt(output: tuple[Path, str, str], consumed: Consumed) -> None:
    folder, stdout, stderr = output
    assert stdout.count("FAILED") == 7
    assert stdout.count("NotImplementedError: format('rabbitmq') writes only") == 2
    assert "unforeseen TypeError (at " in stdout
    assert stdout.count("WRITTEN") == 4
    logged = "".join(file.read_text() for file in (folder / "events").rglob("*") if file.is_file())
    assert "SparkListenerJobEnd" in logged
    assert "AppendData" in logged
    reports = [json.loads(file.read_text()) for file in (folder / "report").glob("*.json")]
    assert len([report for report in reports if not report["failed"]]) == 5
    for text in (stdout, stderr, logged, json.dumps(reports)):
        assert "c4nary" not in text

    twice = json.loads((folder / "report" / "twice.json").read_text())
    assert [(task["partition"], task["attempt"], task["confirmed"]) for task in twice["tasks"]] == [
        (0, 0, 50),
        (1, 1, 50),
    ]
    ids = [message.properties.message_id for message in consumed() if message.properties.message_id]
    assert len(set(ids)) == twice["confirmed"] == 100
    assert 100 <= len(ids) <= 150

"""No password in anything that Spark writes or shows, even where it is told to show local variables.

In the same job: a task that fails once is run again, and so is its write. Its user may write to its exchanges, and do nothing else.
The session has speculation. Spark finds the format by itself: nobody has called `register`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from canary import CANARY, canary_user, traces_of_canary
from declared import with_login
from publishing_support import Consumed
from scripts import run_in_folder

from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.pyspark("4.2", "readStream.format('rabbitmq')"),
    pytest.mark.timeout(300),
]

JOB = """
from spark_connector import drain

url, password, secret_file, stream_url = given
spark = (
    builder.master("local[2,2]")
    .config("spark.speculation", "true")
    .config("spark.executorEnv.RABBIT_PW", "in-clear")
    .config("spark.executorEnv.RABBIT_PASSWORD", "is-masked")
    .getOrCreate()
)
df = spark.range(0, 100, 1, 2).selectExpr("concat('key ', id) AS key", "concat('body ', id) AS value")
bad = df.selectExpr("cast(null AS string) AS key", "value")
user = url.replace(f":{password}@", "@")
report = Path(folder, "report")


def tried(what, action):
    try:
        action()
    except Exception as cause:
        print("FAILED", cause)
    else:
        print(what)


def write(df, table=None, **options):
    writer = df.write.format("rabbitmq").options(**{"url": url, "exchange": "x", **options}).mode("append")
    tried("WRITTEN", writer.save if table is None else lambda: writer.saveAsTable(table))


def fail_once(batches):
    context = TaskContext.get()
    for batch in batches:
        yield batch
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("once")


write(df, exchange="nope")
write(df, url=url.replace(password, password + "x"))
write(bad, url=user, password=password)
login = {"url": user, "password": password}
for read in (spark.read, spark.read.schema("a int")):
    tried("READ", lambda: read.format("rabbitmq").options(**login).load().collect())
tried("READ", spark.read.format("rabbitmq").options(**login, queue="free").load)
for queue in ("q1", "alone", "free"):
    tried("DRAINED", lambda: drain(spark, {**login, "queue": queue}, lambda df: df.collect()))
write(df, url=user, passwordEnv="SECRET_OF_RABBIT", exchange="nope")
write(df, onSpeculation="fail")
write(df, ordering="per-key")
write(df, table="t", reportPath=str(report))
write(df, url=user, passwordEnv="SECRET_OF_RABBIT", reportPath=str(report))
write(df, url=user, passwordFile=secret_file, reportPath=str(report))
write(df, url=user, passwordEnv="RABBIT_PW", reportPath=str(report / "pw.json"))
failing, named = df.mapInArrow(fail_once, df.schema), {"messageId": "auto", "writeName": "orders of monday"}
for _ in range(2):
    write(failing, **named, exchange="twice", reportPath=str(report / "twice.json"))

stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
query = (
    stream.selectExpr("string(value) AS key", "string(value) AS value")
    .writeStream.format("rabbitmq")
    .options(url=user, password=password, exchange="x", reportPath=str(report))
    .option("checkpointLocation", str(Path(folder, "checkpoint")))
    .trigger(once=True)
    .start()
)
query.awaitTermination()
print(query.lastProgress)
query.explain(extended=True)

of_stream = {"url": stream_url.replace(f":{password}@", "@"), "password": password, "stream": "s"}
rows = spark.read.format("rabbitmq").options(**of_stream).load()
rows.explain(extended=True)
print("READ", rows.count())
reading = spark.readStream.format("rabbitmq").options(**of_stream, startingOffsets="earliest").load()
query = (
    reading.writeStream.format("noop")
    .option("checkpointLocation", str(Path(folder, "reading")))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(query.lastProgress)
query.explain(extended=True)

ui = spark.sparkContext.uiWebUrl
api = f"api/v1/applications/{spark.sparkContext.applicationId}"
for page in (
    *("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "SQL/execution/?id=0", "StreamingQuery/"),
    *("api/v1/applications", f"{api}/jobs", f"{api}/stages?details=true", f"{api}/executors", f"{api}/environment"),
    *(f"{api}/sql?details=true&planDescription=true&length=1000", f"{api}/logs"),
):
    with urllib.request.urlopen(f"{ui}/{page}", timeout=60) as answer:
        Path("ui", page.replace("/", "-")).write_bytes(answer.read())
spark.stop()
"""


@pytest.mark.slow
def test_no_password_is_written_and_a_second_attempt_is_counted_and_has_the_same_ids(
    vhost: RunningBroker, channel: Any, consumed: Consumed, tmp_path: Path
) -> None:
    """The user may write to `x` and to `twice`, and read `alone`, `free` and `s`."""
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "s", b"a row")
    channel.exchange_declare("twice", "x-consistent-hash")
    channel.queue_bind("q1", "twice", "1")
    for queue in ("alone", "free"):
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"1")
        channel.basic_publish("", queue, b"2")
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("alone", lambda *_: None, consumer_tag="alone", exclusive=True)
    management, name = Management(str(vhost.management_url)), vhost.url.rpartition("/")[2]
    written, secret = tmp_path / "written", tmp_path / "password"
    secret.write_text(f"{CANARY}\n")
    for folder in ("report", "ui"):
        (written / folder).mkdir(parents=True)
    with canary_user(management, name, "") as user:
        rights = {"configure": "^$", "write": "^(x|twice)$", "read": "^(alone|free|s)$"}
        management.request("PUT", "permissions", name, user, body=rights)
        url, stream_url = (with_login(url, user, CANARY) for url in (vhost.url, vhost.stream_url))
        run_in_folder(
            JOB, written, [url, CANARY, str(secret), stream_url], SECRET_OF_RABBIT=CANARY, RABBIT_PW=CANARY
        )
    channel.basic_cancel("alone")
    assert traces_of_canary(written) == []
    stdout = (written / "stdout").read_text()
    assert stdout.count("FAILED") == 11
    assert "onSpeculation is fail: set spark.speculation to false" in stdout
    assert "ordering is per-key: set spark.speculation to false" in stdout
    assert stdout.count("InputError: option 'queue'") == stdout.count("DRAINED") == 1
    assert "access to queue 'q1'" in stdout
    assert "one consumer has the queue for itself" in stdout
    assert stdout.count("InputError: option 'stream' is missing") == 2
    assert stdout.count("WRITTEN") == 6
    assert stdout.count("READ 1\n") == 1
    assert " DEBUG " in (written / "stderr").read_text()
    assert "AppendData" in next((written / "ui").glob("*-sql*")).read_text()
    logged = "".join(file.read_text() for file in (written / "events").rglob("*") if file.is_file())
    assert "SparkListenerJobEnd" in logged
    assert "AppendData" in logged
    assert '"spark.executorEnv.RABBIT_PW":"in-clear"' in logged
    assert "spark.executorEnv.RABBIT_PASSWORD" in logged
    assert "is-masked" not in logged
    reports = [json.loads(file.read_text()) for file in (written / "report").glob("*.json")]
    assert len([report for report in reports if not report["failed"]]) == 6
    notes = " ".join(json.loads((written / "report" / "pw.json").read_text())["notes"])
    assert "copies of a task publish its rows again" in notes
    assert "if it is set as spark.executorEnv.RABBIT_PW, Spark shows the password" in notes

    twice = json.loads((written / "report" / "twice.json").read_text())
    assert [(task["partition"], task["attempt"], task["confirmed"]) for task in twice["tasks"]] == [
        (0, 0, 50),
        (1, 1, 50),
    ]
    ids = [message.properties.message_id for message in consumed() if message.properties.message_id]
    assert len(set(ids)) == twice["confirmed"] == 100
    assert 200 <= len(ids) <= 300

"""A streaming query whose connections renew OAuth 2 tokens, and no token in anything that Spark writes or shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from canary import traces_of_canary
from exchange_types import CHX
from oauth_broker import oauth_broker
from scripts import run_in_folder
from token_issuer import Issuer

from rabbit_chx import StreamPublisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.docker,
    pytest.mark.extended,
    pytest.mark.pyspark("4.2", "readStream.format('rabbitmq')"),
    pytest.mark.timeout(400),
]

LIFETIME_S = 4
ROWS = 880
"""Each of two tasks writes half of them, in 40 seconds: ten tokens and one more."""
JOB = """
url, stream_url, command, seconds = given
spark = builder.master("local[3]").getOrCreate()
options = {"url": url, "tokenCommand": command}
of_streams = options | {"url": stream_url}


def slow(batches):
    for batch in batches:
        for row in range(batch.num_rows):
            time.sleep(0.09)
            yield batch.slice(row, 1)


started = time.monotonic()
query = (
    spark.readStream.format("rabbitmq")
    .options(**of_streams, stream="s", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    .load()
    .select("key", "value")
    .writeStream.format("rabbitmq")
    .options(**options, exchange="x")
    .option("checkpointLocation", str(Path(folder, "checkpoint")))
    .trigger(processingTime="500 milliseconds")
    .start()
)
rows = spark.range(0, 880, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
rows.mapInArrow(slow, rows.schema).write.format("rabbitmq").options(**options, exchange="x").mode("append").save()
end = started + seconds
while time.monotonic() < end and query.isActive:
    time.sleep(0.5)
query.processAllAvailable()
query.stop()
spark.stop()
"""


@pytest.fixture
def site() -> Iterator[tuple[RunningBroker, Issuer]]:
    with oauth_broker() as (broker, issuer):
        issuer.lifetime_s = LIFETIME_S
        yield broker, issuer


@pytest.mark.slow
def test_a_job_and_a_query_survive_ten_renewals(site: tuple[RunningBroker, Issuer], tmp_path: Path) -> None:
    broker, issuer = site
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("x", CHX, durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "x", "1")
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    with StreamPublisher(broker.stream_url, stream="s") as publisher:
        for first in range(0, ROWS, 20):  # chunks of 20 rows
            keys = [str(row) for row in range(first, first + 20)]
            publisher.publish_many(keys, keys)
    folder = tmp_path / "written"
    url, stream_url = (text.replace("guest:guest@", "robin@") for text in (broker.url, broker.stream_url))
    with issuer.written(tmp_path / "token") as command:
        run_in_folder(JOB, folder, [url, stream_url, command, 11 * LIFETIME_S])
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        declared = connection.channel().queue_declare("q", passive=True)
        assert declared.method.message_count == 2 * ROWS
    assert "SparkListenerJobEnd" in "".join(
        file.read_text() for file in (folder / "events").rglob("*") if file.is_file()
    )
    assert traces_of_canary(folder) == []

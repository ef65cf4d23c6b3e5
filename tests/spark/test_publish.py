"""`publish` and `batch_publisher` with a real Spark and a real broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rabbit_chx.errors import InputError, NotFoundError, PublishError, RowError
from rabbit_chx.routing import HashRing
from spark_connector import batch_publisher, publish
from spark_connector.executor_functions import for_each_partition
from spark_connector.options.write_options import to_texts
from spark_connector.publishing import FinishedTasks, publish_task
from spark_connector.writing.preflight import plan_write

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Frame = Callable[..., DataFrame]
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])


def test_the_report_has_every_row(
    spark: SparkSession, frame: Frame, options: dict[str, object], consumed: Consumed
) -> None:
    computed = spark.sparkContext.accumulator(0)
    once = F.udf(lambda value: (computed.add(1), value)[1], "string")  # type: ignore[func-returns-value]
    report = publish(
        frame(3_000, 3).withColumn("value", once("value")), {**options, "maxInFlight": 200}, RING
    )
    assert report.batch_id is None  # no stream
    assert report.rows == report.confirmed == computed.value == 3_000
    assert [task.partition for task in report.tasks] == [0, 1, 2]
    messages = consumed()
    assert Counter(m.queue for m in messages) == report.predicted
    assert report.ring_provenance == "replayed"
    assert sorted(m.body for m in messages) == sorted(b"body %d" % n for n in range(3_000))


@pytest.mark.usefixtures("channel")
def test_empty_partitions_and_frames_publish_nothing(
    spark: SparkSession, frame: Frame, options: dict[str, object], consumed: Consumed
) -> None:
    assert publish(frame(0), options).rows == 0
    assert publish(spark.createDataFrame([], "key string, value string"), options).rows == 0
    report = publish(frame(1, 4), options)
    assert [task.rows for task in report.tasks] == [0, 0, 0, 1]
    assert len(consumed()) == 1


@pytest.mark.usefixtures("channel")
def test_nothing_is_computed_before_all_is_checked(spark: SparkSession, options: dict[str, object]) -> None:
    costly = spark.range(3).select(
        F.raise_error(F.lit("computed")).cast("string").alias("value"), F.lit("k").alias("key")
    )
    with pytest.raises(InputError, match="column 'city' is not part of a message"):
        publish(costly.withColumn("city", F.lit(1)), options)
    with pytest.raises(NotFoundError, match="exchange 'nope' does not exist"):
        publish(costly, {**options, "exchange": "nope"})
    with pytest.raises(InputError, match="unknown option"):
        batch_publisher({**options, "colour": "red"})
    # What is not ours comes as it is: by version, of py4j or PySpark.
    with pytest.raises(Exception, match="computed"):
        publish(costly, options)


@pytest.mark.extended
@pytest.mark.usefixtures("channel")
def test_the_error_of_a_task_is_one_line(
    spark: SparkSession, frame: Frame, options: dict[str, object], configure: Callable[[str, str], None]
) -> None:
    configure("spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "true")
    nulls = frame().withColumn("key", F.expr("if(value = 'body 700', null, key)"))
    with pytest.raises(RowError) as caught:
        publish(nulls, options)
    assert str(caught.value).startswith("partition 1: row 200: column 'key' is null")
    assert "\n" not in str(caught.value)
    plan = plan_write(to_texts(options, None), nulls.schema)
    with pytest.raises(PySparkException) as whole:  # what publish has made a line of
        for_each_partition(nulls, publish_task, plan, FinishedTasks.of(spark))
    assert "task_writer.py" in str(whole.value)
    assert "guest:guest" not in str(whole.value)


def test_a_failure_reports_the_known_facts(
    frame: Frame, options: dict[str, object], channel: BlockingChannel, tmp_path: Path
) -> None:
    """Two tasks run at a time, so the third, whose only key no queue takes, begins when one of the others is
    done.
    """
    channel.queue_bind("q1", "amq.direct", "bound")
    rows = frame(90, 3).withColumn("key", F.expr("if(value = 'body 89', 'nowhere', 'bound')"))
    rows = rows.where("int(substr(value, 6)) < 60 OR key = 'nowhere'")
    path = tmp_path / "report.json"
    options = {**options, "exchange": "amq.direct", "preflight": False, "reportPath": str(path)}
    with pytest.raises(
        PublishError, match=r"^partition 2: exchange 'amq.direct': no queue took 1 "
    ) as caught:
        publish(rows, options)
    assert "guest:guest" not in str(caught.value)
    report = json.loads(path.read_text())
    assert (report["failed"], report["unfinished"]) == (True, None)
    assert "no queue took 1 of the messages" in report["notes"][-1]
    known = caught.value.report
    assert known.returned == 1
    assert known.confirmed == report["confirmed"] >= 30
    assert {task["partition"] for task in report["tasks"]} <= {0, 1}


def test_a_stream_is_refused_where_a_batch_is_meant(spark: SparkSession, options: dict[str, object]) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("'k' AS key", "'v' AS value")
    with pytest.raises(InputError, match=r"publish takes a batch: for a stream, use writeStream"):
        publish(stream, options)

"""`queue_for` and `place` with a real Spark, and order in real queues."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import groupby
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from slotted import declare_slots

from rabbit_chx.broker import Broker, DiagnosticsRing
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, SlotTable
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.testing import RunningBroker
from spark_connector import (
    place,
    place_for_streams,
    publish,
    queue_for,
)
from spark_connector.placing.placement import Placement, _partition_column, salts

pytestmark = [pytest.mark.spark]

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
HOLED = HashRing.from_buckets(["q1", None, "q2", ExchangeRef("slot"), None, "q1", "q2"])

_REFS = [ExchangeRef(f"x.slot.{n:02}") for n in range(12)]
SLOTS = SlotTable(HashRing.from_bindings([(slot, 1) for slot in _REFS]), {}).reassigned(
    {"q1": 1, "q2": 2, "q3": 3}
)
#: One slot without a queue, and an exchange that is no slot.
PARTLY = SlotTable(
    HashRing.from_buckets([*_REFS, ExchangeRef("audit")]),
    {slot: queue for slot, queue in SLOTS.owners.items() if slot != _REFS[3]},
    frozenset([ExchangeRef("audit")]),
)
MODULUS = ModulusHashExchange("bills", [(f"q{n}", "") for n in (10, 2, 1)], None, "read")


def frame(spark: SparkSession, rows: int = 1_000, keys: int = 50) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(f"concat('key ', id % {keys}) AS key", "string(id) AS value")


def test_the_queue_of_each_key_is_that_of_the_ring(spark: SparkSession) -> None:
    """Of each kind of map, by a name or a column of text or bytes, in one job."""
    keys = [f"key {n}" for n in range(300)]
    df = spark.createDataFrame([(key,) for key in [*keys, None]], "key string")
    maps: list[KeyMap] = [RING, HOLED, SLOTS, PARTLY, MODULUS]
    columns = [queue_for("key", ring).alias(f"queue {n}") for n, ring in enumerate(maps)]
    columns += [queue_for(F.encode("key", "utf-8"), ring.to_json()) for ring in maps]
    for key, *queues in df.select("key", *columns).collect():
        names = [None if key is None else ring.destination_for(key) for ring in maps]
        assert queues == [None if name is None else str(name) for name in names] * 2


@pytest.mark.pyspark("4.0", "collations")
def test_rows_for_streams_are_sorted_by_their_bytes_and_those_of_a_hole_come_last(
    spark: SparkSession,
) -> None:
    ring = HashRing.from_buckets(["s0", None, "s1"])
    key = "coalesce(collate(concat(if(id % 2 = 0, 'Key ', 'key '), id % 50), 'UTF8_LCASE'), '') AS key"
    placed = place_for_streams(spark.range(0, 1_000, 1, 2).selectExpr(key, "string(id) AS value"), ring)
    assert placed.rdd.getNumPartitions() == 3
    rows = placed.select(F.spark_partition_id(), F.col("key").cast("binary"), "value").collect()
    found = [(partition, bytes(key), value) for partition, key, value in rows]
    assert len(found) == 1_000
    assert found == sorted(found)
    of_hole = [ring.destination_for(key) is None for _, key, _ in found]
    assert of_hole == [partition == 2 for partition, _, _ in found]
    assert any(of_hole)


@pytest.mark.parametrize("salted", [False, True])
@pytest.mark.parametrize(
    ("ring", "arguments"),
    [
        (RING, {}),
        (RING, {"slices": {"q3": 3, "q1": 2}}),
        (SLOTS, {"partitions": 11}),
        (MODULUS, {}),
    ],
    ids=["a queue", "slices", "slots", "modulus"],
)
def test_each_partition_has_one_queue_and_each_key_one_partition(
    spark: SparkSession,
    ring: KeyMap,
    arguments: dict[str, Any],
    *,
    salted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    df = frame(spark)
    if salted and hasattr(type(df), "repartitionById"):
        monkeypatch.delattr(type(df), "repartitionById")  # as before PySpark 4.1
        monkeypatch.delattr("pyspark.sql.DataFrame.repartitionById", raising=False)
    placed = place(df, ring, **arguments)
    placement = Placement.of(ring, **arguments)
    assert placed.columns == df.columns
    assert placed.rdd.getNumPartitions() == placement.partitions + df.schema["key"].nullable
    rows = placed.groupBy(F.spark_partition_id().alias("partition"), "key").count().collect()
    assert sum(row["count"] for row in rows) == 1_000
    assert len(rows) == len({row.key for row in rows}) == 50
    for row in rows:
        queue = bisect_right(placement.offsets, row.partition) - 1
        assert ring.destinations[queue] == ring.destination_for(row.key)


def test_spark_sends_each_salt_where_it_should_go(spark: SparkSession) -> None:
    for partitions in (2, 7, 64):
        rows = list(enumerate(salts(partitions)))
        df = spark.createDataFrame(rows, "partition int, salt int").repartition(partitions, "salt")
        placed = df.select("partition", F.spark_partition_id()).collect()
        assert [wanted for wanted, got in placed if wanted != got] == []
    column = _partition_column(F.col("key"), RING, Placement.of(RING, partitions=9), salted=True)
    assert frame(spark).select("key", column).distinct().count() == 50  # deterministic


def test_rows_without_a_queue_are_together_and_last(spark: SparkSession) -> None:
    df = frame(spark).withColumn("key", F.expr("if(key = 'key 3', null, key)"))
    placed = place(df, RING, slices={"q2": 2})
    rows = placed.select(F.spark_partition_id().alias("partition"), "key").distinct().collect()
    assert {row.partition for row in rows if row.key is None} == {4}
    assert {row.key for row in rows if row.partition == 4} == {None}
    assert placed.rdd.getNumPartitions() == 5


def test_what_cannot_be_placed_is_refused(spark: SparkSession) -> None:
    df = frame(spark)
    with pytest.raises(PySparkException, match=r"holds no keys|neither text nor bytes|not an array of keys"):
        df.select(queue_for(F.length("key"), RING)).collect()
    wrong: Any = 5
    stream = spark.readStream.format("rate").load()
    for place_wrongly, words in (
        (lambda: queue_for("key", HashRing.from_buckets([])), "the ring has no buckets"),
        (lambda: queue_for("key", wrong), "is not a ring: pass a HashRing"),
        (lambda: place(df, RING, key="k"), r"'k' is missing: .* with key= \(columns are: 'key', 'value'\)"),
        (
            lambda: place(df.selectExpr("1 AS n"), RING, key="N"),
            "'n' is int, not string or binary: use `cast",
        ),
        (lambda: place(df, RING, wrong), "by is 5: 'queue' is the only choice"),
        (lambda: place(stream, RING, order_by="value"), "order_by: Spark does not sort streaming frames"),
        (lambda: place_for_streams(df.drop("value"), RING), "column 'value' is missing"),
    ):
        with pytest.raises(InputError, match=words):
            place_wrongly()


@pytest.mark.broker
def test_keys_stay_in_order(spark: SparkSession, vhost_url: str, consumed: Consumed) -> None:
    shuffled = frame(spark, rows=6_000).orderBy(F.rand(seed=1)).repartition(4)
    ordered = place(shuffled, RING, slices={"q3": 2}, order_by=F.col("value").cast("int"))
    report = publish(ordered, {"url": vhost_url, "exchange": "x"}, RING)
    assert [len(task.predicted) for task in report.tasks][:4] == [1] * 4
    messages = consumed()
    assert all(RING.destination_for(m.key) == m.queue for m in messages)
    by_key = groupby(sorted(messages, key=lambda m: m.key), key=lambda m: m.key)  # sorted is stable
    sequences = {key: [int(m.body) for m in of_key] for key, of_key in by_key}
    assert sequences == {f"key {n}": list(range(n, 6_000, 50)) for n in range(50)}


@pytest.mark.broker
def test_slots_are_followed_to_their_queues(
    spark: SparkSession, vhost: RunningBroker, channel: BlockingChannel, consumed: Consumed
) -> None:
    declare_slots(channel, "events", 12, ["q1", "q2", "q3"])
    options = {"url": vhost.url, "exchange": "events"}
    assert vhost.ring_via is not None
    with Broker(vhost.url, vhost.management_url, DiagnosticsRing(vhost.ring_via)) as broker:
        slots = broker.slots("events")
        placed = place(frame(spark, rows=600), slots, order_by=F.col("value").cast("int"))
        report = publish(placed, options, lambda: broker.slots("events"))
        messages = consumed()
        assert all(slots.destination_for(m.key) == m.queue for m in messages)
        assert Counter(m.queue for m in messages) == report.predicted
        assert (report.ring_provenance, report.notes) == ("read", ())

        def moved_meanwhile() -> SlotTable:
            table = broker.slots("events")
            channel.queue_bind("q2", "events.slot.00", "")
            channel.queue_unbind("q1", "events.slot.00", "")
            return table

        report = publish(placed, options, moved_meanwhile)
        share = slots.ring.shares()[slots.slots[0]]
        (note,) = report.notes
        assert note.startswith(
            f"the slots or the ring have changed, and {share:.1%} of all keys changed queue"
        )

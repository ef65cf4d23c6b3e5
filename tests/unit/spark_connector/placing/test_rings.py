"""The ring of a write: predicted, and watched for changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import InputError, RingSourceError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.placement import Placement, partition_numbers, queue_names
from spark_connector.placing.rings import WatchedRing, as_ring, count_by_queue
from spark_connector.reports import TaskReport
from spark_connector.writing.commit import commit_write
from spark_connector.writing.write_plan import WritePlan

KEYS = [f"key {n}" for n in range(500)]


def test_rows_are_counted_at_the_queue_of_their_key() -> None:
    ring = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 5)])
    expected = Counter(str(ring.destination_for(key)) for key in KEYS)
    assert count_by_queue(ring, pa.array(KEYS)) == expected
    assert count_by_queue(ring, [key.encode() for key in KEYS]) == expected


def test_nulls_and_holes_have_no_queue() -> None:
    ring = HashRing.from_buckets(["q1", None, "q2"])
    keys = [*KEYS, None, None]
    names = ["(no queue)" if key is None else ring.destination_for(key) or "(no queue)" for key in keys]
    assert count_by_queue(ring, pa.array(keys)) == Counter(names)
    found = queue_names(ring.to_json(), pa.array(keys)).to_pylist()
    assert found == [None if name == "(no queue)" else name for name in names]


BEFORE = HashRing.from_bindings([("q1", 1), ("q2", 1)])
AFTER = HashRing.from_bindings([("q2", 1), ("q1", 1)])


def test_a_ring_that_is_not_read_adds_nothing() -> None:
    assert WatchedRing(None).ring is None
    assert WatchedRing(None).check_again() is None
    assert WatchedRing(BEFORE.to_json()).ring == BEFORE
    assert WatchedRing(BEFORE).check_again() is None
    with pytest.raises(InputError, match="no buckets"):
        WatchedRing(lambda: HashRing.from_bindings([]))


def test_a_ring_in_another_order_is_noticed_and_is_the_ring_from_then_on() -> None:
    rings = iter([BEFORE, BEFORE, AFTER, AFTER])
    watched = WatchedRing(lambda: next(rings))
    assert watched.check_again() == "the ring is the same as before"
    assert "the ring has changed, and 100.0% of all keys" in str(watched.check_again())
    assert watched.ring == AFTER
    assert watched.check_again() == "the ring is the same as before"


def test_a_ring_that_cannot_be_read_again_is_reported() -> None:
    rings = iter([BEFORE])

    def read() -> HashRing:
        for ring in rings:
            return ring
        raise OSError("no docker")

    assert WatchedRing(read).check_again() == (
        "the ring could not be read again, so it may have changed: no docker"
    )


@pytest.mark.parametrize("reconnects", [0, 2])
def test_it_is_read_again_where_connections_were_lost(reconnects: int) -> None:
    rings = iter([BEFORE, AFTER])
    watched = WatchedRing(lambda: next(rings))
    options = WriteOptions.parse({"url": "amqp://h", "exchange": "x", "ring": BEFORE.to_json()})
    schema = StructType().add("key", StringType()).add("value", StringType())
    plan = WritePlan(MessageColumns.of(schema, options), options)
    report = commit_write(
        plan, [TaskReport(0, 0, publish_report=PublishReport(reconnects=reconnects))], ring=watched
    )
    assert [note.partition(": ")[0] for note in report.notes] == (
        ["connections were lost and opened again (2)"] if reconnects else []
    )
    assert all("the ring has changed" in note for note in report.notes)


def test_a_change_reports_which_rows_may_be_in_the_wrong_queue() -> None:
    rings = iter([AFTER, AFTER])
    watched = WatchedRing.since(BEFORE, lambda: next(rings))
    queue = BEFORE.destinations[0]
    change = str(watched.change({str(queue): 12}))
    assert "the ring has changed during the write: 100.0% of all keys have another queue now" in change
    assert f"and 12 messages went to {queue}" in change
    assert watched.change({}) is None


def test_a_ring_of_the_same_queues_with_another_weight_is_a_change() -> None:
    heavier = HashRing.from_bindings([("q1", 1), ("q2", 3)])
    assert "the ring has changed during the write" in str(
        WatchedRing.since(BEFORE, lambda: heavier).change({})
    )


def test_a_ring_that_cannot_be_read_again_is_a_change() -> None:
    def read() -> HashRing:
        raise RingSourceError("no such container")

    assert WatchedRing.since(BEFORE, read).change({}) == (
        "the ring could not be read again, so rows may have gone to a queue that no longer has their keys: no such container"
    )


def test_an_exchange_serves_as_its_ring_if_it_hashes_the_routing_key() -> None:
    assert WatchedRing(lambda: ConsistentHashExchange("x", BEFORE)).ring == BEFORE
    by_header = ConsistentHashExchange("x", BEFORE, arguments={"hash-header": "tenant"})
    with pytest.raises(InputError, match=r"'x' hashes .*tenant"):
        WatchedRing(lambda: by_header)


MODULUS = ModulusHashExchange("bills", [("q1", "1"), ("q2", "1"), ("q1", "2")], Release("4.3.6"), "read")


def test_a_modulus_exchange_names_the_queue_of_each_key_and_places_it() -> None:
    shipped = MODULUS.to_json()
    keys = pa.array([*KEYS, None])
    expected = [*map(MODULUS.route, KEYS), None]

    assert queue_names(shipped, keys).to_pylist() == expected
    placement = Placement.of(as_ring(shipped), spare=True)
    numbers = partition_numbers(shipped, placement, None, keys).to_numpy().tolist()
    assert [(*MODULUS.destinations, None)[number] for number in numbers] == expected
    assert numbers[-1] == placement.partitions - 1


def test_a_modulus_exchange_without_bindings_or_without_an_order_predicts_nothing() -> None:
    with pytest.raises(InputError, match="has no buckets or bindings"):
        as_ring(ModulusHashExchange("bills", []))
    with pytest.raises(InputError, match="in an order that cannot be computed"):
        as_ring(ModulusHashExchange("bills", [("a", ""), ("b", "")], Release("4.1.0", "khepri")))


def test_a_modulus_exchange_is_watched_like_a_ring() -> None:
    fewer = ModulusHashExchange("bills", [("q1", ""), ("q2", "")], Release("4.3.6"), "read")
    rings: Iterator[KeyMap] = iter([MODULUS, MODULUS, fewer, BEFORE])
    watched = WatchedRing(lambda: next(rings))

    assert count_by_queue(MODULUS, pa.array(KEYS)) == Counter(map(str, map(MODULUS.route, KEYS)))
    assert watched.change({}) is None
    assert "50.0% of all keys have another queue now" in str(watched.change({"q1": 7}))
    assert "has another type or slots now" in str(watched.change({}))
    assert WatchedRing(MODULUS.to_json()).ring == MODULUS
    noted: Iterator[KeyMap] = iter([MODULUS, fewer, BEFORE])
    watched = WatchedRing(lambda: next(noted))
    assert "50.0% of all keys changed queue" in str(watched.check_again())
    assert "100.0% of all keys changed queue" in str(watched.check_again())
    options = WriteOptions.parse({"url": "amqp://h", "exchange": "bills", "ring": MODULUS.to_json()})
    assert options.ring == MODULUS

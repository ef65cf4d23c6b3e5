"""A table of slots where the connector takes a ring: partitions and predictions are by queue. Without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.placement import Placement, queue_names
from spark_connector.placing.rings import NO_QUEUE, WatchedRing, as_ring, count_by_queue

SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(8)]
RING = HashRing.from_bindings([(slot, 1) for slot in SLOTS])
TABLE = SlotTable(RING, {}).reassigned({"a": 1, "b": 3})
KEYS = [f"key-{n}" for n in range(400)]


def test_queues_are_predicted() -> None:
    expected = [TABLE.destination_for(key) for key in KEYS]
    assert queue_names(TABLE.to_json(), pa.array(KEYS)).to_pylist() == expected
    assert count_by_queue(TABLE, pa.array(KEYS)) == Counter(expected)
    partly = SlotTable(RING, {SLOTS[0]: "a"})
    assert set(count_by_queue(partly, pa.array(KEYS))) == {"a", NO_QUEUE}


def test_partitions_are_those_of_the_queues() -> None:
    assert Placement.of(TABLE).slices == (1,) * len(TABLE.destinations)
    assert Placement.of(TABLE, partitions=8).slices == tuple(
        {"a": 2, "b": 6}[str(queue)] for queue in TABLE.destinations
    )
    with pytest.raises(InputError, match=r"'e.slot.00', which is not in the ring: it has"):
        Placement.of(TABLE, slices={"e.slot.00": 2})


def test_the_option_takes_the_json_of_a_table() -> None:
    options = {"url": "amqp://h", "exchange": "e", "ring": TABLE.to_json()}
    assert WriteOptions.parse(options).ring == TABLE
    unowned = SlotTable(RING, {})
    with pytest.raises(InputError, match="no buckets or bindings, or its slots no queue"):
        WriteOptions.parse({**options, "ring": unowned.to_json()})
    with pytest.raises(InputError, match="no buckets or bindings, or its slots no queue"):
        as_ring(unowned)


def test_slots_that_change_hands_are_noticed_without_a_lost_connection() -> None:
    moved = TABLE.reassigned({"a": 2, "b": 2})
    tables = iter([TABLE, TABLE, moved, moved])
    watched = WatchedRing(lambda: next(tables))
    assert watched.may_change_unseen
    assert watched.check_again(report_unchanged=False) is None
    assert watched.check_again(report_unchanged=False) == (
        f"the slots or the ring have changed, and {TABLE.share_moved(moved):.1%} of all keys changed queue during the write: "
        "rows by predicted queue are wrong"
    )
    assert watched.check_again() == "the ring is the same as before"
    assert not WatchedRing(RING).may_change_unseen


def test_a_ring_that_becomes_slots_is_compared_by_queue() -> None:
    plain = HashRing.from_bindings([("a", 1), ("b", 3)])
    given: Iterator[KeyMap] = iter([plain, TABLE])
    watched = WatchedRing(lambda: next(given))
    assert f"{TABLE.share_moved(plain):.1%} of all keys" in str(watched.check_again())

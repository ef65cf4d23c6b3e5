"""Which partition has which queue, or which slice of a queue."""

from __future__ import annotations

import numpy as np
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from spark_connector.placing.placement import Placement, salts

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 5)])


def test_one_partition_for_each_queue() -> None:
    placement = Placement.of(RING)
    assert placement.partitions == 3
    assert not placement.needs_hashes
    assert placement.partitions_of(np.array([2, 0, 1], np.int32)).tolist() == [2, 0, 1]


def test_slices_of_a_heavy_queue_lie_side_by_side() -> None:
    placement = Placement.of(RING, slices={"q2": 3})
    assert placement.offsets == (0, 1, 4)
    indices = np.array([0, 1, 1, 1, 1, 2], np.int32)
    hashes = np.array([7, 0, 1, -1, 5, -9], np.int64)
    assert placement.partitions_of(indices, hashes).tolist() == [0, 1, 2, 3, 3, 4]


def test_rows_without_a_queue_have_the_last_partition() -> None:
    placement = Placement.of(RING, slices={"q1": 2}, spare=True)
    found = placement.partitions_of(np.array([-1, 2], np.int32), np.array([3, 3], np.int64))
    assert found.tolist() == [placement.partitions - 1, 3]


def test_slices_by_share_are_as_even_as_they_can_be() -> None:
    placement = Placement.of(RING, partitions=8)
    assert placement.slices == (1, 2, 5)
    assert Placement.of(RING, partitions=3).slices == (1, 1, 1)
    assert sum(Placement.of(RING, partitions=50).slices) == 50


def test_an_exchange_is_a_queue_with_a_distinct_name() -> None:
    ring = HashRing.from_buckets(["slot", ExchangeRef("slot")])
    assert Placement.of(ring, slices={"exchange slot": 2}).slices == (1, 2)


def test_slots_are_placed_by_their_queues() -> None:
    slots = HashRing.from_bindings([(ExchangeRef(f"e.slot.{n:02}"), 1) for n in range(8)])
    table = SlotTable(slots, {}).reassigned({"a": 1, "b": 3})
    assert Placement.of(table).slices == (1, 1)
    slices = Placement.of(table, partitions=8).slices
    assert dict(zip(table.destinations, slices, strict=True)) == {"a": 2, "b": 6}
    with pytest.raises(InputError, match=r"'e.slot.00', which is not in the ring: it has"):
        Placement.of(table, slices={"e.slot.00": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slices": {"q9": 2}}, "slices names the queue 'q9', which is not in the ring: it has q1, q2, q3"),
        ({"slices": {"q1": 0}}, "slices gives the queue 'q1' 0: pass a whole number, 1 or more"),
        ({"slices": {"q1": True}}, "slices gives the queue 'q1' True"),
        ({"slices": 4}, "slices is 4: pass a dict of queue names"),
        ({"partitions": 2}, "partitions is 2: the ring has 3 queues, and each queue needs"),
        ({"partitions": "9"}, "partitions is '9'"),
        ({"partitions": 4, "slices": {"q1": 2}}, "slices and partitions were given"),
    ],
)
def test_numbers_that_cannot_be(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Placement.of(RING, **arguments)  # type: ignore[arg-type]


def test_salts_are_those_that_spark_hashes_to_each_partition() -> None:
    # SELECT pmod(hash(0), 4), pmod(hash(1), 4), ... on Spark 3.5.9 and 4.3.0
    assert salts(1) == (0,)
    assert len(set(salts(200))) == 200
    # Spark's hash(0) is 933211791 and its hash(1) -559580957: pmod goes by the sign.
    assert salts(3) == (0, 1, 11)
    assert salts(7) == (12, 0, 1, 9, 3, 2, 11)

"""Which partition has which queue, or which slice of a queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.placing.placement import Placement, salts

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 5)])
SLOTS = HashRing.from_bindings([(ExchangeRef(f"e.slot.{n:02}"), 1) for n in range(8)])
#: The queue a has 2 slots, and the queue b has 6.
TABLE = SlotTable(SLOTS, {}).reassigned({"a": 1, "b": 3})
OF_ONE_NAME = HashRing.from_buckets(["slot", ExchangeRef("slot")])


@pytest.mark.parametrize(
    ("key_map", "arguments", "slices"),
    [
        (RING, {}, (1, 1, 1)),
        (RING, {"slices": {"q2": 3}}, (1, 3, 1)),
        (RING, {"partitions": 3}, (1, 1, 1)),
        (RING, {"partitions": 8}, (1, 2, 5)),
        (RING, {"partitions": 50}, (7, 12, 31)),
        (OF_ONE_NAME, {"slices": {"exchange slot": 2}}, (1, 2)),
        (TABLE, {}, (1, 1)),
        (TABLE, {"partitions": 8}, (2, 6)),
    ],
)
def test_a_queue_has_one_partition_or_its_slices(
    key_map: KeyMap, arguments: dict[str, Any], slices: tuple[int, ...]
) -> None:
    placement = Placement.of(key_map, **arguments)
    assert placement.slices == slices
    assert placement.needs_hashes == (max(slices) > 1)


def test_slices_lie_side_by_side_and_rows_without_a_queue_have_the_last_partition() -> None:
    indices, hashes = np.array([0, 1, 1, 1, 1, 2, -1], np.int32), np.array([7, 0, 1, -1, 5, -9, 3], np.int64)
    sliced = Placement.of(RING, slices={"q2": 3}, spare=True)
    assert sliced.partitions_of(indices, hashes).tolist() == [0, 1, 2, 3, 3, 4, sliced.partitions - 1]
    assert Placement.of(RING).partitions_of(indices[[5, 0, 1]]).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slices": {"q9": 2}}, "slices names queue 'q9', and the ring has q1, q2, q3"),
        ({"slices": {"q1": 0}}, "slices gives the queue 'q1' 0: pass a whole number, 1 or more"),
        ({"slices": {"q1": True}}, "slices gives the queue 'q1' True"),
        ({"slices": 4}, "slices is 4: pass a dict of queues and numbers"),
        ({"partitions": 2}, "partitions is 2: the ring has 3 queues, and each queue needs"),
        ({"partitions": "9"}, "partitions is '9'"),
        ({"partitions": 4, "slices": {"q1": 2}}, "slices and partitions were given"),
        ({"ring": TABLE, "slices": {"e.slot.00": 2}}, "'e.slot.00', and the ring has"),
    ],
)
def test_numbers_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Placement.of(**{"ring": RING, **arguments})


def test_salts_are_those_that_spark_hashes_to_each_partition() -> None:
    # SELECT pmod(hash(0), 4), pmod(hash(1), 4), ... on Spark 3.5.9 and 4.3.0
    assert salts(1) == (0,)
    assert len(set(salts(200))) == 200
    # Spark's hash(0) is 933211791 and its hash(1) -559580957: pmod goes by the sign.
    assert salts(3) == (0, 1, 11)
    assert salts(7) == (12, 0, 1, 9, 3, 2, 11)

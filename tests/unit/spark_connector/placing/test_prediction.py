"""Predicted queues, counted."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from rabbit_chx.routing import HashRing
from spark_connector.placing.placement import queue_names
from spark_connector.placing.rings import count_by_queue

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

"""Rows are compared with the mirror: what is counted as what, and where the others belong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable, SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.streams import stream_parity
from rabbit_chx.streams.rows import schema_of

RING = HashRing.from_bindings([("s0", 1), ("s1", 2)])
SLOTS = SlotTable(
    HashRing.from_bindings([(ExchangeRef("slot.0"), 1), (ExchangeRef("slot.1"), 2)]),
    {ExchangeRef("slot.0"): "s0", ExchangeRef("slot.1"): "s1"},
)
SUPER_STREAM = SuperStream(["s0", "s1"])
KEYS = [f"user-{n % 50}".encode() for n in range(300)]


def rows(keys: Sequence[bytes | None], exchange: str | None = "orders", first: int = 0) -> pa.RecordBatch:
    columns: list[Any] = [
        pa.array(range(first, first + len(keys)), pa.int64()),
        pa.nulls(len(keys), pa.timestamp("us", "UTC")),
        pa.array(keys, pa.binary()),
        pa.array([b""] * len(keys), pa.binary()),
        pa.array([exchange] * len(keys), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(["exchange"]))


def place_of(placing: KeyMap, key: bytes) -> Any:
    return placing.partition_for(key) if isinstance(placing, SuperStream) else placing.destination_for(key)


@pytest.mark.parametrize("placing", [RING, SLOTS, SUPER_STREAM], ids=["ring", "slots", "super-stream"])
def test_each_row_is_in_the_predicted_queue_or_is_reported(placing: KeyMap) -> None:
    wrong = [(offset, key, place_of(placing, key)) for offset, key in enumerate(KEYS)]
    wrong = [row for row in wrong if row[2] != "s0"]
    found = stream_parity("s0", [rows(KEYS[:120]), rows(KEYS[120:], first=120)], placing, "orders")
    assert (found.rows, found.right, found.wrong) == (300, 300 - len(wrong), len(wrong))
    assert 20 < found.wrong < 300
    assert found.examples == tuple(wrong[:20])
    assert (found.without_key, found.other_exchange) == (0, 0)


def test_a_row_by_key_is_right_in_each_partition_that_is_bound_with_it() -> None:
    placing = SuperStream(["s0", "s1", "s2"], ["one", "two", "two"], routing="key")
    keys = [b"one", b"two", b"none", b"two"]
    counts = {}
    for stream, bound in zip(placing.partitions, placing.binding_keys, strict=True):
        found = stream_parity(stream, [rows(keys)], placing, "orders")
        counts[stream] = (found.right, found.wrong)
        assert {row[1] for row in found.examples} == set(keys) - {bound.encode()}
    assert counts == {"s0": (1, 3), "s1": (2, 2), "s2": (2, 2)}


def test_rows_that_cannot_be_compared_are_counted() -> None:
    """The message id may be the key."""
    ring = HashRing.from_bindings([("s0", 1)])
    batches = [
        rows([None, b"k", None]),
        rows([b"k", None], exchange="another", first=3),
        rows([b"k"], exchange=None, first=5),
        rows([], first=6),
    ]
    found = stream_parity("s0", batches, ring, "orders")
    assert (found.rows, found.right, found.wrong) == (6, 1, 0)
    assert (found.without_key, found.other_exchange) == (3, 2)
    ids = pa.array(["k", "k", None], pa.string())
    batches = [
        rows([None, b"k", None], each).append_column("message_id", ids) for each in (None, "orders", "x")
    ]
    found = stream_parity("s0", batches, ring, "orders", key_column="message_id")
    assert (found.rows, found.right, found.without_key, found.other_exchange) == (9, 4, 3, 2)


def test_a_bucket_without_a_destination_is_nowhere_and_a_stream_outside_of_the_ring_has_no_right_row() -> (
    None
):
    ring = HashRing.from_buckets(["s0", None, "s1"])  # two buckets exist, so keys go to the first two
    found = stream_parity("s0", [rows(KEYS)], ring, "orders")
    assert found.wrong == sum(ring.destination_for(key) is None for key in KEYS) > 0
    assert {row.belongs_to for row in found.examples} == {None}
    for placing in (ring, RING):
        found = stream_parity("removed", [rows(KEYS)], placing, "orders", most_examples=3)
        assert (found.right, found.wrong, len(found.examples)) == (0, 300, 3)


@pytest.mark.parametrize(
    ("placing", "key_column", "error", "words"),
    [
        (RING, "message_id", InputError, "have no column message_id"),
        (RING, "value", InputError, "key_column is 'value'"),
        ("ring", "key", InputError, "'ring' is not a ring"),
        (HashRing.from_bindings([]), "key", EmptyRingError, None),
    ],
)
def test_what_cannot_be_compared_is_refused(
    placing: Any, key_column: Any, error: Any, words: str | None
) -> None:
    with pytest.raises(error, match=words):
        stream_parity("s0", [rows(KEYS)], placing, "orders", key_column=key_column)
    with pytest.raises(InputError, match=r"include=\['exchange'\]"):
        stream_parity("s0", [rows(KEYS).drop_columns(["exchange"])], RING, "orders")

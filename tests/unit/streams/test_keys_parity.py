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
    for stream in placing.partitions:
        found = stream_parity(stream, [rows(keys)], placing, "orders")
        counts[stream] = (found.right, found.wrong)
        assert {row[1] for row in found.examples} == set(keys) - {
            placing.binding_keys[int(stream[1])].encode()
        }
    assert counts == {"s0": (1, 3), "s1": (2, 2), "s2": (2, 2)}


def test_rows_that_cannot_be_compared_are_counted() -> None:
    batches = [
        rows([None, b"k", None]),
        rows([b"k", None], exchange="another", first=3),
        rows([b"k"], exchange=None, first=5),
        rows([], first=6),
    ]
    found = stream_parity("s0", batches, HashRing.from_bindings([("s0", 1)]), "orders")
    assert (found.rows, found.right, found.wrong) == (6, 1, 0)
    assert (found.without_key, found.other_exchange) == (3, 2)


def test_the_message_id_may_be_the_key() -> None:
    ids = pa.array(["k", "k", None], pa.string())
    batches = [
        rows([None, b"k", None], exchange).append_column("message_id", ids)
        for exchange in (None, "orders", "x")
    ]
    found = stream_parity(
        "s0", batches, HashRing.from_bindings([("s0", 1)]), "orders", key_column="message_id"
    )
    assert (found.rows, found.right, found.without_key, found.other_exchange) == (9, 4, 3, 2)


def test_a_bucket_without_a_destination_is_nowhere() -> None:
    ring = HashRing.from_buckets(["s0", None, "s1"])  # two buckets exist, so keys go to the first two
    found = stream_parity("s0", [rows(KEYS)], ring, "orders")
    assert found.wrong == sum(ring.destination_for(key) is None for key in KEYS) > 0
    assert {row.belongs_to for row in found.examples} == {None}
    assert stream_parity("removed", [rows(KEYS)], ring, "orders").right == 0


def test_no_row_of_a_stream_outside_of_the_ring_is_right() -> None:
    found = stream_parity("removed", [rows(KEYS)], RING, "orders", most_examples=3)
    assert (found.right, found.wrong, len(found.examples)) == (0, 300, 3)


@pytest.mark.parametrize(
    ("placing", "how", "error", "words"),
    [
        (RING, {"key_column": "message_id"}, InputError, "have no column message_id"),
        (RING, {"key_column": "value"}, InputError, "key_column is 'value'"),
        (RING, {"without": ["exchange"]}, InputError, r"include=\['exchange'\]"),
        ("ring", {}, InputError, "'ring' is not a ring"),
        (HashRing.from_bindings([]), {}, EmptyRingError, None),
    ],
)
def test_what_cannot_be_compared_is_refused(placing: Any, how: Any, error: Any, words: str | None) -> None:
    how = dict(how)
    batch = rows(KEYS).drop_columns(how.pop("without", []))
    with pytest.raises(error, match=words):
        stream_parity("s0", [batch], placing, "orders", **how)

"""Ids that are made of what a row holds."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.publishing import stable_ids
from spark_connector.columns import MessageColumns
from spark_connector.writing import messages
from spark_connector.writing.messages import MessageIds

KEY_AND_VALUE = MessageColumns(value=1, key=0, exchange=None, headers=None, properties={})


def ids_of(
    *batches: list[tuple[str, bytes]], write: str = "w", batch_id: int = 0, partition: int = 0
) -> list[str]:
    made = MessageIds(write, batch_id, partition)
    fields: Any = {"key": pa.string(), "value": pa.binary()}
    columns: list[dict[str, Any]] = [
        {"key": [key for key, _ in rows], "value": [value for _, value in rows]} for rows in batches
    ]
    found: list[Any] = [pa.RecordBatch.from_pydict(each, pa.schema(fields)) for each in columns]
    return [name for batch in found for name in made.of(batch, KEY_AND_VALUE, ())]


ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "ab", "b"]), st.sampled_from([b"", b"a", b"bc", b"c"])))


@given(ROWS, st.sampled_from(["w", "w1"]), st.integers(0, 11), st.integers(0, 11), st.integers(1, 5))
def test_the_rule_is_that_of_stable_ids(
    rows: list[tuple[str, bytes]], write: str, batch_id: int, partition: int, size: int
) -> None:
    """However the rows are cut into batches. The name of the write has the micro-batch and the partition, so equal rows of two of them have different ids."""
    name = f"{write}\n{batch_id}\n{partition}\n"
    expected = stable_ids(name, [key for key, _ in rows], [value for _, value in rows])
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    assert ids_of(*batches, write=write, batch_id=batch_id, partition=partition) == expected


def test_each_further_field_is_after_the_key_and_its_length() -> None:
    columns = MessageColumns(value=1, key=None, exchange=0, headers=None, properties={"priority": 2})
    priority = pa.array([None], pa.int32())
    batch = pa.RecordBatch.from_pydict({"exchange": ["ü"], "value": [b"b"], "priority": priority})
    fields = b"\xff\xff\xff\xff" + b"\0\0\0\2\xc3\xbc" + b"\xff\xff\xff\xff"
    row = hashlib.sha256(hashlib.sha256(b"w\n0\n0\nexchange,priority").digest() + fields + b"b")
    assert MessageIds("w", 0, 0).of(batch, columns, ()) == [row.hexdigest()[:32]]


TIME = datetime(2013, 1, 1, tzinfo=UTC)
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "key": (pa.string(), ["a", "b"]),
    "value": (pa.binary(), [b"a", b"b"]),
    "exchange": (pa.string(), ["a", None, ""]),
    "type": (pa.string(), ["a", None, ""]),
    "app_id": (pa.string(), ["a", None, ""]),
    "priority": (pa.int32(), [0, None, 1]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1970, 1, 1, tzinfo=UTC), None, TIME]),
    "headers": (pa.map_(pa.string(), pa.string()), [[], None, [("a", "b")], [("a", None)], [("b", "a")]]),
}


def test_everything_of_a_message_counts_and_the_rest_of_the_batch_does_not() -> None:
    """A column that is null all over a batch is one that is null in this row, and so on."""
    base = {name: values[0] for name, (_, values) in COLUMNS.items()}
    rows = [base] + [{**base, name: value} for name, (_, values) in COLUMNS.items() for value in values[1:]]
    names = list(COLUMNS)
    columns = MessageColumns(
        value=1, key=0, exchange=2, headers=7, properties={name: names.index(name) for name in names[3:7]}
    )

    def ids(some: list[dict[str, Any]]) -> list[str]:
        batch = pa.RecordBatch.from_arrays(
            [pa.array([row[name] for row in some], kind) for name, (kind, _) in COLUMNS.items()], names=names
        )
        headers = [None if row["headers"] is None else dict(row["headers"]) for row in some]
        without = all(found is None for found in headers)
        return MessageIds("w", 0, 0).of(batch, columns, () if without else headers)

    together = ids(rows)
    assert len(set(together)) == len(rows)
    assert [ids([row])[0] for row in rows] == together


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_the_type_that_spark_gives_a_text_does_not_count(kind: Any) -> None:
    values = pa.array([b"\xff", b"v"], pa.large_binary() if "large" in str(kind) else pa.binary()).view(kind)
    batch = pa.RecordBatch.from_arrays([pa.array(["k", "k"]), values], names=["key", "value"])
    found = MessageIds("w", 0, 0).of(batch, KEY_AND_VALUE, ())
    assert found == ids_of([("k", b"\xff"), ("k", b"v")])


def test_large_rows_are_hashed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("k", bytes([n]) * n) for n in range(60)]
    expected = ids_of(rows)
    monkeypatch.setattr(messages, "_SLICE_BYTES", 50)
    assert ids_of(rows) == expected
    assert ids_of([], rows) == expected


def test_hashes_are_remembered_in_few_runs() -> None:
    seen = MessageIds("w", 0, 0)
    hashes = np.arange(5_000, dtype=np.uint64)
    for start in range(0, 5_000, 10):
        assert not seen._count_equal(hashes[start : start + 10]).any()
    assert len(seen._runs) < 10
    assert (seen._count_equal(hashes) == 1).all()
    assert (seen._count_equal(np.repeat(hashes[:2], 2)) == [2, 3, 2, 3]).all()

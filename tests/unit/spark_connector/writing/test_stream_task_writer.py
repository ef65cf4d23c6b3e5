"""Rows that are not in the one order that each attempt has are refused, and those of a micro-batch are sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import date
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DateType, DoubleType, IntegerType, LongType, StringType, StructType

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import SuperStream
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.placement import Placement, partition_numbers
from spark_connector.writing import stream_task_writer
from spark_connector.writing.stream_layout import StreamLayout
from spark_connector.writing.stream_task_writer import StreamTaskWriter, _Piece
from spark_connector.writing.tasks import Task
from spark_connector.writing.write_plan import WritePlan

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
PLACING = SuperStream(["s0", "s1"])
OF_S1 = [key for key in map(str, range(100)) if PLACING.partition_for(key) == "s1"]


def writer(partition: int = 1, schema: StructType = SCHEMA, **options_: str) -> StreamTaskWriter:
    once = {"url": "amqp://h", "superStream": "s", "delivery": "exactly-once"}
    options = WriteOptions.parse({**once, **options_})
    columns = MessageColumns.of(schema, options)
    plan = WritePlan(columns, options, streaming=True, layout=StreamLayout.of(PLACING, SCHEMA))
    return StreamTaskWriter(plan, Task(partition=partition))


def column(texts: Sequence[str]) -> Any:
    """A column in chunks, as they come."""
    return pa.chunked_array([pa.array([text.encode()], pa.binary()) for text in texts], pa.binary())


def piece(keys: Sequence[str], values: Sequence[str], order: Sequence[int] | None = None) -> _Piece:
    """The rows of a task."""
    return _Piece(column(keys), column(values), None, None if order is None else pa.chunked_array([order]))


def test_rows_in_order_may_be_equal() -> None:
    checked = writer()
    keys = sorted(OF_S1[:3] * 2)
    checked._check_rows(piece(keys, ["a", "a", "a", "b", "", "\xff"]), 0)
    checked._check_rows(piece(keys[-1:], ["\xff"]), 6)
    with pytest.raises(InputError, match="row 7 is before the row in front of it by key and value"):
        checked._check_rows(piece(keys[-1:], ["b"]), 7)


def test_rows_are_ordered_by_a_column_first() -> None:
    checked = writer(schema=StructType([*SCHEMA.fields]).add("at", LongType()), orderBy="AT")
    later, earlier = sorted(OF_S1[:2], reverse=True)
    checked._check_rows(piece([later, earlier, earlier], ["a", "b", "c"], [1, 2, 2]), 0)
    checked._check_rows(piece([earlier], ["a"], [3]), 3)
    with pytest.raises(
        InputError,
        match=r"row 4 is before the row in front of it by AT, key and value, .* with order_by='AT'",
    ):
        checked._check_rows(piece([earlier], ["z"], [2]), 4)
    with pytest.raises(InputError, match="row 6 is before"):
        checked._check_rows(piece([later, earlier], ["a", "a"], [4, 4]), 5)


@pytest.mark.parametrize("kind", [DoubleType(), StructType()])
def test_a_column_that_orders_rows_has_one_order(kind: DataType) -> None:
    with pytest.raises(InputError, match="rows are ordered by column 'at', which is "):
        writer(schema=StructType([*SCHEMA.fields]).add("at", kind), orderBy="at")
    with pytest.raises(InputError, match="column 'at' is missing, which orderBy names"):
        writer(orderBy="at")


def test_another_order_is_another_layout() -> None:
    schema = StructType([*SCHEMA.fields]).add("at", LongType()).add("of", LongType())
    names = {StreamLayout.of(PLACING, schema, by).name("load") for by in (None, "at", "of")}
    assert len(names) == 3
    assert StreamLayout.of(PLACING, schema).name("load") == StreamLayout.of(PLACING, SCHEMA).name("load")


@pytest.mark.parametrize(
    "values", [[3, 1, 2], ["c", "a", "b"], [date(2026, 1, 3), date(2026, 1, 1), date(2026, 1, 2)]]
)
def test_rows_of_a_micro_batch_are_sorted_by_a_column_first(values: list[Any]) -> None:
    kind = {int: LongType(), str: StringType(), date: DateType()}[type(values[0])]
    made = writer(schema=StructType([*SCHEMA.fields]).add("at", kind), orderBy="at")
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["1", "2", "3"], "at": values})
    (some,) = made._sort([batch])
    assert some.keys.to_pylist() == [b"b", b"c", b"a"]
    missing = pa.RecordBatch.from_pydict(
        {"key": ["a"], "value": ["1"], "at": pa.array([None], batch["at"].type)}
    )
    with pytest.raises(RowError, match="row 3: column 'at' is null"):
        list(made._sort([missing]))


@pytest.mark.parametrize("rows", [[(1, "a"), (0, "a")], [(0, "b"), (0, "a")]])
def test_rows_out_of_order_are_refused(rows: list[tuple[int, str]]) -> None:
    keys = [sorted(OF_S1)[number] for number, _ in rows]
    with pytest.raises(
        InputError, match=r"row 11 is before .*: place the rows with spark_connector.place_for_streams"
    ):
        writer()._check_rows(piece(keys, [value for _, value in rows]), 10)


def test_rows_of_another_stream_are_refused() -> None:
    with pytest.raises(
        InputError,
        match="the key of row 10 belongs to 's1', and all rows of partition 0 must be those of stream 's0'",
    ):
        writer(0)._check_rows(piece(OF_S1[:1], ["a"]), 10)


def test_rows_of_a_micro_batch_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("b", "1"), ("a", "2"), ("\xff", "3"), ("a", "1")]
    keys, values = zip(*rows, strict=True)
    batches = [pa.record_batch([pa.array(keys), pa.array(values)], names=["key", "value"])] * 2
    ((sorted_keys, sorted_values, filter_values, _),) = writer()._sort(batches)
    assert filter_values is None
    found = zip(sorted_keys.to_pylist(), sorted_values.to_pylist(), strict=True)
    assert list(found) == sorted((key.encode(), value.encode()) for key, value in rows * 2)
    monkeypatch.setattr(stream_task_writer, "_MOST_SORTED", 10)
    with pytest.raises(InputError, match="read fewer rows in a micro-batch"):
        list(writer()._sort(batches))


def test_a_piece_has_many_rows_or_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch([pa.array(["k"] * 10), pa.array(["v" * 99] * 10)], names=["key", "value"])
    for bound, most in (("_PIECE_ROWS", 20), ("_PIECE_BYTES", 1_500)):
        with monkeypatch.context() as bounded:
            bounded.setattr(stream_task_writer, bound, most)
            pieces = stream_task_writer._pieces(writer()._counter.messages([batch] * 5))
            assert [len(keys) for keys, *_ in pieces] == [20, 20, 10]


@pytest.mark.parametrize("name", ["region", "Region", "type", "key"])
def test_filter_values_stay_with_their_rows(name: str) -> None:
    """Also of a column whose name AMQP has for something else; null is none."""
    rows = [("b", "1", "eu"), ("a", "2", None), ("c", "3", "us")]
    keys, values, regions = zip(*rows, strict=True)
    columns = {"key": pa.array(keys), "value": pa.array(values)}
    if name != "key":
        columns[name] = pa.array(regions)
    schema = StructType()
    for column_name in columns:
        schema = schema.add(column_name, StringType())
    batch = pa.RecordBatch.from_pydict(columns)
    made = writer(schema=schema, filterValueColumn=name.lower())
    ((sorted_keys, _, filter_values, _),) = made._sort([batch])
    assert sorted_keys.to_pylist() == [b"a", b"b", b"c"]
    assert filter_values.to_pylist() == ([b"a", b"b", b"c"] if name == "key" else [b"", b"eu", b"us"])
    ((piece_keys, _, filter_values, _),) = stream_task_writer._pieces(made._counter.messages([batch]))
    assert piece_keys.to_pylist() == [b"b", b"a", b"c"]
    assert filter_values.to_pylist() == ([b"b", b"a", b"c"] if name == "key" else [b"eu", b"", b"us"])


def test_a_column_of_filter_values_must_be_there_as_a_text() -> None:
    with pytest.raises(InputError, match="column 'region' is missing, which filterValueColumn names"):
        writer(filterValueColumn="region")
    with pytest.raises(InputError, match="column 'region' is int, not string or binary"):
        writer(schema=StructType([*SCHEMA.fields]).add("region", IntegerType()), filterValueColumn="region")


def test_a_null_key_has_the_last_partition() -> None:
    placement = Placement((1, 1), spare=True)
    keys = pa.array([OF_S1[0], None, "é"])
    expected = [1, 2, PLACING.partitions.index(PLACING.partition_for("é"))]
    assert partition_numbers(PLACING.to_json(), placement, None, keys).to_pylist() == expected
    assert (
        partition_numbers(PLACING.to_json(), placement, None, keys.cast(pa.binary())).to_pylist() == expected
    )


@pytest.mark.parametrize(("rows", "fits"), [(3, True), (4, False)])
def test_a_version_has_less_than_two_to_the_32_rows_in_a_stream(
    monkeypatch: pytest.MonkeyPatch, *, rows: int, fits: bool
) -> None:
    """The next id would be that of row 0 of the next version."""
    made, ids = writer(verify="off"), []

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace(publish_many=lambda *_columns, **given: ids.extend(given["ids"].tolist()))

    monkeypatch.setattr(stream_task_writer, "ROW_BITS", 2)
    monkeypatch.setattr(StreamTaskWriter, "_open", opened)
    for name, answer in {"_last_id": 0, "_name": "n", "_version": 5, "_add": None}.items():
        monkeypatch.setattr(StreamTaskWriter, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(stream_task_writer, "check_end", lambda *_: None)
    batch = pa.record_batch([pa.array(OF_S1[:1] * rows), pa.array(["v"] * rows)], names=["key", "value"])
    refused = pytest.raises(InputError, match="rows or more: write them in several versions")
    with nullcontext() if fits else refused:
        made._publish_once([batch])
    assert ids == ([21, 22, 23] if fits else [])

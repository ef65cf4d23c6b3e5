"""Rows that are not in the one order that each attempt has are refused, and those of a micro-batch are sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DateType, DoubleType, IntegerType, LongType, StringType, StructType
from spark_messages import SCHEMA, schema_of

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import SuperStream
from spark_connector.placing.placement import Placement, partition_numbers
from spark_connector.writing import stream_sink
from spark_connector.writing.preflight import WritePlan
from spark_connector.writing.stream_layout import StreamLayout
from spark_connector.writing.stream_sink import ExactlyOnceSink, RowSorter
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

PLACING = SuperStream(["s0", "s1"])
OF_S1 = [key for key in map(str, range(100)) if PLACING.partition_for(key) == "s1"]


TASK = Task(partition=1, write_id="query", batch_id=0)


def plan_of(schema: Any = SCHEMA, **options_: Any) -> WritePlan:
    once = {"url": "amqp://h", "superStream": "s", "delivery": "exactly-once"}
    plan = WritePlan.parse({**once, **options_}, schema, streaming=True)
    return replace(plan, layout=StreamLayout.of(PLACING, SCHEMA))


def sink(schema: Any = SCHEMA, **options_: Any) -> ExactlyOnceSink:
    return ExactlyOnceSink(plan_of(schema, **options_), TASK, print)


def tables(plan: WritePlan, batches: list[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of batches as a sink gets them."""
    return map(stream_sink._table_of, TaskWriter(plan, TASK)._messages(batches))


def pieces(given: Iterable[pa.Table]) -> list[pa.Table]:
    joined = stream_sink._Pieces()
    found = [joined.add(table) for table in given]
    return [piece for piece in (*found, joined.rest()) if piece is not None]


def with_column(kind: DataType) -> StructType:
    return StructType([*SCHEMA.fields]).add("at", kind)


def column(texts: Sequence[str]) -> Any:
    """A column in chunks, as they come."""
    return pa.chunked_array([pa.array([text.encode()], pa.binary()) for text in texts], pa.binary())


def piece(keys: Sequence[str], values: Sequence[str], order: Sequence[int] | None = None) -> pa.Table:
    """The rows of a task."""
    first: dict[str, Any] = {} if order is None else {"order": pa.chunked_array([order])}
    return pa.table({**first, "key": column(keys), "value": column(values)})


def test_rows_in_order_may_be_equal() -> None:
    checked = sink()
    keys = sorted(OF_S1[:3] * 2)
    checked._check_rows(piece(keys, ["a", "a", "a", "b", "", "\xff"]), 0)
    checked._check_rows(piece(keys[-1:], ["\xff"]), 6)
    with pytest.raises(InputError, match="row 7 is not in the order of key and value"):
        checked._check_rows(piece(keys[-1:], ["b"]), 7)
    with pytest.raises(InputError, match="row 8 is not in the order"):
        checked._check_rows(piece(keys[-1:] * 2, ["\xff\xff", "\xff"]), 7)


def test_rows_are_ordered_by_a_column_first() -> None:
    checked = sink(schema=with_column(LongType()), orderBy="AT")
    later, earlier = sorted(OF_S1[:2], reverse=True)
    checked._check_rows(piece([later, earlier, earlier], ["a", "b", "c"], [1, 2, 2]), 0)
    checked._check_rows(piece([earlier], ["a"], [3]), 3)
    words = r"row 4 is not in the order of AT, key and value, .* with order_by='AT'"
    with pytest.raises(InputError, match=words):
        checked._check_rows(piece([earlier], ["z"], [2]), 4)
    with pytest.raises(InputError, match="row 6 is not in the order"):
        checked._check_rows(piece([later, earlier], ["a", "a"], [4, 4]), 5)


def test_a_column_that_cannot_order_or_filter_is_refused() -> None:
    for kind in (DoubleType(), StructType()):
        with pytest.raises(InputError, match="rows are ordered by column 'at', which is "):
            plan_of(schema=with_column(kind), orderBy="at")
    with pytest.raises(InputError, match="column 'at' is missing, which orderBy names"):
        plan_of(orderBy="at")
    with pytest.raises(InputError, match="column 'at' is missing, which filterValueColumn names"):
        plan_of(filterValueColumn="at")
    with pytest.raises(InputError, match="column 'at' is int, not string or binary"):
        plan_of(schema=with_column(IntegerType()), filterValueColumn="at")


def test_another_order_is_another_layout() -> None:
    schema = with_column(LongType()).add("of", LongType())
    names = {StreamLayout.of(PLACING, schema, by).name("load") for by in (None, "at", "of")}
    assert len(names) == 3
    assert StreamLayout.of(PLACING, schema).name("load") == StreamLayout.of(PLACING, SCHEMA).name("load")


def in_order(plan: WritePlan, batches: list[pa.RecordBatch]) -> Iterator[pa.Table]:
    sorter = RowSorter(stream_sink._ORDER, 1 << 20)
    for table in tables(plan, batches):
        sorter.add(table)
    return sorter.sorted_rows()


@pytest.mark.parametrize("values", [[3, 1, 2], ["c", "a", "b"], [date(2026, 1, day) for day in (3, 1, 2)]])
def test_rows_of_a_micro_batch_are_sorted_by_a_column_first(values: list[Any]) -> None:
    kind = {int: LongType(), str: StringType(), date: DateType()}[type(values[0])]
    plan = plan_of(schema=with_column(kind), orderBy="at")
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["1", "2", "3"], "at": values})
    (some,) = in_order(plan, [batch])
    assert some["key"].to_pylist() == [b"b", b"c", b"a"]
    missing = batch.slice(0, 1).set_column(2, "at", pa.nulls(1, batch["at"].type))
    with pytest.raises(RowError, match="row 3: column 'at' is null"):
        in_order(plan, [batch, missing])


def test_rows_of_a_micro_batch_are_sorted() -> None:
    rows = [("b", "1"), ("a", "2"), ("\xff", "3"), ("a", "1")]
    keys, values = zip(*rows, strict=True)
    batches = [pa.record_batch([pa.array(keys), pa.array(values)], names=["key", "value"])] * 2
    (found,) = in_order(plan_of(), batches)
    assert found.column_names == ["key", "value"]
    assert list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == sorted(
        (key.encode(), value.encode()) for key, value in rows * 2
    )


def test_a_piece_has_many_rows_or_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch([pa.array(["k"] * 10), pa.array(["v" * 99] * 10)], names=["key", "value"])
    for bound, most in (("_PIECE_ROWS", 20), ("_PIECE_BYTES", 1_500)):
        with monkeypatch.context() as bounded:
            bounded.setattr(stream_sink, bound, most)
            found = pieces(tables(plan_of(), [batch] * 5))
            assert [piece.num_rows for piece in found] == [20, 20, 10]


@pytest.mark.parametrize("name", ["region", "Region", "type", "key"])
def test_filter_values_stay_with_their_rows(name: str) -> None:
    """Also of a column whose name AMQP has for something else; null is none."""
    columns: dict[str, list[Any]] = {"key": ["b", "a", "c"], "value": ["1", "2", "3"]}
    if name != "key":
        columns[name] = ["eu", None, "us"]
    schema = schema_of(", ".join(f"{column} string" for column in columns))
    plan = plan_of(schema=schema, filterValueColumn=name.lower())
    batch = pa.RecordBatch.from_pydict(columns)
    (found,) = in_order(plan, [batch])
    assert found["key"].to_pylist() == [b"a", b"b", b"c"]
    assert found["filter"].to_pylist() == ([b"a", b"b", b"c"] if name == "key" else [b"", b"eu", b"us"])
    (found,) = pieces(tables(plan, [batch]))
    assert found["key"].to_pylist() == [b"b", b"a", b"c"]
    assert found["filter"].to_pylist() == ([b"b", b"a", b"c"] if name == "key" else [b"eu", b"", b"us"])


def test_a_null_key_has_the_last_partition() -> None:
    placement = Placement((1, 1), spare=True)
    keys = pa.array([OF_S1[0], None, "é"])
    expected = [1, 2, PLACING.partitions.index(PLACING.partition_for("é"))]
    for given in (keys, keys.cast(pa.binary())):
        assert partition_numbers(PLACING.to_json(), placement, None, given).to_pylist() == expected

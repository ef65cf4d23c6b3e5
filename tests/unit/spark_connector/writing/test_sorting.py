"""Rows that are sorted in parts have the order of one sort, and leave no file behind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from spark_connector.writing import stream_sink
from spark_connector.writing.stream_sink import RowSorter

COLUMNS = ("order", "key", "value", "filter")


def tables(seed: int, *, is_ordered: bool) -> list[pa.Table]:
    """Tables of any size, also without a row, whose rows are often equal in some columns."""
    chance = random.Random(seed)  # noqa: S311  # it makes test data

    def texts(rows: int) -> list[bytes]:
        return [
            chance.choice([b"", b"a", b"a\0", b"b" * chance.randint(1, 90), b"\xff"]) for _ in range(rows)
        ]

    made = []
    for _ in range(chance.randint(0, 9)):
        rows = chance.randint(0, 200)
        columns = {name: texts(rows) for name in COLUMNS[1:]}
        table = pa.table({name: pa.array(column, pa.binary()) for name, column in columns.items()})
        if is_ordered:
            numbers = pa.array([chance.randint(-3, 3) for _ in range(rows)], pa.int64())
            table = table.add_column(0, "order", numbers)
        made.append(table)
    return made


def sort_rows(given: list[pa.Table], columns: Sequence[str], most_bytes: int) -> RowSorter:
    sorter = RowSorter(columns, most_bytes)
    for table in given:
        sorter.add(table)
    return sorter


def rows_of(found: Iterator[pa.Table]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for table in found for row in table.to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another")
    monkeypatch.setattr(stream_sink, "_BATCH_BYTES", 500)
    return tmp_path


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("most_bytes", [0, 1_000, 20_000, 1 << 30])
@pytest.mark.parametrize("seed", range(8))
def test_rows_are_in_the_order_of_one_sort(
    folder: Path, seed: int, most_bytes: int, *, is_ordered: bool
) -> None:
    given = tables(seed, is_ordered=is_ordered)
    expected = sorted(rows_of(iter(given)))
    assert rows_of(sort_rows(given, COLUMNS, most_bytes).sorted_rows()) == expected
    assert [*folder.iterdir()] == []


def test_files_are_in_the_folder_of_spark_and_are_removed_after_an_error(folder: Path) -> None:
    rows = pa.table({"key": [b"b", b"a"] * 100})
    sorter = sort_rows([rows] * 3, ["key"], 0)
    assert next(sorter.sorted_rows())["key"][0].as_py() == b"a"
    (made,) = folder.iterdir()
    assert len([*made.iterdir()]) == 3
    sorter.close()
    assert [*folder.iterdir()] == []

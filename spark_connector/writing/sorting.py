"""The rows of a task in their order: sorted in memory, or, if they are many, in parts that are merged from files.

Spark does not sort the rows of a stream, and each attempt of a task must publish them in the same order.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

#: About the bytes of a batch in a file. While files are merged, one batch of each is in memory.
_BATCH_BYTES = 4 << 20


def sort_rows(tables: Iterable[pa.Table], columns: Sequence[str], most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of tables, sorted by all of these columns, which contain no nulls.

    The result does not depend on where a table ends: rows that are equal in these columns must be equal in all.

    Args:
        tables: the rows.
        columns: the names of the columns, the first one first; a table may lack some.
        most_bytes: about the bytes that are sorted in memory. More rows are sorted in parts, which are kept in files in Spark's local folder
            (or that of `tempfile`) until they are merged.

    Raises:
        OSError: the folder is full, or cannot be written to.
    """
    with ExitStack() as stack:
        folder: Path | None = None
        files = list[Path]()
        held = list[pa.Table]()
        size = 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size <= most_bytes:
                continue
            if folder is None:
                made = TemporaryDirectory(
                    prefix="rabbit-chx-sort-", dir=_local_folder(), ignore_cleanup_errors=True
                )
                folder = Path(stack.enter_context(made))
            files.append(folder / f"{len(files)}.arrow")
            _write(_sorted(held, columns), files[-1])
            held = []
            size = 0
        if not files:
            if held:
                yield _sorted(held, columns)
            return
        parts = [_Part(_read(file), columns) for file in files]
        if held:
            parts.append(_Part(iter([_sorted(held, columns)]), columns))
        yield from _merge(parts, columns)


def _local_folder() -> str | None:
    """Return the folder that Spark removes with the application; None if it has none here."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and Path(folder).is_dir() else None


def _sorted(tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    rows = pa.concat_tables(tables)
    names = [name for name in columns if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in names])


def _write(rows: pa.Table, path: Path) -> None:
    batch_rows = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch_rows)


def _read(path: Path) -> Iterator[pa.Table]:
    """Yield the batches of a file; only those that are used take memory."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


class _Part:
    """Sorted rows, of which the next ones are in memory."""

    def __init__(self, batches: Iterator[pa.Table], columns: Sequence[str]) -> None:
        self._batches = batches
        self._columns = columns
        self._rows: pa.Table | None = None
        self._load()

    def _load(self) -> None:
        self._rows = next(self._batches, None)
        while self._rows is not None and not self._rows.num_rows:
            self._rows = next(self._batches, None)

    @property
    def is_done(self) -> bool:
        """True if all rows were taken."""
        return self._rows is None

    @property
    def last(self) -> tuple[Any, ...]:
        """The values of the last row in memory: those of later rows are not lower."""
        assert self._rows is not None  # it is not done
        return self._values(self._rows.num_rows - 1)

    def take(self, bound: tuple[Any, ...]) -> pa.Table:
        """Return the rows in memory up to a bound, and load the next ones if these were all."""
        assert self._rows is not None
        rows = self._rows
        stop = bisect_right(range(rows.num_rows), bound, key=self._values)
        if stop == rows.num_rows:
            self._load()
        else:
            self._rows = rows.slice(stop)
        return rows.slice(0, stop)

    def _values(self, row: int) -> tuple[Any, ...]:
        assert self._rows is not None
        rows = self._rows
        return tuple(rows.column(name)[row].as_py() for name in self._columns if name in rows.column_names)


def _merge(parts: list[_Part], columns: Sequence[str]) -> Iterator[pa.Table]:
    while parts:
        # No row that is not in memory yet comes before this one.
        bound = min(part.last for part in parts)
        taken = [part.take(bound) for part in parts]
        parts = [part for part in parts if not part.is_done]
        yield _sorted(taken, columns)

"""Message ids that are made of the content of a row, so that they do not depend on the order of the rows.

An id is the first half of a SHA-256. The hash covers the write, the micro-batch, the partition and everything
of the row that goes into its message. Among equal rows of a partition, each but the first has its number
appended. So two rows never share an id: different rows differ in the hash, equal rows in partition or number.
A second attempt makes the same ids as the first if the partition has the same rows, whatever their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.writing.arrow_columns import as_binary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spark_connector.writing.columns import MessageColumns

_BYTES = 16  # of the hash
#: Rows are joined for hashing in slices of about this many bytes, so that large bodies are not held twice.
_SLICE_BYTES = 4 << 20


class MessageIds:
    """Makes the ids of a partition, batch by batch. It keeps 8 bytes for each row.

    Args:
        write_id: id of the write, or the name that the user gave it, or id of the streaming query.
        batch_id: number of the micro-batch.
        partition: number of the partition; it alone makes the ids of equal rows in two partitions differ.
    """

    def __init__(self, write_id: str, batch_id: int, partition: int) -> None:
        self._where = f"{write_id}\n{batch_id}\n{partition}\n"
        self._seen = _SeenHashes()

    def of(
        self, batch: pa.RecordBatch, columns: MessageColumns, headers: Sequence[Mapping[str, Any] | None]
    ) -> list[str]:
        """Return an id for each row.

        Args:
            batch: rows that can be published.
            columns: the positions of the columns in the batch.
            headers: the headers of each row; empty if no row has headers.
        """
        digests = b"".join(_digests(self._where, batch, columns, headers))
        numbers = self._seen.numbers(np.frombuffer(digests, np.uint64)[::2])
        text = digests.hex()
        ids = [text[at : at + 2 * _BYTES] for at in range(0, len(text), 2 * _BYTES)]
        for at in np.flatnonzero(numbers):
            ids[at] += f"-{numbers[at]}"
        return ids


class _SeenHashes:
    """Counts how often each hash occurs.

    Only the first 8 bytes are compared, since the whole hash is in the id. If two different rows share those
    bytes, one of them gets a number that it does not need.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []  # each sorted, and longer than all behind it together

    def numbers(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return for each hash how many equal ones came before it, in this call or an earlier one."""
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        numbers = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        for run in self._runs:
            first = np.searchsorted(run, ordered)
            known = np.flatnonzero(run[np.minimum(first, len(run) - 1)] == ordered)
            numbers[known] += np.searchsorted(run, ordered[known], "right") - first[known]
        unordered = np.empty_like(numbers)
        unordered[order] = numbers
        self._remember(ordered)
        return unordered

    def _remember(self, run: NDArray[np.uint64]) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate((self._runs.pop(), run))
            run.sort(kind="stable")  # two sorted halves: a merge
        if len(run):
            self._runs.append(run)


def _digests(
    where: str, batch: pa.RecordBatch, columns: MessageColumns, headers: Sequence[Mapping[str, Any] | None]
) -> Iterator[bytes]:
    """Yield the hash of each row.

    The lengths of all fields come before the fields, so that two rows never hash the same bytes by chance of
    a border.
    """
    named = {"value": columns.value, "key": columns.key, "exchange": columns.exchange, **columns.properties}
    positions = {name: at for name, at in sorted(named.items()) if at is not None}
    names = list(positions)
    numbers: list[NDArray[np.int64]] = []
    texts: list[Any] = []
    for at in positions.values():
        column = batch.column(at)
        if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
            numbers += _number(column)
        else:
            texts.append(as_binary(column))
    if columns.headers is not None:
        names.append("headers")
        rows = headers or [None] * batch.num_rows
        texts.append(pa.array([repr(row and sorted(row.items())).encode() for row in rows], pa.binary()))
    lengths = [pc.binary_length(text).fill_null(-1).to_numpy(zero_copy_only=False) for text in texts]
    head = np.stack([*lengths, *numbers], axis=1).astype("<i8")
    start = hashlib.sha256((where + ",".join(names)).encode()).digest()
    ends = np.cumsum(sum(np.maximum(length, 0) for length in lengths), dtype=np.int64)
    for first, end in _slices(ends):
        heads = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(8 * head.shape[1]), end - first, [None, pa.py_buffer(head[first:end].tobytes())]
        )
        pieces: list[Any] = [text.slice(first, end - first).cast(pa.binary()) for text in texts]
        joined: Any = pc.binary_join_element_wise(
            heads.cast(pa.binary()), *pieces, b"", null_handling="replace", null_replacement=""
        )
        for row in joined.to_pylist():
            yield hashlib.sha256(start + row).digest()[:_BYTES]


def _number(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ANN401  # Arrow has no types
    """Return two columns: whether the value is not null, and the value or 0."""
    values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), values


def _slices(ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of slices of about `_SLICE_BYTES`, with at least one row; a row ends at its `ends`."""
    cuts = np.flatnonzero(np.diff(ends // _SLICE_BYTES)) + 1
    bounds = [0, *map(int, cuts), len(ends)]
    yield from pairwise(bounds)

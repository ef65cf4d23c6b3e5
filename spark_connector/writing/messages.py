"""The rows of a batch as messages, without the rows that AMQP cannot carry.

Bad rows are found before anything is encoded. Whole columns are checked; a single row is looked at only if a
column has a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rabbit_chx.errors import RowError
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports.task_report import MAX_SAMPLES, RowSample, hash_of_key
from spark_connector.writing.arrow_columns import as_binary, whole_seconds
from spark_connector.writing.bad_rows import Fault, faults_in

if TYPE_CHECKING:
    from spark_connector.writing.columns import MessageColumns
    from spark_connector.writing.message_ids import MessageIds


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a batch, as columns of equal length.

    Attributes:
        keys: routing keys, as bytes.
        bodies: bodies, as bytes.
        properties: a column for each message property that differs by row, with `headers` as dicts; None in a
            row that has no value of its own.
        exchanges: names of exchanges; None if all messages go to one exchange.
        skipped: number of bad rows, which are left out.
        samples: the first few bad rows.
    """

    keys: Any
    bodies: Any
    properties: dict[str, Any]
    exchanges: Any
    skipped: int = 0
    samples: tuple[RowSample, ...] = ()

    def __len__(self) -> int:
        return len(self.bodies)


def messages_of(
    batch: pa.RecordBatch,
    columns: MessageColumns,
    options: WriteOptions,
    *,
    partition: int = 0,
    first_row: int = 0,
    ids: MessageIds | None = None,
    samples: int = MAX_SAMPLES,
) -> Messages:
    """Return the messages of a batch.

    Args:
        batch: rows of a partition.
        columns: the positions of the columns in the batch.
        options: how to write.
        partition: number of the partition, for samples.
        first_row: number of the batch's first row in its partition.
        ids: makes message ids if ``messageId`` is auto; else None.
        samples: the most samples of bad rows to return.

    Raises:
        RowError: a row is bad, and ``badRows`` is fail.
    """
    faults = [fault for fault in faults_in(batch, columns, options) if fault.rows.any()]
    skipped = 0
    shown: tuple[RowSample, ...] = ()
    if faults:
        bad = np.logical_or.reduce([fault.rows for fault in faults])
        positions = np.flatnonzero(bad)
        if not options.skip_bad_rows:
            at = int(positions[0])
            raise RowError(f"row {first_row + at}: {_reason(faults, at)}")
        column = None if columns.key is None else as_binary(batch.column(columns.key))
        shown = tuple(
            RowSample(partition, first_row + int(at), _reason(faults, int(at)), _key_hash(column, int(at)))
            for at in positions[:samples]
        )
        batch = batch.take(pa.array(np.flatnonzero(~bad), pa.int64()))
        skipped = len(positions)
    properties = dict(_properties(batch, columns, options))
    if ids is not None:
        properties["message_id"] = ids.of(batch, columns, properties.get("headers", ()))
    if columns.key is None:
        keys = [(options.routing_key or "").encode()] * batch.num_rows
    else:
        keys = as_binary(batch.column(columns.key))
    exchanges = None
    if columns.exchange is not None:
        exchanges = as_binary(batch.column(columns.exchange).fill_null(options.exchange))
    return Messages(
        keys=keys,
        bodies=as_binary(batch.column(columns.value)),
        properties=properties,
        exchanges=exchanges,
        skipped=skipped,
        samples=shown,
    )


def _reason(faults: Sequence[Fault], at: int) -> str:
    return next(fault.reason(at) for fault in faults if fault.rows[at])


def _key_hash(keys: Any, at: int) -> str | None:  # noqa: ANN401  # Arrow has no types
    key = None if keys is None else keys[at].as_py()
    return None if key is None else hash_of_key(key)


def _properties(
    batch: pa.RecordBatch, columns: MessageColumns, options: WriteOptions
) -> Iterator[tuple[str, Any]]:
    for name, at in columns.properties.items():
        column = batch.column(at)
        if column.null_count < len(column):
            yield name, whole_seconds(column) if name == "timestamp" else as_binary(column)
    if columns.headers is not None and batch.column(columns.headers).null_count < batch.num_rows:
        rows = batch.column(columns.headers).to_pylist()
        yield "headers", [None if pairs is None else {**options.headers, **dict(pairs)} for pairs in rows]

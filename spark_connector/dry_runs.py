"""What a write would do, without sending anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, RabbitChxError
from spark_connector.executor_functions import for_each_partition
from spark_connector.options.write_options import WriteOptions, texts
from spark_connector.placing.prediction import kept_ring, rows_by_queue
from spark_connector.placing.slices import NO_QUEUE
from spark_connector.reports.dry_run_report import DryRun, HotKey, PartitionRows
from spark_connector.writing.bad_rows import Check, checks_of
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.preflight import check_broker, check_secret_name
from spark_connector.writing.speculation import check_speculation, speculation_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from rabbit_chx.routing import KeyMap

__all__ = ["dry_run"]

_HOTTEST = 10


def dry_run(df: DataFrame, options: Mapping[str, object], ring: KeyMap | str | None = None) -> DryRun:
    """Check a write and count where its rows would go. Nothing is sent.

    Options and columns are checked as by the write. Then the broker and the exchange are checked; what is
    wrong with them is in `problems`. The frame is computed twice, without the bodies: once to count rows by
    partition, queue and fault, and once for the hottest keys. Nulls and values that are too long count as bad
    rows. Only the write checks priorities and headers.

    Args:
        df: the rows, placed or not.
        options: as for `publish`.
        ring: the ring of the exchange or the table of its slots, or the JSON of either, instead of the option `ring`. Without
            a ring, rows are not counted by queue.

    Raises:
        InputError: an option or a column cannot be used, or the frame is a stream.
    """
    if df.isStreaming:
        raise InputError(
            "dry_run takes a batch: a stream has no rows yet, so read some of its source with spark.read"
        )
    parsed = WriteOptions.parse(texts(options, ring))
    columns = MessageColumns.of(df.schema, parsed)
    problems, notes = _surroundings(parsed, speculation=speculation_of(df.sparkSession))
    rows = _key_and_fault(df, columns, parsed)
    ring_json = parsed.ring.to_json() if parsed.ring else None
    partitions: list[_PartitionCounts] = for_each_partition(rows, count_partition, ring_json)
    bad = sum((seen.bad for seen in partitions), Counter[str]())
    if bad and not parsed.skip_bad_rows:
        problems = (
            *problems,
            f"{bad.total():,} rows are bad, and badRows is fail: filter them, or set it to skip",
        )
    return DryRun(
        exchange=parsed.exchange,
        broker=parsed.brokers.masked_url,
        columns={df.schema.fields[at].name: role for role, at in _roles(columns)},
        partitions=tuple(
            PartitionRows(number, seen.rows, dict(seen.queues)) for number, seen in enumerate(partitions)
        ),
        ring_provenance=parsed.ring.provenance if parsed.ring else None,
        shares=_shares(parsed.ring),
        hottest=_hottest(rows, parsed.ring),
        bad_rows=dict(bad),
        problems=problems,
        notes=notes,
    )


def _surroundings(options: WriteOptions, *, speculation: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the problems and the notes that the broker and Spark give rise to."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if not options.preflight:
        notes = ("the broker was not checked: preflight is false",)
    checks = (
        partial(check_speculation, options, speculation=speculation),
        partial(check_secret_name, options),
        partial(check_broker, options),
    )
    for check in checks:
        try:
            notes += check()
        except RabbitChxError as cause:
            problems += (str(cause),)
    return problems, notes


def _roles(columns: MessageColumns) -> Iterator[tuple[str, int]]:
    named = {name: getattr(columns, name) for name in ("key", "value", "exchange", "headers")}
    for role, at in {**named, **columns.properties}.items():
        if at is not None:
            yield role, at


def _shares(ring: KeyMap | None) -> dict[str, float]:
    if ring is None:
        return {}
    return {NO_QUEUE if name is None else str(name): share for name, share in ring.shares().items()}


def _key_and_fault(df: DataFrame, columns: MessageColumns, options: WriteOptions) -> DataFrame:
    """Return two columns: the routing key, and the first fault of the row or null."""
    from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

    names = df.columns

    def column(at: int) -> Column:
        return df[f"`{names[at].replace('`', '``')}`"]

    def fault(check: Check) -> Column:
        checked = column(check.column)
        is_bad = checked.isNull() if check.most_bytes is None else F.octet_length(checked) > check.most_bytes
        return F.when(is_bad, check.fault)

    key = F.lit(options.routing_key) if columns.key is None else column(columns.key)
    first_fault = F.coalesce(*map(fault, checks_of(columns, options)))
    return df.select(key.alias("key"), first_fault.alias("fault"))


@dataclass(frozen=True, slots=True)
class _PartitionCounts:
    """The rows of a partition.

    Attributes:
        rows: number of all rows.
        queues: number of good rows by predicted queue.
        bad: number of bad rows by fault.
    """

    rows: int = 0
    queues: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)


def count_partition(ring_json: str | None, batches: Iterator[pa.RecordBatch]) -> _PartitionCounts:
    """Count the rows of a partition. Runs in Python workers.

    Args:
        ring_json: the ring or the table of slots, as its `to_json` returns it; None to count no queues.
        batches: two columns: the routing key, and the fault of the row or null.
    """
    rows, queues, bad = 0, Counter[str](), Counter[str]()
    for batch in batches:
        keys, faults = batch.column(0), batch.column(1)
        rows += batch.num_rows
        if faults.null_count < len(faults):
            bad.update(fault for fault in faults.to_pylist() if fault is not None)
            keys = keys.filter(faults.is_null())
        if ring_json is not None:
            queues.update(rows_by_queue(kept_ring(ring_json), keys))
    return _PartitionCounts(rows, queues, bad)


def _hottest(rows: DataFrame, ring: KeyMap | None) -> tuple[HotKey, ...]:
    from pyspark.sql import functions as F  # noqa: N812

    good = rows.where("fault IS NULL").groupBy("key").count()
    most = good.orderBy(F.desc("count"), "key").limit(_HOTTEST).collect()
    return tuple(
        HotKey(
            bytes(row["key"]).decode(errors="backslashreplace")
            if isinstance(row["key"], (bytes, bytearray))
            else row["key"],
            row["count"],
            None if ring is None else str(ring.destination_for(_plain(row["key"])) or NO_QUEUE),
        )
        for row in most
    )


def _plain(key: str | bytes | bytearray) -> str | bytes:
    return key if isinstance(key, str) else bytes(key)

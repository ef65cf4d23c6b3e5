"""What a write would do, without sending anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, RabbitChxError
from spark_connector.executor_functions import for_each_partition
from spark_connector.options.python_options import texts
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.prediction import kept_ring, rows_by_queue
from spark_connector.placing.slices import NO_QUEUE
from spark_connector.reports.dry_run_report import DryRun, HotKey, PartitionRows
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.preflight import check_broker, check_secret_name, check_speculation
from spark_connector.writing.write_plan import speculation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from rabbit_chx.routing import HashRing

__all__ = ["dry_run"]

_HOTTEST = 10
_SHORT = 255  # bytes of an AMQP short string
_NUMBERS = ("priority", "delivery_mode", "timestamp")


def dry_run(df: DataFrame, options: Mapping[str, object], ring: HashRing | str | None = None) -> DryRun:
    """Check a write and count where its rows would go. Nothing is sent.

    Options and columns are checked as by the write, then the broker and the exchange; what is wrong there stands in
    `problems`. The frame is computed twice, without the bodies: once to count rows by partition, queue and fault,
    once for the hottest keys. Nulls and texts that are too long are counted as bad; whether a priority or a header is
    possible, only the write tells.

    Args:
        df: the rows, placed or not.
        options: as for `publish`.
        ring: the ring of the exchange, or its JSON, instead of the option `ring`; without one no queues are counted.

    Raises:
        InputError: an option or a column.
    """
    if df.isStreaming:
        raise InputError(
            "dry_run takes a batch, as a stream has no rows yet: read some of its source with spark.read"
        )
    parsed = WriteOptions.parse(texts(options, ring))
    columns = MessageColumns.of(df.schema, parsed)
    problems, notes = _surroundings(parsed, speculation=speculation_of(df.sparkSession))
    rows = _key_and_fault(df, columns, parsed)
    ring_json = parsed.ring.to_json() if parsed.ring else None
    partitions: list[_Seen] = for_each_partition(rows, look_at_partition, ring_json)
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
    """What broker and Spark have to say: problems and notes."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if not options.preflight:
        notes = ("the broker was not looked at: preflight is false",)
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


def _shares(ring: HashRing | None) -> dict[str, float]:
    if ring is None:
        return {}
    return {NO_QUEUE if name is None else str(name): share for name, share in ring.shares().items()}


def _key_and_fault(df: DataFrame, columns: MessageColumns, options: WriteOptions) -> DataFrame:
    """The routing key, and why the row is bad, if it is."""
    from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

    names = df.columns

    def column(at: int) -> Column:
        return df[f"`{names[at].replace('`', '``')}`"]

    key = F.lit(options.routing_key) if columns.key is None else column(columns.key)
    value = column(columns.value)
    fault = F.when(value.isNull(), "column 'value' is null")
    fault = fault.when(
        F.octet_length(value) > options.max_message_bytes, "the value is longer than maxMessageBytes"
    )
    if columns.key is not None:
        fault = fault.when(key.isNull(), "column 'key' is null")
        fault = fault.when(F.octet_length(key) > _SHORT, f"column 'key' is longer than {_SHORT} bytes")
    if columns.exchange is not None and not options.exchange:
        fault = fault.when(column(columns.exchange).isNull(), "column 'exchange' is null")
    if options.message_id == "column":
        fault = fault.when(column(columns.properties["message_id"]).isNull(), "column 'message_id' is null")
    short = {"exchange": columns.exchange, **columns.properties}
    for name, at in short.items():
        if at is not None and name not in _NUMBERS:
            fault = fault.when(
                F.octet_length(column(at)) > _SHORT, f"column {name!r} is longer than {_SHORT} bytes"
            )
    return df.select(key.alias("key"), fault.alias("fault"))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The rows of a partition.

    Attributes:
        rows: all of them.
        queues: good ones, by predicted queue.
        bad: bad ones, by fault.
    """

    rows: int = 0
    queues: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)


def look_at_partition(ring_json: str | None, batches: Iterator[pa.RecordBatch]) -> _Seen:
    """Count. Runs in Python workers."""
    rows, queues, bad = 0, Counter[str](), Counter[str]()
    for batch in batches:
        keys, faults = batch.column(0), batch.column(1)
        rows += batch.num_rows
        if faults.null_count < len(faults):
            bad.update(fault for fault in faults.to_pylist() if fault is not None)
            keys = keys.filter(faults.is_null())
        if ring_json is not None:
            queues.update(rows_by_queue(kept_ring(ring_json), keys))
    return _Seen(rows, queues, bad)


def _hottest(rows: DataFrame, ring: HashRing | None) -> tuple[HotKey, ...]:
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

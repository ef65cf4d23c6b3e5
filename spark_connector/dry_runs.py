"""The expected result of a write, without sending anything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.result_fields import json_fields, shown
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.columns import MessageColumns
from spark_connector.executor_functions import for_each_partition, number_columns, speculation_of
from spark_connector.options.write_options import WriteOptions, check_speculation, to_texts
from spark_connector.placing.rings import NO_QUEUE, cached_ring, count_by_queue
from spark_connector.reports import render_text
from spark_connector.writing.messages import Check, list_checks
from spark_connector.writing.preflight import check_broker, check_secret_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from rabbit_chx.rendering.document import Block, Document


_HOTTEST = 10
_SHOWN_PARTITIONS = 20
_NO_RING = "no ring was given: queues were not checked"


def skew(rows: Iterable[int]) -> float:
    """Return the greatest count divided by the mean, 1.0 for no rows."""
    counts = list(rows)
    return max(counts) * len(counts) / sum(counts) if any(counts) else 1.0


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows of a partition.

    Attributes:
        partition: number of the partition.
        rows: number of all rows.
        queues: number of good rows by predicted queue.
    """

    partition: int = field(metadata=shown("partition"))
    rows: int = field(metadata=shown("rows", number=True))
    queues: Mapping[str, int] = field(metadata=shown("queues in it", len, number=True, sparse=True))


@dataclass(frozen=True, slots=True)
class HotKey:
    """A frequent routing key.

    Attributes:
        key: the key as text.
        rows: number of rows with this key.
        queue: the predicted queue; None without a ring.
    """

    key: str
    rows: int
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The expected result of a write. `str` renders it as text.

    Attributes:
        exchange: name of the exchange; empty if a column contains it.
        broker: the addresses, without a password.
        columns: the part of the message that each column of the frame becomes.
        partitions: the rows of each present partition of the frame.
        ring_provenance: the origin of the ring (read, replayed, assumed), or None.
        shares: share of the ring by queue.
        hottest: the ten most frequent keys.
        bad_rows: number of rows that AMQP cannot carry, by reason.
        problems: the reasons for which the write would fail.
        notes: further facts.
    """

    exchange: str
    broker: str
    columns: Mapping[str, str]
    partitions: tuple[PartitionRows, ...]
    ring_provenance: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    hottest: tuple[HotKey, ...] = ()
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.problems

    @property
    def rows(self) -> int:
        """Number of all rows, including bad ones."""
        return sum(part.rows for part in self.partitions)

    @property
    def predicted(self) -> dict[str, int]:
        """Number of good rows by predicted queue, 0 for a queue without rows; empty without a ring."""
        total = Counter(dict.fromkeys(self.shares, 0))
        for part in self.partitions:
            total.update(part.queues)
        return dict(total)

    @property
    def partition_skew(self) -> float:
        """`skew` of the rows per partition."""
        return skew(part.rows for part in self.partitions)

    @property
    def queue_skew(self) -> float:
        """`skew` of the rows per queue; it is above 1.0 for an even ring whose weights differ."""
        return skew(self.predicted.values())

    def to_json(self) -> str:
        """Return every attribute, and rows, predicted, both skews and ok, as JSON."""
        return json.dumps(self.document().as_json(), indent=2)

    def document(self) -> Document:
        """Return the report for a renderer of `rabbit_chx.rendering`."""
        from rabbit_chx.rendering.document import Data, Document

        added = ("ok", "rows", "predicted", "partition_skew", "queue_skew")
        fields = {**json_fields(self), **{name: getattr(self, name) for name in added}}
        return Document("", [Data(fields), *self._shown()])

    def _shown(self) -> Iterator[Block]:
        from rabbit_chx.rendering.document import Line, Lines, Table
        from rabbit_chx.rendering.table import TableColumn

        text = partial(TableColumn, numeric=False)
        exchange = f"exchange {self.exchange!r}" if self.exchange else "exchanges named by a column"
        yield Line(f"dry run, nothing was sent: {self.rows:,} rows to {exchange} at {self.broker}")
        if self.problems:
            yield Lines([f"problem: {problem}" for problem in self.problems])
        yield Table([text("column"), text("part of the message")], [*self.columns.items()])
        if self.bad_rows:
            yield Table([text("bad because"), TableColumn("rows")], [*self.bad_rows.items()])
        if self.predicted:
            headings = ("of the ring", "rows", "of the rows")
            yield Table(
                [text(f"queue, predicted ({self.ring_provenance} ring)"), *map(TableColumn, headings)],
                [*_queue_rows(self)],
            )
            yield Line(_queue_skew(self))
        else:
            yield Line(_NO_RING)
        largest = sorted(self.partitions, key=lambda part: -part.rows)[:_SHOWN_PARTITIONS]
        yield Table.of(PartitionRows, largest)
        if len(self.partitions) > len(largest):
            yield Line(f"and {len(self.partitions) - len(largest):,} smaller partitions")
        yield Line(f"the largest partition has {self.partition_skew:.2f} times the mean")
        if self.hottest:
            columns = [text("hottest keys"), TableColumn("rows"), TableColumn("of the rows"), text("queue")]
            keys = [(hot.key, hot.rows, f"{hot.rows / self.rows:.1%}", hot.queue) for hot in self.hottest]
            most = len(columns) if self.predicted else len(columns) - 1
            yield Table(columns[:most], [key[:most] for key in keys])
        if self.notes:
            yield Lines([f"note: {note}" for note in self.notes])

    def __str__(self) -> str:
        return render_text(self.document())


def _queue_rows(run: DryRun) -> Iterator[tuple[str, str, int, str]]:
    good = sum(run.predicted.values())
    for name, rows in run.predicted.items():
        yield name, f"{run.shares.get(name, 0.0):.1%}", rows, f"{rows / good if good else 0.0:.1%}"


def _queue_skew(run: DryRun) -> str:
    """Compare the fullest queue with the mean, and each with its share of the ring, since weights may differ."""
    predicted = run.predicted
    good = sum(predicted.values())
    ratios = [
        rows / (run.shares[name] * good) for name, rows in predicted.items() if rows and run.shares.get(name)
    ]
    return (
        f"the fullest queue has {run.queue_skew:.2f} times the mean, and no queue has more than "
        f"{max(ratios, default=1.0):.2f} times its share of the ring"
    )


def dry_run(df: DataFrame, options: Mapping[str, object], ring: KeyMap | str | None = None) -> DryRun:
    """Check a write and count its rows by queue. Nothing is sent.

    Options and columns are checked as by the write. Problems with the broker and the exchange are in `problems`. The frame is computed
    twice, without the bodies: to count rows by partition, queue and fault, and for the hottest keys. Nulls and values that are too long
    count as bad rows. Only the write checks priorities and headers.

    Args:
        df: the rows, placed or not.
        options: as for `publish`.
        ring: the ring of the exchange, the table of its slots, or an ``x-modulus-hash`` exchange, or the JSON of one of them, instead of the
            option `ring`. Without a ring, rows are not counted by queue.

    Raises:
        InputError: an option or a column is not valid, or the frame is a stream.
    """
    if df.isStreaming:
        raise InputError(
            "dry_run takes a batch: a stream has no rows yet, so read some of its source with spark.read"
        )
    parsed = WriteOptions.parse(to_texts(options, ring))
    if parsed.to_streams:
        raise InputError(
            "dry_run counts what an exchange would route: these options write into streams by the stream protocol, so publish to a "
            "stream that is made for it, or leave the options of streams out"
        )
    columns = MessageColumns.of(df.schema, parsed)
    problems, notes = _check_environment(parsed, speculation=speculation_of(df.sparkSession))
    rows = _key_and_fault(df, columns, parsed)
    ring_json = parsed.ring.to_json() if parsed.ring else None
    counts = for_each_partition(rows, count_partition, ring_json)
    bad = sum((bad for _, _, bad in counts), Counter[str]())
    if bad and not parsed.skip_bad_rows:
        problems = (
            *problems,
            f"{bad.total():,} rows are bad, and badRows is fail: filter them, or set it to skip",
        )
    return DryRun(
        exchange=parsed.exchange,
        broker=parsed.brokers.masked_url,
        columns=_parts(df.columns, columns),
        partitions=tuple(
            PartitionRows(number, total, dict(queues)) for number, (total, queues, _) in enumerate(counts)
        ),
        ring_provenance=parsed.ring.provenance if parsed.ring else None,
        shares=_shares(parsed.ring),
        hottest=tuple(_hottest(rows, parsed.ring)),
        bad_rows=dict(bad),
        problems=problems,
        notes=notes,
    )


def _check_environment(
    options: WriteOptions, *, speculation: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the problems and the notes of the checks of broker and Spark."""
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


def _shares(ring: KeyMap | None) -> dict[str, float]:
    if ring is None:
        return {}
    return {NO_QUEUE if name is None else str(name): share for name, share in ring.shares().items()}


def _parts(names: Sequence[str], columns: MessageColumns) -> dict[str, str]:
    parts: dict[str, list[str]] = {}
    for part, at in columns.positions.items():
        parts.setdefault(names[at], []).append(part)
    return {name: ", ".join(its) for name, its in parts.items()}


def _key_and_fault(df: DataFrame, columns: MessageColumns, options: WriteOptions) -> DataFrame:
    """Return two columns: the routing key, and the first fault of the row or null."""
    from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

    numbered = number_columns(df)

    def column(at: int) -> Column:
        return numbered[str(at)]

    def fault(check: Check) -> Column:
        checked = column(check.column)
        is_bad = checked.isNull() if check.most_bytes is None else F.octet_length(checked) > check.most_bytes
        return F.when(is_bad, check.fault)

    key = F.lit(options.queue or options.routing_key) if columns.key is None else column(columns.key)
    first_fault = F.coalesce(*map(fault, list_checks(columns, options)))
    return numbered.select(key.alias("key"), first_fault.alias("fault"))


def count_partition(
    ring_json: str | None, batches: Iterator[pa.RecordBatch]
) -> tuple[int, Counter[str], Counter[str]]:
    """Return the number of rows of a partition, of good rows by predicted queue, and of bad rows by fault. Runs in Python workers."""
    rows, queues, bad = 0, Counter[str](), Counter[str]()
    for batch in batches:
        keys, faults = batch.column(0), batch.column(1)
        rows += batch.num_rows
        if faults.null_count < len(faults):
            bad.update(fault for fault in faults.to_pylist() if fault is not None)
            keys = keys.filter(faults.is_null())
        if ring_json is not None:
            queues.update(count_by_queue(cached_ring(ring_json), keys))
    return rows, queues, bad


def _hottest(rows: DataFrame, ring: KeyMap | None) -> Iterator[HotKey]:
    from pyspark.sql import functions as F  # noqa: N812

    good = rows.where("fault IS NULL").groupBy("key").count()
    for row in good.orderBy(F.desc("count"), "key").limit(_HOTTEST).collect():
        key = row["key"] if isinstance(row["key"], str) else bytes(row["key"])
        shown = key if isinstance(key, str) else key.decode(errors="backslashreplace")
        queue = None if ring is None else str(ring.destination_for(key) or NO_QUEUE)
        yield HotKey(shown, row["count"], queue)

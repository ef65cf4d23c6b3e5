"""What a dry run found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from spark_connector.reports.text_table import text_table_of

__all__ = ["DryRun", "HotKey", "PartitionRows", "skew"]

_SHOWN = 20


def skew(rows: Iterable[int]) -> float:
    """Return the greatest count divided by the mean: 1.0 is even, 2.0 means that one has twice its part.

    Args:
        rows: number of rows of each partition or queue; the skew of no rows is 1.0.
    """
    counts = list(rows)
    return max(counts) * len(counts) / sum(counts) if any(counts) else 1.0


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows of a partition, which are the work of one task.

    Attributes:
        partition: number of the partition.
        rows: number of all rows.
        queues: number of good rows by predicted queue.
    """

    partition: int
    rows: int
    queues: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HotKey:
    """A routing key that many rows have.

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
    """What a write would do. `str` makes a table of it.

    Attributes:
        exchange: name of the exchange; empty if a column names it.
        broker: the addresses, without a password.
        columns: the part of the message that each column of the frame becomes.
        partitions: the rows of each partition of the frame as it is.
        ring_provenance: how the ring was obtained (read, replayed, assumed), or None.
        shares: share of the ring by queue.
        hottest: the ten most frequent keys.
        bad_rows: number of rows that AMQP cannot carry, by reason.
        problems: why the write would fail, in words.
        notes: facts that a reader should know.
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
        """Whether no problem was found."""
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
        """Return the report as a JSON object: every attribute, and rows, predicted, both skews and ok."""
        added = ("ok", "rows", "predicted", "partition_skew", "queue_skew")
        return json.dumps({**asdict(self), **{name: getattr(self, name) for name in added}}, indent=2)

    def __str__(self) -> str:
        return "\n\n".join(_parts(self))


def _parts(run: DryRun) -> Iterator[str]:
    exchange = f"exchange {run.exchange!r}" if run.exchange else "exchanges named by a column"
    yield f"dry run, nothing was sent: {run.rows:,} rows to {exchange} at {run.broker}"
    if run.problems:
        yield "\n".join(f"problem: {problem}" for problem in run.problems)
    yield text_table_of(("column", "is the message's"), run.columns.items())
    if run.bad_rows:
        yield text_table_of(("bad because", "rows"), run.bad_rows.items())
    if run.predicted:
        heading = f"queue, predicted ({run.ring_provenance} ring)"
        good = sum(run.predicted.values())
        queues = (
            (name, _percent(run.shares.get(name, 0.0)), rows, _percent(rows / good if good else 0.0))
            for name, rows in run.predicted.items()
        )
        yield text_table_of((heading, "of the ring", "rows", "of the rows"), queues)
        yield f"skew of the queues {run.queue_skew:.2f} (most beside mean)"
    largest = sorted(run.partitions, key=lambda part: -part.rows)[:_SHOWN]
    shown = ((str(part.partition), part.rows, len(part.queues)) for part in largest)
    yield text_table_of(("partition", "rows", "queues in it"), shown)
    if len(run.partitions) > len(largest):
        yield f"and {len(run.partitions) - len(largest):,} smaller partitions"
    yield f"skew of the partitions {run.partition_skew:.2f} (most beside mean)"
    if run.hottest:
        keys = ((hot.key, hot.rows, _percent(hot.rows / run.rows), hot.queue or "") for hot in run.hottest)
        yield text_table_of(("hottest keys", "rows", "of the rows", "queue"), keys)
    if run.notes:
        yield "\n".join(f"note: {note}" for note in run.notes)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

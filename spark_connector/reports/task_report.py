"""What became of the rows of one task."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rabbit_chx.publishing import PublishReport
from spark_connector.placing.key_sample import KeySample

#: Samples that a task keeps, and that a report shows.
MAX_SAMPLES = 10
_COUNTS = (
    "published",
    "confirmed",
    "returned",
    "nacked",
    "retried",
    "republished",
    "reconnects",
    "bytes_sent",
    "seconds",
    "blocked_seconds",
)


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that was not confirmed. It contains nothing of the body.

    Attributes:
        partition: number of the Spark partition.
        row: number of the row in the partition, from 0; None if only the broker knows it.
        reason: why it was not confirmed, in words.
        key_hash: `hash_of_key` of the routing key; None if the row has no key.
    """

    partition: int
    row: int | None
    reason: str
    key_hash: str | None = None


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """The rows of a write into streams by the stream protocol.

    Attributes:
        rows: the rows that each stream has confirmed.
        known: of these, those whose ids the broker had from an earlier run or attempt: they were not stored again.
        repaired: rows that the broker had confirmed and not stored, stored under a second name.
        verified: rows that were read back, and are there once, with their key and body (``verify=full``).
        lost: rows that were read for, and are not there.
        doubled: rows that are there more than once.
        changed: rows that are there with another key or body only.
        unverified: rows that retention removed before they could be read back.
        differences: the first rows that are lost, doubled or changed, in words.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    known: int = 0
    repaired: int = 0
    verified: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    unverified: int = 0
    differences: tuple[str, ...] = ()

    def __add__(self, other: StreamCounts) -> StreamCounts:
        """Return the sums of all counts."""
        return StreamCounts(
            dict(Counter(self.rows) + Counter(other.rows)),
            self.known + other.known,
            self.repaired + other.repaired,
            self.verified + other.verified,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.changed + other.changed,
            self.unverified + other.unverified,
            (self.differences + other.differences)[:MAX_SAMPLES],
        )


def hash_of_key(key: bytes) -> str:
    """Return the first 16 hexadecimal digits of the key's SHA-256.

    They are enough to find the row again, and do not show the key itself.
    """
    return hashlib.sha256(key).hexdigest()[:16]


class PublishedCounts:
    """The counts of published rows, as both `TaskReport` and `WriteReport` have them.

    Attributes:
        publish_report: the counts of the publisher, or their sum over the tasks.
    """

    __slots__ = ()
    publish_report: PublishReport

    @property
    def published(self) -> int:
        """Rows that were published; each is counted once."""
        return self.publish_report.rows

    @property
    def confirmed(self) -> int:
        """Rows that the broker confirmed and did not return."""
        return self.publish_report.confirmed

    @property
    def returned(self) -> int:
        """Rows that no queue took (``onUnroutable=skip``)."""
        return self.publish_report.returned

    @property
    def nacked(self) -> int:
        """Rows that the broker refused for good; 0, since a write with such rows fails."""
        return self.publish_report.nacked

    @property
    def retried(self) -> int:
        """Messages that were sent again because the broker had refused them."""
        return self.publish_report.retried

    @property
    def republished(self) -> int:
        """Messages that were sent again after a connection was lost."""
        return self.publish_report.republished

    @property
    def reconnects(self) -> int:
        """Connections that were opened in place of a lost one."""
        return self.publish_report.reconnects

    @property
    def bytes_sent(self) -> int:
        """Bytes of AMQP frames."""
        return self.publish_report.bytes_sent

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which the broker asked publishers to wait; of a write, the sum over its tasks."""
        return self.publish_report.blocked_seconds


@dataclass(frozen=True, slots=True)
class TaskReport(PublishedCounts):
    """The rows of one task: ``rows == skipped + confirmed + returned``, or the task would have failed.

    Attributes:
        partition: number of the Spark partition.
        attempt: number of the task attempt; above 0, rows may have been delivered twice.
        write_id: id of the write, or of the streaming query.
        batch_id: number of the micro-batch; None outside a stream.
        rows: rows of the partition.
        skipped: rows that were left out: bad ones (``badRows=skip``), or all of a stale version (``onStaleVersion=skip``).
        publish_report: the counts of the publisher, without its samples.
        predicted: published rows per queue by the ring; the broker never says where a message went.
        samples: the first few rows that were skipped or returned.
        task_id: Spark's own number of the task attempt; None outside Spark.
        notes: facts about the task that a reader of the report should know.
        keys: a sample of the routing keys with ``ordering=per-key``, to compare partitions; it is not in the
            JSON.
        streams: the counts of a write into streams; None for one by AMQP.
    """

    partition: int
    attempt: int
    write_id: str = ""
    batch_id: int | None = None
    rows: int = 0
    skipped: int = 0
    publish_report: PublishReport = field(default=PublishReport())
    predicted: dict[str, int] = field(default_factory=dict)
    samples: tuple[RowSample, ...] = ()
    task_id: int | None = None
    notes: tuple[str, ...] = ()
    keys: KeySample = field(default=KeySample(), repr=False)
    streams: StreamCounts | None = None

    @property
    def seconds(self) -> float:
        """Seconds from the first row to the last confirm."""
        return self.publish_report.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON shows it: one level, with the counts between `skipped` and `predicted`."""
        return {
            "partition": self.partition,
            "attempt": self.attempt,
            "write_id": self.write_id,
            "batch_id": self.batch_id,
            "rows": self.rows,
            "skipped": self.skipped,
            **{name: getattr(self, name) for name in _COUNTS},
            "predicted": self.predicted,
            "samples": [asdict(sample) for sample in self.samples],
            "task_id": self.task_id,
            "notes": self.notes,
            "streams": self.streams and asdict(self.streams),
        }

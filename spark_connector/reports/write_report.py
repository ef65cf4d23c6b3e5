"""What became of the rows of a write: per task, and in all."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from spark_connector.placing.key_sample import KeySample

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_SAMPLES", "RowSample", "TaskReport", "WriteReport", "hash_of_key"]

#: Samples that a task keeps, and that a report shows.
MAX_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that was not confirmed; nothing of its body is in here.

    Attributes:
        partition: number of the Spark partition.
        row: its number in the partition, from 0; None where only the broker knows it.
        reason: in words.
        key_hash: `hash_of_key` of its routing key; None where it has none.
    """

    partition: int
    row: int | None
    reason: str
    key_hash: str | None = None


def hash_of_key(key: bytes) -> str:
    """The first 16 hexadecimal digits of its SHA-256: enough to find a row again, and not the key itself."""
    return hashlib.sha256(key).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The rows of one task: ``rows == skipped + confirmed + returned``, else the task would have failed.

    Attributes:
        partition: number of the Spark partition.
        attempt: number of the task's attempt; above 0, rows may have been delivered twice.
        write_id: of the write, or of the streaming query.
        batch_id: of the micro-batch; 0 where there is no stream.
        rows: rows of the partition.
        skipped: bad rows that were left out (``badRows=skip``).
        published: rows that were published; each counted once.
        confirmed: rows that the broker confirmed, and did not return.
        returned: rows that no queue took (``onUnroutable=skip``).
        nacked: rows that the broker refused to the end; 0, since a task with such rows fails.
        retried: messages that were sent again, because the broker had refused them.
        republished: messages that were sent again after a loss of the connection.
        reconnects: new connections after a loss.
        bytes_sent: bytes of AMQP frames.
        seconds: from the first row to the last confirm.
        blocked_seconds: of these, how long the broker had asked publishers to wait.
        predicted: published rows per queue by the mirror; the broker never says where a message went.
        samples: the first few rows that were skipped or returned.
        task_id: Spark's own number of the task attempt; None where there is no Spark.
        notes: what one should know of the task.
        keys: a sample of its routing keys with ``ordering=per-key``, to compare partitions; not in the JSON.
    """

    partition: int
    attempt: int
    write_id: str = ""
    batch_id: int = 0
    rows: int = 0
    skipped: int = 0
    published: int = 0
    confirmed: int = 0
    returned: int = 0
    nacked: int = 0
    retried: int = 0
    republished: int = 0
    reconnects: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0
    blocked_seconds: float = 0.0
    predicted: dict[str, int] = field(default_factory=dict)
    samples: tuple[RowSample, ...] = ()
    task_id: int | None = None
    notes: tuple[str, ...] = ()
    keys: KeySample = field(default=KeySample(), repr=False)


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A whole write, or one micro-batch of a stream. `str` makes a table of it.

    Attributes:
        exchange: the exchange written to.
        tasks: one report per task that committed.
        ring_provenance: how the ring behind `predicted` was got (read, replayed, assumed), or None.
        write_id: of the write, or of the streaming query.
        batch_id: of the micro-batch; None where there is no stream.
        seconds: from the planning of the write to its end, what Spark computed before included.
        notes: what one should know, such as that an alternate exchange takes what no queue takes.
        failed: whether the write failed. The counts are then those of the tasks that finished, and rows of the
            others may be in the queues as well.
        unfinished: tasks that did not finish; None where Spark does not say how many there are.
    """

    exchange: str
    tasks: tuple[TaskReport, ...]
    ring_provenance: str | None = None
    write_id: str = ""
    batch_id: int | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    failed: bool = False
    unfinished: int | None = 0

    @classmethod
    def of(
        cls,
        exchange: str,
        tasks: Iterable[TaskReport],
        ring_provenance: str | None,
        *,
        write_id: str = "",
        batch_id: int | None = None,
        seconds: float = 0.0,
        notes: Iterable[str] = (),
        failed: bool = False,
        unfinished: int | None = 0,
    ) -> WriteReport:
        """Collect task reports, in the order of their partitions; without a `write_id`, theirs is taken."""
        ordered = tuple(sorted(tasks, key=lambda task: task.partition))
        if not write_id:
            write_id = next((task.write_id for task in ordered if task.write_id), "")
        return cls(
            exchange, ordered, ring_provenance, write_id, batch_id, seconds, tuple(notes), failed, unfinished
        )

    @property
    def rows(self) -> int:
        """Rows of the DataFrame."""
        return sum(task.rows for task in self.tasks)

    @property
    def skipped(self) -> int:
        """Bad rows that were left out."""
        return sum(task.skipped for task in self.tasks)

    @property
    def published(self) -> int:
        """Rows that were published; each counted once."""
        return sum(task.published for task in self.tasks)

    @property
    def confirmed(self) -> int:
        """Rows that the broker confirmed, and did not return."""
        return sum(task.confirmed for task in self.tasks)

    @property
    def returned(self) -> int:
        """Rows that no queue took."""
        return sum(task.returned for task in self.tasks)

    @property
    def nacked(self) -> int:
        """Rows that the broker refused to the end; 0, since a write with such rows fails."""
        return sum(task.nacked for task in self.tasks)

    @property
    def retried(self) -> int:
        """Messages that were sent again, because the broker had refused them."""
        return sum(task.retried for task in self.tasks)

    @property
    def republished(self) -> int:
        """Messages that were sent again by a task."""
        return sum(task.republished for task in self.tasks)

    @property
    def reconnects(self) -> int:
        """New connections after a loss."""
        return sum(task.reconnects for task in self.tasks)

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which the broker had asked tasks to wait, added up over the tasks."""
        return sum(task.blocked_seconds for task in self.tasks)

    @property
    def bytes_sent(self) -> int:
        """Bytes of AMQP frames."""
        return sum(task.bytes_sent for task in self.tasks)

    @property
    def predicted(self) -> dict[str, int]:
        """Published rows per queue, by the mirror."""
        total: Counter[str] = Counter()
        for task in self.tasks:
            total.update(task.predicted)
        return dict(total)

    @property
    def samples(self) -> tuple[RowSample, ...]:
        """The first few rows that were skipped or returned."""
        return tuple(sample for task in self.tasks for sample in task.samples)[:MAX_SAMPLES]

    def to_json(self) -> str:
        """The report as a JSON object: every attribute and total, and the reports of the tasks."""
        return json.dumps(
            {
                **{
                    name: getattr(self, name)
                    for name in (
                        "exchange",
                        "write_id",
                        "batch_id",
                        "failed",
                        "unfinished",
                        *TOTALS,
                        "seconds",
                        "predicted",
                        "ring_provenance",
                        "notes",
                    )
                },
                "samples": [asdict(sample) for sample in self.samples],
                "tasks": [_shown(task) for task in self.tasks],
            },
            indent=2,
        )

    def __str__(self) -> str:
        from spark_connector.reports.report_text import render

        return render(self)


def _shown(task: TaskReport) -> dict[str, object]:
    shown = asdict(task)
    del shown["keys"]
    return shown


#: The sums over the tasks, in the order in which they are shown.
TOTALS = (
    "rows",
    "skipped",
    "published",
    "confirmed",
    "returned",
    "nacked",
    "retried",
    "republished",
    "reconnects",
    "blocked_seconds",
    "bytes_sent",
)

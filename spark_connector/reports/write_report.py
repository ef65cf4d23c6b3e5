"""What became of the rows of a write, in all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.publishing import PublishReport
from spark_connector.reports.task_report import MAX_SAMPLES, PublishedCounts, RowSample, TaskReport
from spark_connector.reports.text_table import text_table_of

if TYPE_CHECKING:
    from rabbit_chx.routing import KeyMap

__all__ = ["WriteReport"]

#: The sums over the tasks, in the order in which they are shown.
_TOTALS = (
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


@dataclass(frozen=True, slots=True)
class WriteReport(PublishedCounts):
    """A whole write, or one micro-batch of a stream. `str` makes a table of it.

    Attributes:
        exchange: name of the exchange; empty if a column names it.
        tasks: one report for each task that committed, in the order of their partitions.
        ring_provenance: how the ring behind `predicted` was obtained (read, replayed, assumed), or None.
        write_id: id of the write, or of the streaming query.
        batch_id: number of the micro-batch; None outside a stream.
        seconds: seconds from the planning of the write to its end, including what Spark computed before.
        notes: facts that a reader should know, such as an alternate exchange that takes what no queue takes.
        failed: whether the write failed. The counts are then those of the finished tasks, and rows of the
            other tasks may be in the queues as well.
        unfinished: number of tasks that did not finish; None if Spark does not say how many there are.
        changed_ring: the ring by which rows were routed in the client and the ring after the write, if they differ; else None.
        publish_report: the sums over the tasks.
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
    changed_ring: tuple[KeyMap, KeyMap] | None = None
    publish_report: PublishReport = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total = sum((task.publish_report for task in self.tasks), PublishReport())
        object.__setattr__(self, "publish_report", total)

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
        """Return the report of a write, with its tasks in the order of their partitions.

        Args:
            exchange: the exchange that was written to.
            tasks: the reports of the tasks that finished, in any order.
            ring_provenance: where the ring of the predictions comes from; None without a ring.
            write_id: the id of the write; if it is empty, that of the tasks.
            batch_id: the micro-batch of a stream; None outside a stream.
            seconds: from the planning of the write to its end.
            notes: what the report says in words.
            failed: whether the write failed.
            unfinished: how many tasks did not finish; None where that is not known.
        """
        ordered = tuple(sorted(tasks, key=lambda task: task.partition))
        if not write_id:
            write_id = next((task.write_id for task in ordered if task.write_id), "")
        return cls(
            exchange,
            ordered,
            ring_provenance,
            write_id,
            batch_id,
            seconds,
            tuple(notes),
            failed,
            unfinished,
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
    def predicted(self) -> dict[str, int]:
        """Published rows per queue, by the ring."""
        total: Counter[str] = Counter()
        for task in self.tasks:
            total.update(task.predicted)
        return dict(total)

    @property
    def samples(self) -> tuple[RowSample, ...]:
        """The first few rows that were skipped or returned."""
        return tuple(sample for task in self.tasks for sample in task.samples)[:MAX_SAMPLES]

    def to_json(self) -> str:
        """Return the report as a JSON object: every attribute and total, and the reports of the tasks."""
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
                        *_TOTALS,
                        "seconds",
                        "predicted",
                        "ring_provenance",
                        "notes",
                    )
                },
                "changed_ring": self.changed_ring
                and [json.loads(one.to_json()) for one in self.changed_ring],
                "samples": [asdict(sample) for sample in self.samples],
                "tasks": [task.to_dict() for task in self.tasks],
            },
            indent=2,
        )

    def __str__(self) -> str:
        return "\n\n".join(_parts(self))


def _parts(report: WriteReport) -> Iterator[str]:
    """Totals, rows per predicted queue, partitions, samples and notes."""
    batch = f", batch {report.batch_id}" if report.batch_id is not None else ""
    yield f"write {report.write_id or 'unnamed'}{batch} to exchange {report.exchange!r}, {report.seconds:.1f} s"
    if report.failed:
        unfinished = "the other tasks" if report.unfinished is None else f"{report.unfinished:,} other tasks"
        yield (
            f"FAILED: {len(report.tasks):,} tasks finished, and their counts are below; rows of {unfinished} "
            "may be in the queues as well"
        )
    yield text_table_of(("", ""), ((name.replace("_", " "), getattr(report, name)) for name in _TOTALS))
    if report.predicted:
        queues = sorted(report.predicted.items())
        yield text_table_of((f"queue, predicted ({report.ring_provenance} ring)", "rows"), queues)
    if report.tasks:
        of_tasks = ("partition", "attempt", "rows", "seconds", "rows/s")
        yield text_table_of(of_tasks, map(_row_of_task, report.tasks))
    if report.samples:
        of_samples = ("partition", "row", "hash of key", "not confirmed because")
        yield text_table_of(of_samples, map(_row_of_sample, report.samples))
    yield from (f"note: {note}" for note in report.notes)


def _row_of_task(task: TaskReport) -> tuple[object, ...]:
    rate = task.rows / task.seconds if task.seconds else 0.0
    return str(task.partition), task.attempt, task.rows, f"{task.seconds:.1f}", f"{rate:,.0f}"


def _row_of_sample(sample: RowSample) -> tuple[str, ...]:
    row = "" if sample.row is None else f"{sample.row}"
    return f"{sample.partition}", row, sample.key_hash or "", sample.reason

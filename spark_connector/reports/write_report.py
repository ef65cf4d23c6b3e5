"""The report of a write: what became of its rows in all, and its notes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import KeyMap
from spark_connector.placing.key_sample import SplitKeys
from spark_connector.reports.task_report import (
    MAX_SAMPLES,
    PublishedCounts,
    RowSample,
    StreamCounts,
    TaskReport,
)
from spark_connector.reports.text_table import text_table_of

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions

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

_STREAM_TOTALS = (
    "rows",
    "skipped",
    "confirmed",
    "known",
    "republished",
    "repaired",
    "reconnects",
    "verified",
    "lost",
    "doubled",
    "changed",
    "unverified",
)

#: How `WriteReport.to_json` begins.
REPORT_START = b'{\n  "exchange": '


@dataclass(frozen=True, slots=True)
class WriteReport(PublishedCounts):
    """A whole write, or one micro-batch of a stream. `str` makes a table of it.

    Attributes:
        exchange: name of the exchange or super stream; empty if a column names it.
        tasks: one report for each task that committed; they are put into the order of their partitions.
        ring_provenance: how the ring behind `predicted` was obtained (read, replayed, assumed), or None.
        write_id: id of the write, or of the streaming query; if it is not given, that of the tasks.
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
        tasks = tuple(sorted(self.tasks, key=lambda task: task.partition))
        write_id = self.write_id or next((task.write_id for task in tasks if task.write_id), "")
        total = sum((task.publish_report for task in tasks), PublishReport())
        for name, value in (("tasks", tasks), ("write_id", write_id), ("publish_report", total)):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        """Rows of the DataFrame."""
        return sum(task.rows for task in self.tasks)

    @property
    def skipped(self) -> int:
        """Rows that were left out: bad ones, or those of a stale version."""
        return sum(task.skipped for task in self.tasks)

    @property
    def predicted(self) -> dict[str, int]:
        """Published rows per queue, by the ring."""
        total: Counter[str] = Counter()
        for task in self.tasks:
            total.update(task.predicted)
        return dict(total)

    @property
    def streams(self) -> StreamCounts | None:
        """The counts of a write into streams; None for one by AMQP."""
        counts = [task.streams for task in self.tasks if task.streams is not None]
        return sum(counts, StreamCounts()) if counts else None

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
                and [json.loads(ring.to_json()) for ring in self.changed_ring],
                "streams": self.streams and asdict(self.streams),
                "samples": [asdict(sample) for sample in self.samples],
                "tasks": [task.to_dict() for task in self.tasks],
            },
            indent=2,
        )

    def __str__(self) -> str:
        return "\n\n".join(_parts(self))


def left_behind(report: WriteReport) -> str:
    """Say which rows of a failed write are in the queues, as far as it is known."""
    finished, unfinished = len(report.tasks), report.unfinished
    if not finished and unfinished is None:
        return "no finished task is known, and rows of any task may be in the queues"
    if finished:
        rows, tasks = _number(report.confirmed, "row"), _number(finished, "finished task")
        known = f"at least {rows} of {tasks} are in the queues and stay there"
    else:
        known = "no task finished"
    if unfinished == 0:
        return known
    others = (
        "the other tasks" if unfinished is None else _number(unfinished, "other task" if finished else "task")
    )
    return f"{known}; rows of {others} may be in the queues{' as well' if finished else ''}"


def _number(number: int, things: str) -> str:
    return f"{number:,} {things}{'' if number == 1 else 's'}"


def _parts(report: WriteReport) -> Iterator[str]:
    """Totals, rows per predicted queue, partitions, samples and notes."""
    batch = f", batch {report.batch_id}" if report.batch_id is not None else ""
    yield f"write {report.write_id or 'unnamed'}{batch} to exchange {report.exchange!r}, {report.seconds:.1f} s"
    if report.failed:
        yield f"FAILED: {left_behind(report)}; the counts are those of finished tasks"
    yield text_table_of(("", ""), _totals(report))
    if report.streams is not None:
        yield text_table_of(("stream", "rows"), sorted(report.streams.rows.items()))
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


def _totals(report: WriteReport) -> Iterator[tuple[str, int | float]]:
    streams = report.streams
    for name in _TOTALS if streams is None else _STREAM_TOTALS:
        yield name.replace("_", " "), getattr(report if hasattr(report, name) else streams, name)


def _row_of_task(task: TaskReport) -> tuple[object, ...]:
    rate = task.rows / task.seconds if task.seconds else 0.0
    return str(task.partition), task.attempt, task.rows, f"{task.seconds:.1f}", f"{rate:,.0f}"


def _row_of_sample(sample: RowSample) -> tuple[str, ...]:
    row = "" if sample.row is None else f"{sample.row}"
    return f"{sample.partition}", row, sample.key_hash or "", sample.reason


def notes_on(
    tasks: Sequence[TaskReport], options: WriteOptions, ring_now: str | None = None
) -> tuple[str, ...]:
    """Return the notes of the tasks, each once, and the notes that only all tasks together give rise to.

    Args:
        tasks: the reports of one write.
        options: how the rows were written.
        ring_now: what `WatchedRing.look_again` returned after connections were lost.
    """
    own = dict.fromkeys(note for task in tasks for note in task.notes)
    if options.exactly_once:
        return (*own, *filter(None, [ring_now]))
    return (*own, *_on_attempts(tasks), *_on_losses(tasks, options, ring_now), *_on_keys(tasks, options))


def _on_attempts(tasks: Sequence[TaskReport]) -> Iterator[str]:
    again = sum(task.attempt > 0 for task in tasks)
    if again:
        yield (
            f"Spark ran {again} of {len(tasks)} tasks more than once: rows of the earlier attempts may be in the "
            "queues twice"
        )
    # Spark numbers task attempts as it starts them: those of one stage are consecutive if nothing else runs.
    numbers = [task.task_id for task in tasks if task.task_id is not None]
    between = max(numbers) - min(numbers) + 1 - len(numbers) if numbers else 0
    others = between - sum(task.attempt for task in tasks)
    if others > 0:
        yield (
            f"Spark ran {others} other tasks between those of this write: tasks of another job, copies of slow "
            "tasks, or a stage that ran again because an executor or shuffle files were lost; after such a stage, "
            "rows of this write may be in the queues twice, though every attempt is 0"
        )


def _on_losses(tasks: Sequence[TaskReport], options: WriteOptions, ring_now: str | None) -> Iterator[str]:
    reconnects = sum(task.reconnects for task in tasks)
    if options.super_stream:  # no ring
        return
    if not reconnects:
        if ring_now is not None:
            yield ring_now
        return
    if ring_now is not None:
        yield f"connections were lost and opened again ({reconnects}): {ring_now}"
    else:
        advice = (
            ""
            if options.ring is None
            else "; rows by predicted queue are then wrong, so read the ring again and compare"
        )
        yield (
            f"connections were lost and opened again ({reconnects}): if the broker was restarted and keeps its "
            "metadata in Mnesia (the default until 4.1, gone in 4.3), the ring may have another order now, and keys may have "
            f"changed queue during the write{advice}"
        )
    if options.keep_order and any(task.republished for task in tasks):
        yield (
            "messages were sent again after a connection was lost, and copies from the old connection may arrive "
            "after newer messages of their key: a consumer that needs the order drops messages older than what "
            "it has seen"
        )


def _on_keys(tasks: Sequence[TaskReport], options: WriteOptions) -> Iterator[str]:
    if not options.keep_order:
        return
    keys = SplitKeys.of(task.keys for task in tasks)
    if keys.split:
        of_what = f"its {keys.looked_at:,} keys" if keys.complete else f"{keys.looked_at:,} keys looked at"
        yield (
            f"ordering is per-key, and {keys.split:,} of {of_what} are in more than one partition, so the order "
            "of their messages is random: place the rows first (spark_connector.place, or repartition by "
            "the key and sortWithinPartitions)"
        )

"""The report of a write: its tasks, text, JSON and files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.result_fields import json_fields, shown, to_json
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import plural

if TYPE_CHECKING:
    from rabbit_chx.rendering.document import Block, Document


_log = logging.getLogger(__name__)


def render_text(report: Document) -> str:
    """Return a report as plain text."""
    from rabbit_chx.rendering.output import ConsoleOutput

    text = StringIO()
    ConsoleOutput(text).show(report)
    return text.getvalue().rstrip("\n")


#: The reply code of a message that was returned.
NO_ROUTE = 312
#: Samples that a task keeps, and that a report shows.
MAX_SAMPLES = 10
#: The counts of a `PublishReport` that reports show, in their order.
_COUNTS = (
    "confirmed", "returned", "nacked", "unknown", "retried", "republished", "reconnects", "blocked_seconds",
    "bytes_sent",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that was not confirmed, without its body.

    Attributes:
        partition: number of the Spark partition.
        row: number of the row in the partition, from 0; None if only the broker has it.
        reason: why it was not confirmed.
        key_hash: `hash_key` of the routing key; None if the row has no key.
    """

    partition: int
    row: int | None
    reason: str
    key_hash: str | None = None

    @property
    def is_returned(self) -> bool:
        """True if the broker returned the row as unroutable."""
        return self.reason.startswith(f"{NO_ROUTE} ")


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """The rows of a write into streams by the stream protocol.

    Attributes:
        rows: the rows that each stream has confirmed.
        known: of these, those whose ids the broker had from an earlier run or attempt: they were not stored again.
        repaired: rows that the broker had confirmed and not stored, stored under a second name.
        verified: rows that were read back, and are stored once, with their key and body (``verify=full``).
        lost: rows that were looked up, and are not stored.
        doubled: rows that are stored more than once.
        changed: rows that are stored with another key or body only.
        unverified: rows that retention removed before they could be read back.
        differences: descriptions of the first rows that are lost, doubled or changed.
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
        differences = (*self.differences, *other.differences)
        return StreamCounts(
            rows=dict(Counter(self.rows) + Counter(other.rows)),
            known=self.known + other.known,
            repaired=self.repaired + other.repaired,
            verified=self.verified + other.verified,
            lost=self.lost + other.lost,
            doubled=self.doubled + other.doubled,
            changed=self.changed + other.changed,
            unverified=self.unverified + other.unverified,
            differences=differences[:MAX_SAMPLES],
        )


def hash_key(key: bytes) -> str:
    """Return the first 16 hexadecimal digits of the key's SHA-256: they identify the row without showing the key."""
    return hashlib.sha256(key).hexdigest()[:16]


class PublishedCounts:
    """What became of the rows that were published, by the publishers: of a task, or of all tasks of a write."""

    __slots__ = ()
    publish_report: PublishReport

    @property
    def confirmed(self) -> int:
        """Rows that the broker confirmed and did not return."""
        return self.publish_report.confirmed

    @property
    def returned(self) -> int:
        """Rows that were not routed to a queue (``onUnroutable=skip``)."""
        return self.publish_report.returned

    @property
    def nacked(self) -> int:
        """Rows that the broker refused permanently; 0, since a write with such rows fails."""
        return self.publish_report.nacked

    @property
    def unknown(self) -> int:
        """Rows that were returned (``onUnroutable=skip``) after a connection had ended without an answer: each may be in a queue."""
        return self.publish_report.unknown

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
    def blocked_seconds(self) -> float:
        """Seconds for which the broker blocked publishers: a sum over the tasks."""
        return self.publish_report.blocked_seconds

    @property
    def bytes_sent(self) -> int:
        """Bytes of AMQP frames."""
        return self.publish_report.bytes_sent


@dataclass(frozen=True, slots=True)
class FinishedTask(PublishedCounts):
    """One task of a write: where it ran, and what became of its rows.

    Each row is skipped, confirmed, returned or unknown, or the task would have failed.

    Attributes:
        partition: number of the Spark partition.
        attempt: number of the task attempt; above 0, rows may have been delivered twice.
        write_id: id of the write, or of the streaming query.
        batch_id: number of the micro-batch; None outside a stream.
        rows: rows of the partition.
        skipped: rows that were omitted: bad ones (``badRows=skip``), or all of a stale version (``onStaleVersion=skip``).
        publish_report: the counts of the other rows, without samples.
        predicted: published rows per queue by the ring; the broker does not report the queue of a message.
        samples: the first few rows that were skipped or returned.
        task_id: Spark's own number of the task attempt; None outside Spark.
        notes: facts about the task that a reader of the report should know.
        keys: the sample of the routing keys with ``ordering=per-key`` (`add_to_sample`), to compare partitions; not part of the JSON.
        streams: the counts of a write into streams; None for one by AMQP.
    """

    partition: int
    attempt: int
    write_id: str = ""
    batch_id: int | None = None
    rows: int = 0
    skipped: int = 0
    publish_report: PublishReport = field(default=PublishReport(), metadata=shown(json=None))
    predicted: dict[str, int] = field(default_factory=dict)
    samples: tuple[RowSample, ...] = ()
    task_id: int | None = None
    notes: tuple[str, ...] = ()
    keys: bytes = field(default=b"", repr=False, metadata=shown(json=None))
    streams: StreamCounts | None = None

    @property
    def published(self) -> int:
        """Rows that were published; one that a stream had from an earlier run or attempt is not."""
        known = 0 if self.streams is None else self.streams.known
        return self.publish_report.rows - known

    @property
    def seconds(self) -> float:
        """Seconds from the first row to the last confirm."""
        return self.publish_report.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the task as flat JSON: the counts are on the level of the other fields."""
        found: dict[str, Any] = to_json(json_fields(self))
        found["published"] = self.published
        for name in (*_COUNTS, "seconds"):
            found[name] = getattr(self.publish_report, name)
        return found


def total_report(tasks: Iterable[FinishedTask]) -> PublishReport:
    """Return the sums of the counts of tasks."""
    return sum((task.publish_report for task in tasks), PublishReport())


#: The sums over the tasks, in the order in which they are shown.
_TOTALS = ("rows", "skipped", "published", *_COUNTS)
_JSON = (
    "exchange", "queue", "write_id", "batch_id", "failed", "unfinished", *_TOTALS, "seconds", "predicted",
    "ring_provenance", "notes",
)  # fmt: skip
#: The first bytes of `WriteReport.to_json`.
REPORT_START = b'{\n  "exchange": '


@dataclass(frozen=True, slots=True)
class WriteReport(PublishedCounts):
    """The report of a batch write or of one micro-batch. `str` renders it as text.

    Attributes:
        exchange: name of the exchange or super stream; empty if a column contains it, or for a queue.
        tasks: one for each task that committed, in the order of their partitions.
        ring_provenance: the origin of the ring of `predicted` (read, recorded, observed or replayed), or None.
        write_id: id of the write, or of the streaming query; by default that of the tasks.
        batch_id: number of the micro-batch; None outside a stream.
        seconds: seconds from the planning of the write to its end, including Spark's computations before.
        notes: facts that a reader should know, such as an alternate exchange that receives unroutable messages.
        failed: whether the write failed. The counts are then those of the finished tasks, and rows of the other tasks may be in the queues
            as well.
        unfinished: number of tasks that did not finish; None if Spark does not report the number of tasks.
        queue: name of the queue that got all rows; None for an exchange.
        to_streams: whether rows are written into streams; the report then has their counts, also without a row.
        changed_ring: the ring by which rows were routed in the client and the ring after the write, if they differ; else None.
        super_stream: whether `exchange` is a super stream.
        placed_streams: with exactly-once, the number of streams: partition 0 has the rows of the first one, and the partition behind those of the
            streams has the rows without one, such as those with a null key; 0 if it is not known.
        publish_report: the sums over the tasks.
    """

    exchange: str
    tasks: tuple[FinishedTask, ...]
    ring_provenance: str | None = None
    write_id: str = ""
    batch_id: int | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    failed: bool = False
    unfinished: int | None = 0
    changed_ring: tuple[KeyMap, KeyMap] | None = None
    queue: str | None = None
    to_streams: bool = False
    super_stream: bool = False
    placed_streams: int = 0
    publish_report: PublishReport = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tasks = tuple(sorted(self.tasks, key=lambda task: task.partition))
        write_id = self.write_id or next((task.write_id for task in tasks if task.write_id), "")
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "write_id", write_id)
        object.__setattr__(self, "publish_report", total_report(tasks))

    @property
    def rows(self) -> int:
        """Rows of the DataFrame."""
        return sum(task.rows for task in self.tasks)

    @property
    def skipped(self) -> int:
        """Rows that were omitted: bad ones, or those of a stale version."""
        return sum(task.skipped for task in self.tasks)

    @property
    def published(self) -> int:
        """Rows that were published; each is counted once, and one that a stream had from an earlier run or attempt (`known`) is not."""
        return sum(task.published for task in self.tasks)

    @property
    def predicted(self) -> dict[str, int]:
        """Published rows per queue, by the ring."""
        return dict(sum((Counter(task.predicted) for task in self.tasks), Counter[str]()))

    @property
    def streams(self) -> StreamCounts | None:
        """The counts of a write into streams; None for one by AMQP."""
        counts = [task.streams for task in self.tasks if task.streams is not None]
        return sum(counts, StreamCounts()) if counts or self.to_streams else None

    @property
    def samples(self) -> tuple[RowSample, ...]:
        """The first few rows that were skipped or returned."""
        return tuple(sample for task in self.tasks for sample in task.samples)[:MAX_SAMPLES]

    def to_json(self) -> str:
        """Return every attribute and total, and the reports of the tasks, as JSON."""
        return json.dumps(self.document().as_json(), indent=2)

    def document(self) -> Document:
        """Return the report for a renderer of `rabbit_chx.rendering`."""
        from rabbit_chx.rendering.document import Document

        return Document("", list(self._shown()), self._fields)

    def _fields(self) -> dict[str, object]:
        return {
            **{name: getattr(self, name) for name in _JSON},
            "changed_ring": self.changed_ring,
            "streams": self.streams,
            "samples": self.samples,
            "tasks": [task.to_dict() for task in self.tasks],
        }

    def _shown(self) -> Iterator[Block]:
        from rabbit_chx.rendering.document import Facts, Line, Table, TableColumn

        text = partial(TableColumn, numeric=False)
        kind = "super stream" if self.super_stream else "exchange"
        place = f"queue {self.queue!r}" if self.queue else f"{kind} {self.exchange!r}"
        batch = f", batch {self.batch_id}" if self.batch_id is not None else ""
        yield Line(f"write {self.write_id or 'unnamed'}{batch} to {place}, {self.seconds:.1f} s")
        if self.failed:
            yield Line(f"FAILED: {describe_left_rows(self)}; the counts are those of finished tasks")
        streams = self.streams
        yield Facts(
            [(name.replace("_", " "), _count_text(count)) for name, count in self._totals(streams).items()]
        )
        if streams is not None:
            yield Table([text("stream"), TableColumn("rows")], sorted(streams.rows.items()))
        if self.predicted:
            heading = text(f"queue, predicted ({self.ring_provenance} ring)")
            yield Table([heading, TableColumn("rows")], sorted(self.predicted.items()))
        if self.tasks:
            counts = map(TableColumn, ("attempt", "rows", "seconds", "rows/s"))
            yield Table(
                [text("partition"), *counts], [_row_of_task(task, self.placed_streams) for task in self.tasks]
            )
        if self.samples:
            headings = ("partition", "row", "hash of key", "not confirmed because")
            yield Table([*map(text, headings)], [_row_of_sample(sample) for sample in self.samples])
        yield from (Line(f"note: {note}") for note in self.notes)

    def _totals(self, streams: StreamCounts | None) -> dict[str, float]:
        if streams is None:
            return {name: getattr(self, name) for name in _TOTALS}
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "confirmed": self.confirmed,
            "known": streams.known,
            "republished": self.republished,
            "repaired": streams.repaired,
            "reconnects": self.reconnects,
            "verified": streams.verified,
            "lost": streams.lost,
            "doubled": streams.doubled,
            "changed": streams.changed,
            "unverified": streams.unverified,
        }

    def __str__(self) -> str:
        return render_text(self.document())


def _count_text(count: float) -> str:
    return f"{count:,.1f}" if isinstance(count, float) else f"{count:,}"


def describe_left_rows(report: WriteReport) -> str:
    """Describe which rows of a failed write are in the queues, as far as it is known."""
    finished = len(report.tasks)
    unfinished = report.unfinished
    if not finished and unfinished is None:
        return "no finished task is known, and rows of any task may be in the queues"
    if finished:
        rows = plural(report.confirmed, "row")
        tasks = plural(finished, "finished task")
        known = f"at least {rows} of {tasks} are in the queues and stay there"
    else:
        known = "no task finished"
    if unfinished == 0:
        return known
    others = (
        "the other tasks" if unfinished is None else plural(unfinished, "other task" if finished else "task")
    )
    return f"{known}; rows of {others} may be in the queues{' as well' if finished else ''}"


def _row_of_task(task: FinishedTask, streams: int) -> tuple[object, ...]:
    seconds = task.publish_report.seconds
    rate = task.rows / seconds if seconds else 0.0
    has_null_keys = 0 < streams <= task.partition
    partition = f"{task.partition} (null keys)" if has_null_keys else f"{task.partition}"
    return partition, task.attempt, task.rows, f"{seconds:.1f}", f"{rate:,.0f}"


def _row_of_sample(sample: RowSample) -> tuple[str, ...]:
    row = "" if sample.row is None else f"{sample.row}"
    return f"{sample.partition}", row, sample.key_hash or "", sample.reason


#: The suffix of the name of an earlier report.
_PREVIOUS = ".previous"


def check_report_path(text: str | None, *, streaming: bool) -> None:
    """Rename an earlier report, so that it is not taken for that of this write, and create the folder of a stream.

    Raise an InputError if the path of a stream is a file, the existing file is not a report, or the path cannot be written.
    """
    if text is None:
        return
    path = Path(text)
    why = ""
    try:
        if streaming or text.endswith("/"):
            if path.is_file():
                a_file = "there is a file of that name"
                why = "a stream has a report for each batch, so pass a folder" if streaming else a_file
            else:
                path.mkdir(exist_ok=True)
        elif path.exists() and not path.is_dir():
            previous = _previous(path)
            if _is_ours(path) and (_is_ours(previous) or not previous.exists()):
                path.replace(previous)
            else:
                why = f"that file, or the one with {_PREVIOUS} appended, is not a report: name another, or remove it yourself"
    except OSError as cause:
        raise InputError(
            f"option 'reportPath' is {text!r}: that cannot be written ({type(cause).__name__}: {cause.strerror}): name another"
        ) from None
    if why:
        raise InputError(f"option 'reportPath' is {text!r}: {why}")


def save_report(report: WriteReport, text: str | None, *, streaming: bool) -> None:
    """Write the report to its file atomically. A failure is logged and not raised: the messages are published already.

    If `streaming`, the file in the folder is named after the micro-batch; the report of a repeated batch is renamed.
    """
    if text is None:
        return
    try:
        path = Path(text)
        if streaming or text.endswith("/") or path.is_dir():
            name = f"batch-{report.batch_id}" if streaming else f"write-{report.write_id}"
            path /= f"{name}.json"
        if streaming and _is_ours(path):  # the batch is repeated
            path.replace(_previous(path))
        write_whole(path, report.to_json())
    except Exception:  # noqa: BLE001  # raising here would call a write failed that is done
        _log.exception("the report could not be written")


def write_whole(path: Path, text: str) -> None:
    """Write a file that has all of the text, or what it had before."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _previous(path: Path) -> Path:
    return path.with_name(path.name + _PREVIOUS)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(REPORT_START)) in (b"", REPORT_START)

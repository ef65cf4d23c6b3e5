"""The reports of tasks and writes: values, text, JSON and files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from io import StringIO
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.result_fields import json_fields, shown, to_json
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import plural

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rabbit_chx.rendering.document import Block, Document


_T = TypeVar("_T", bound="DataclassInstance")

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
#: The counts of published rows that reports show, in their order.
_PUBLISHED = (
    "published", "confirmed", "returned", "nacked", "unknown", "retried", "republished", "reconnects",
    "blocked_seconds", "bytes_sent",
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
        total = add_fields(self, other)
        return replace(total, differences=total.differences[:MAX_SAMPLES])


def add_fields(one: _T, other: _T) -> _T:
    """Return a dataclass whose fields are the sums of those of two others; mappings are added by key."""
    total: dict[str, Any] = {}
    for count in fields(one):
        first = getattr(one, count.name)
        second = getattr(other, count.name)
        is_mapping = isinstance(first, Mapping)
        total[count.name] = dict(Counter(first) + Counter(second)) if is_mapping else first + second
    return type(one)(**total)


def hash_key(key: bytes) -> str:
    """Return the first 16 hexadecimal digits of the key's SHA-256: they identify the row without showing the key."""
    return hashlib.sha256(key).hexdigest()[:16]


def _count(name: str) -> Any:  # of the type that is declared
    return property(attrgetter(f"publish_report.{name}"))


class PublishedCounts:
    """The counts of published rows in a `TaskReport` or a `WriteReport`: those of its `publish_report`.

    Attributes:
        published: rows that were published; each is counted once, and one that a stream had from an earlier run or attempt (`known`) is not.
        confirmed: rows that the broker confirmed and did not return.
        returned: rows that were not routed to a queue (``onUnroutable=skip``).
        nacked: rows that the broker refused permanently; 0, since a write with such rows fails.
        unknown: rows that were returned (``onUnroutable=skip``) after a connection had ended without an answer: each may be in a queue.
        retried: messages that were sent again because the broker had refused them.
        republished: messages that were sent again after a connection was lost.
        reconnects: connections that were opened in place of a lost one.
        bytes_sent: bytes of AMQP frames.
        blocked_seconds: seconds for which the broker blocked publishers; of a write, the sum over its tasks.
    """

    __slots__ = ()
    publish_report: PublishReport

    published: int = property(
        lambda self: self.publish_report.rows - (self.streams.known if self.streams else 0)
    )  # type: ignore[assignment]
    confirmed: int = _count("confirmed")
    returned: int = _count("returned")
    nacked: int = _count("nacked")
    unknown: int = _count("unknown")
    retried: int = _count("retried")
    republished: int = _count("republished")
    reconnects: int = _count("reconnects")
    bytes_sent: int = _count("bytes_sent")
    blocked_seconds: float = _count("blocked_seconds")


@dataclass(frozen=True, slots=True)
class TaskReport(PublishedCounts):
    """The rows of one task: ``rows == skipped + confirmed + returned + unknown``, or the task would have failed.

    Attributes:
        partition: number of the Spark partition.
        attempt: number of the task attempt; above 0, rows may have been delivered twice.
        write_id: id of the write, or of the streaming query.
        batch_id: number of the micro-batch; None outside a stream.
        rows: rows of the partition.
        skipped: rows that were omitted: bad ones (``badRows=skip``), or all of a stale version (``onStaleVersion=skip``).
        publish_report: the counts of the publisher, without its samples.
        predicted: published rows per queue by the ring; the broker does not report the queue of a message.
        samples: the first few rows that were skipped or returned.
        task_id: Spark's own number of the task attempt; None outside Spark.
        notes: facts about the task that a reader of the report should know.
        keys: the sample of the routing keys with ``ordering=per-key`` (`key_samples`), to compare partitions; not part of the JSON.
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
    def seconds(self) -> float:
        """Seconds from the first row to the last confirm."""
        return self.publish_report.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the report as flat JSON: the counts are on the level of the other fields."""
        counts = {name: getattr(self, name) for name in (*_PUBLISHED, "seconds")}
        return {**to_json(json_fields(self)), **counts}


#: The sums over the tasks, in the order in which they are shown.
_TOTALS = ("rows", "skipped", *_PUBLISHED)
_STREAM_TOTALS = (
    "rows", "skipped", "confirmed", "known", "republished", "repaired", "reconnects", "verified", "lost",
    "doubled", "changed", "unverified",
)  # fmt: skip

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
        tasks: one report for each task that committed, in the order of their partitions.
        ring_provenance: the origin of the ring of `predicted` (read, replayed, assumed), or None.
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
    tasks: tuple[TaskReport, ...]
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
        total = sum((task.publish_report for task in tasks), PublishReport())
        for name, value in (("tasks", tasks), ("write_id", write_id), ("publish_report", total)):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        """Rows of the DataFrame."""
        return sum(task.rows for task in self.tasks)

    @property
    def skipped(self) -> int:
        """Rows that were omitted: bad ones, or those of a stale version."""
        return sum(task.skipped for task in self.tasks)

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
        totals = {}
        for name in _TOTALS if streams is None else _STREAM_TOTALS:
            value = getattr(self if hasattr(self, name) else streams, name)
            totals[name.replace("_", " ")] = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
        yield Facts([*totals.items()])
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

    def __str__(self) -> str:
        return render_text(self.document())


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


def _row_of_task(task: TaskReport, streams: int) -> tuple[object, ...]:
    rate = task.rows / task.seconds if task.seconds else 0.0
    partition = f"{task.partition}{' (null keys)' if 0 < streams <= task.partition else ''}"
    return partition, task.attempt, task.rows, f"{task.seconds:.1f}", f"{rate:,.0f}"


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

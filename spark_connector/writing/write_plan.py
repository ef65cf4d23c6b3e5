"""A write: checked and planned before the first task, reported after the last."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, MismatchError, PublishError, RabbitChxError, UnreachableError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.publishing.client_routing import ClientRouting
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.columns import MessageColumns
from spark_connector.executor_functions import scratch_folder
from spark_connector.options.write_options import WriteOptions, check_mode, check_speculation, local_path
from spark_connector.placing.rings import WatchedRing, read_exchange
from spark_connector.reports import (
    StreamCounts,
    TaskReport,
    WriteReport,
    check_report_path,
    collect_notes,
    describe_left_rows,
    save_report,
)
from spark_connector.spark_errors import raising_without_traceback
from spark_connector.writing.exchange_check import look_at_exchange, look_at_queue
from spark_connector.writing.stream_layout import (
    StreamLayout,
    check_absent,
    plan_layout,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_log = logging.getLogger(__name__)

#: The file of a checkpoint that names the target of the query.
_TARGET_FILE = "rabbitmq-target.json"

# What Spark masks in its event log and UI: the default of spark.redaction.regex
# (internal/config/package.scala).
_MASKED_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")


def check_broker(
    options: WriteOptions, *, patient: bool = False, answer: PreflightAnswer | None = None
) -> tuple[str, ...]:
    """Check that the broker accepts the user, and that the exchange exists and has the type that options need; return notes for the report.

    The broker is not asked if ``preflight`` is false, if only a column contains exchanges, or if only the executors have the password.

    Args:
        options: the options of the write.
        patient: whether a broker that does not answer is only a note, since tasks try for longer.
        answer: the remembered answer of a streaming query, instead of another one.
    """
    if not options.preflight or not (options.exchange or options.queue):
        return ()
    if answer is not None and answer.notes is not None:
        return answer.notes
    try:
        options.brokers.resolve()
    except InputError as cause:
        _log.info("the broker was not checked before the write: %s", cause)
        return ("the broker was not checked before the write: only the executors have the password",)
    try:
        if options.queue:
            options.brokers.call_first_reachable(lambda to: look_at_queue(to, options.queue))
            return ()
        facts = options.brokers.call_first_reachable(lambda to: look_at_exchange(to, options.exchange))
    except UnreachableError:
        if not patient:
            raise
        return ("the broker was not checked before the write: no address answered",)
    if not facts.is_hashing and (needed := options.needs_hashing):
        raise MismatchError(
            f"exchange {options.exchange!r} is of type {facts.type}, and option {needed!r} needs x-consistent-hash or x-modulus-hash: "
            "name another exchange, or leave the option out",
            exchange=options.exchange,
        )
    notes: tuple[str, ...] = ()
    if facts.alternate_exchange:
        effect = (
            "and routing=client goes past both"
            if options.client_routing
            else "what no queue takes goes there, and counts as confirmed"
        )
        separator = ", " if options.client_routing else ": "
        notes = (f"exchange {options.exchange!r} has an alternate exchange{separator}{effect}",)
    if answer is not None:
        answer.keep(notes)
    return notes


def check_secret_name(options: WriteOptions) -> tuple[str, ...]:
    """Return a note if Spark would show ``passwordEnv`` in clear when it is set by Spark's configuration."""
    source = options.brokers.password
    if source is None or source.option != "passwordEnv" or _MASKED_BY_SPARK.search(source.name):
        return ()
    note = (
        f"option 'passwordEnv' is {source.name!r}: if it is set as spark.executorEnv.{source.name}, Spark shows the "
        "password in its event log and UI, as it masks only names with secret, password, token or accesskey: "
        "rename it, or set it outside of Spark's configuration"
    )
    return (note,)


def check_checkpoint(options: WriteOptions, texts: Mapping[str, str]) -> None:
    """Raise an InputError if the checkpoint of a streaming query is that of a query with another target.

    Batches of the checkpoint are not repeated, so their rows would be missing in the new target. The target is kept in a file of the
    checkpoint. Spark does not give its file systems to data sources in Python, so only a checkpoint in a local folder is checked.
    """
    path = local_path(_checkpoint_of(texts))
    if not options.target or not path or not Path(path, "metadata").is_file():
        return
    file = Path(path, _TARGET_FILE)
    target = f"queue {options.queue}" if options.queue else options.target
    now = {"vhost": options.brokers.addresses[0].vhost, "target": target}
    before = now
    try:
        before = {**now, **json.loads(file.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        with suppress(OSError):  # a folder that only Spark may write to
            _write_whole(file, json.dumps(now))
    except (OSError, ValueError, TypeError) as cause:
        _log.warning("%s cannot be read, so the target of the checkpoint is not checked: %s", file, cause)
    if before != now:
        raise InputError(
            f"checkpointLocation {path} belongs to a query that publishes to {before['target']!r} in vhost {before['vhost']!r}; this one "
            f"publishes to {now['target']!r} in vhost {now['vhost']!r}, without the rows of earlier batches: pass another "
            f"checkpointLocation; or, to continue without these rows, delete {file}"
        )


def _write_whole(file: Path, text: str) -> None:
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _checkpoint_of(texts: Mapping[str, str]) -> str:
    """Return the checkpoint that Spark passes as an option of a streaming query; "" if it is Spark's default."""
    return next((text for name, text in texts.items() if name.lower() == "checkpointlocation"), "")


class PreflightAnswer:
    """The remembered notes of `check_broker`: Spark plans a stream again for every micro-batch.

    `path` is the file that keeps them for other processes of the application; None to keep them in this object alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: tuple[str, ...] | None = None

    @classmethod
    def of_query(cls, options: WriteOptions, texts: Mapping[str, str]) -> PreflightAnswer:
        """Return the answer for a streaming query of this application, which may be empty.

        Checkpoint, broker and exchange identify the query. Spark ends Python processes that are idle for a minute, so the answer is kept in
        a file.
        """
        folder = scratch_folder()
        if folder is None:
            return cls()
        query = json.dumps([options.brokers.masked_url, options.place, _checkpoint_of(texts)])
        name = hashlib.sha256(query.encode()).hexdigest()[:32]
        return cls(folder / f"looked-{name}.json")

    @property
    def notes(self) -> tuple[str, ...] | None:
        """The notes; None if the broker was not asked yet, or the file cannot be read."""
        if self._notes is None and self._path is not None:
            with suppress(OSError, ValueError):
                self._notes = tuple(json.loads(self._path.read_text(encoding="utf-8")))
        return self._notes

    def keep(self, notes: tuple[str, ...]) -> None:
        """Remember the notes. If the file cannot be written, the next process asks the broker again."""
        self._notes = notes
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                _write_whole(self._path, json.dumps(notes))


#: In this module Spark creates the writer of a stream once more, to commit a batch. The messages are published by then.
_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"

#: The counts of rows that are not stored once and unchanged, and their remedies.
_REMEDIES = {
    "changed": "Changed rows: the streams keep the rows of an earlier run or attempt, and the rows of this one were dropped. Make "
    "the input deterministic, and write it with a higher version.",
    "lost": "Lost rows: look for another job with this appId and version, and write the rows with a higher version.",
    "doubled": "Doubled rows: another program published copies with their message ids (a shovel, a replay), or a stream remembers "
    "more than 255 names and has forgotten this one.",
}


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Checked options and columns. The value that is sent to the tasks.

    Attributes:
        streaming: whether each micro-batch of a stream is written with this plan.
        write_id: id of the write; None in a stream, where Spark passes each task the id of the query.
        started: the time of planning, in seconds since 1970.
        layout: the streams of the rows by the stream protocol; None by AMQP, and where a batch is committed.
    """

    columns: MessageColumns
    options: WriteOptions
    streaming: bool = False
    write_id: str | None = None
    notes: tuple[str, ...] = ()
    started: float = field(default_factory=time.time)
    layout: StreamLayout | None = None

    @classmethod
    @raising_without_traceback
    def checked(
        cls,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,
        streaming: bool = False,
        speculation: bool | None = None,
        answer: PreflightAnswer | None = None,
        ring: WatchedRing | None = None,
    ) -> WritePlan:
        """Check everything that can be checked before the first task, and return the plan.

        Args:
            options: the texts of the options by name.
            schema: the columns of the rows.
            overwrite: whether Spark is asked to replace existing data, which is refused.
            streaming: whether the write is that of a stream.
            speculation: whether ``spark.speculation`` is on; None if only the tasks can read it.
            answer: the remembered answer of the broker, if the caller keeps it for a streaming query.
            ring: the ring of the caller, who passes it to `commit` as well.
        """
        if overwrite:
            mode = "outputMode('complete')" if streaming else "mode('overwrite')"
            raise InputError(
                f"{mode}: messages in queues cannot be overwritten; use 'append', and purge the queues yourself "
                "if that is meant"
            )
        parsed = WriteOptions.parse(options)
        check_mode(parsed, streaming=streaming)
        columns = MessageColumns.of(schema, parsed)
        layout = None
        notes: tuple[str, ...] = ()
        if not (streaming and _COMMITTING in sys.modules):
            check_report_path(parsed.report_path, streaming=streaming)
            if speculation is not None:
                notes = check_speculation(parsed, speculation=speculation)
            notes += check_secret_name(parsed)
            if streaming:
                check_checkpoint(parsed, options)
            if streaming and answer is None:
                answer = PreflightAnswer.of_query(parsed, options)
            if not parsed.to_streams:
                notes += check_broker(parsed, patient=streaming, answer=answer)
            parsed = _with_ring(parsed, ring)
            if parsed.to_streams:
                look = parsed.preflight and (answer is None or answer.notes is None)
                layout = plan_layout(parsed, schema, patient=streaming, look=look)
                if answer is not None and look:  # the streams of a streaming query are checked once
                    answer.keep(())
            for note in notes:
                _log.warning("%s", note)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, streaming, write_id, notes, layout=layout)

    def commit(
        self, tasks: Iterable[TaskReport], batch_id: int | None = None, ring: WatchedRing | None = None
    ) -> WriteReport:
        """Return, log and save the report of a write whose tasks are all done. Runs on the driver's machine.

        `ring` is read again if connections were lost, or if it has slots and this is not a stream; by default that of ``ringVia``.

        Raises:
            PublishError: rows were routed by a ring that has changed; or rows that were read back are lost, doubled or changed.
            MismatchError: a stream has rows of this version, and this write has none for it.
        """
        reports = tuple(tasks)
        if reading := _ring_reader(self.options):
            ring = WatchedRing.since(self.options.ring, reading)
        if ring is not None and self.options.client_routing:
            self._compare(reports, batch_id, ring)
        try:
            self._check_stored(reports)
        except RabbitChxError as cause:
            self.abort(reports, len(reports), batch_id, cause)
            raise
        lost = any(task.reconnects for task in reports)
        ring_now = None
        unseen = ring is not None and (ring.may_change_unseen or self.options.to_streams)
        if ring is not None and (lost or (batch_id is None and unseen)):
            # Not after each micro-batch: it may take a second.
            ring_now = ring.check_again(report_unchanged=lost)
        notes = tuple(
            note for note in collect_notes(reports, self.options, ring_now) if note not in self.notes
        )
        for note in notes:
            _log.warning("%s", note)
        report = self._report(reports, batch_id, notes)
        _log.info("%s", report)
        save_report(report, self.options.report_path, streaming=self.streaming)
        return report

    def _check_stored(self, reports: tuple[TaskReport, ...]) -> None:
        """Check that the streams have the rows of the tasks, each once and unchanged, and no others of this version."""
        if self.layout is not None and self.options.version is not None:
            check_absent(self.layout, self.options, {task.partition for task in reports})
        counts = sum((task.streams for task in reports if task.streams is not None), StreamCounts())
        remedies = [remedy for name, remedy in _REMEDIES.items() if getattr(counts, name)]
        if not remedies:
            return
        report = sum((task.publish_report for task in reports), PublishReport())
        changed = f", {counts.changed:,} have another key or body" if counts.changed else ""
        raise PublishError(
            f"of the rows that were read back from the streams, {counts.verified:,} are stored once, {counts.lost:,} are lost and "
            f"{counts.doubled:,} are there more than once{changed}. {'; '.join(counts.differences)}. {' '.join(remedies)} {report}",
            report,
            exchange=self.options.target,
        )

    def _compare(self, reports: tuple[TaskReport, ...], batch_id: int | None, ring: WatchedRing) -> None:
        rows: Counter[str] = Counter()
        for task in reports:
            rows.update(task.predicted)
        before = ring.ring
        change = ring.change(rows)
        if change is None:
            return
        now = ring.ring
        report = sum((task.publish_report for task in reports), PublishReport())
        exchange = self.options.exchange
        error = PublishError(f"exchange {exchange!r}: {change}; {report}", report, exchange=exchange)
        changed = (before, now) if before is not None and now is not None else None
        self.abort(reports, len(reports), batch_id, error, changed)
        raise error

    def abort(
        self,
        tasks: Iterable[TaskReport],
        expected: int | None = None,
        batch_id: int | None = None,
        cause: Exception | None = None,
        changed_ring: tuple[KeyMap, KeyMap] | None = None,
    ) -> WriteReport:
        """Return, log and save the report of a write that failed. Never raises; messages in queues stay there.

        `expected` is the number of tasks of the write, None if unknown; `changed_ring` are the rings before and after the write, if they
        are the cause.
        """
        reports = tuple(tasks)
        unfinished = None if expected is None else expected - len(reports)
        notes = () if cause is None else (f"the write failed: {cause}",)
        report = self._report(
            reports, batch_id, notes, failed=True, unfinished=unfinished, changed_ring=changed_ring
        )
        _log.warning(
            "%s: the write failed; %s",
            self.options.place,
            describe_left_rows(report),
            extra={"exchange": self.options.target},
        )
        save_report(report, self.options.report_path, streaming=self.streaming)
        return report

    def _report(
        self,
        tasks: tuple[TaskReport, ...],
        batch_id: int | None,
        notes: tuple[str, ...],
        *,
        failed: bool = False,
        unfinished: int | None = 0,
        changed_ring: tuple[KeyMap, KeyMap] | None = None,
    ) -> WriteReport:
        ring = self.options.ring
        return WriteReport(
            "" if self.options.queue else self.options.target,
            tasks,
            ring.provenance if ring else None,
            self.write_id or "",
            batch_id,
            time.time() - self.started,
            (*self.notes, *notes),
            failed,
            unfinished,
            changed_ring,
            self.options.queue or None,
        )


def _with_ring(options: WriteOptions, ring: WatchedRing | None) -> WriteOptions:
    """Return the options with the ring that ``ringVia`` reads; an error if rows cannot be routed by the ring."""
    reading = _ring_reader(options)
    if reading is not None:
        options = replace(options, ring=WatchedRing(reading).ring)
    elif options.client_routing and (ring is None or not ring.can_be_read):
        raise InputError(
            "option 'routing' is 'client', and nothing reads the ring before and after the write: pass ringVia, such as "
            "'docker exec NAME', or for publish and batch_publisher a function: ring=lambda: broker.ring(exchange)"
        )
    if options.client_routing:
        ClientRouting(options.exchange, options.ring)
    return options


def _ring_reader(options: WriteOptions) -> Callable[[], ConsistentHashExchange] | None:
    """Return the function that reads the exchange with its ring on the driver; None without the option ``ringVia``."""
    if options.ring_via is None:
        return None
    return partial(read_exchange, options.ring_via, options.brokers.addresses[0].vhost, options.exchange)

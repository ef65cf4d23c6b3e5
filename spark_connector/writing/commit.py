"""The end of a write, on the driver's machine: the checks after the last task, and the report."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.executor_functions import with_report
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import WatchedRing
from spark_connector.reports import (
    FinishedTask,
    RowSample,
    StreamCounts,
    WriteReport,
    describe_left_rows,
    save_report,
    total_report,
)
from spark_connector.writing.preflight import WritePlan, count_split_keys
from spark_connector.writing.stream_layout import check_absent, end_version

_log = logging.getLogger(__name__)

#: The counts of rows that are not stored once and unchanged, and their remedies.
_REMEDIES = {
    "changed": "Changed rows: the streams keep the rows of an earlier run or attempt, and the rows of this one were dropped. Make "
    "the input deterministic, and write it with a higher version.",
    "lost": "Lost rows: look for another job with this appId and version, and write the rows with a higher version.",
    "doubled": "Doubled rows: another program published copies with their message ids (a shovel, a replay), or a stream remembers "
    "more than 255 names and has forgotten this one.",
}


def commit_write(
    plan: WritePlan,
    tasks: Sequence[FinishedTask],
    batch_id: int | None = None,
    ring: WatchedRing | None = None,
) -> WriteReport:
    """Return, log and save the report of a write whose tasks are all done. Runs on the driver's machine.

    `ring` is read again; by default it is that of ``ringVia``.

    Raises:
        PublishError: rows were routed by a ring that has changed; or rows that were read back are lost, doubled or changed.
        MismatchError: a stream has rows of this version, and this write has none for it.
    """
    if read := plan.ring_reader:
        ring = WatchedRing(plan.options.ring, read)
    if ring is not None and plan.options.client_routing:
        _compare_rings(plan, tasks, batch_id, ring)
    try:
        _check_stored(plan, tasks, batch_id)
    except RabbitChxError as cause:
        report = abort_write(plan, tasks, len(tasks), batch_id=batch_id, cause=cause)
        vars(cause)["report"] = report.publish_report
        with_report(cause, report.publish_report)
        raise
    lost = total_report(tasks).reconnects > 0
    ring_now = None
    if ring is not None and (lost or not plan.options.client_routing):  # else it is compared above
        ring_now = ring.check_again(report_unchanged=lost)
    notes = tuple(note for note in collect_notes(tasks, plan.options, ring_now) if note not in plan.notes)
    for note in notes:
        _log.warning("%s", note)
    report = _report(plan, tasks, batch_id, notes)
    _log.info("%s", report)
    save_report(report, plan.options.report_path, streaming=plan.streaming)
    return report


def abort_write(
    plan: WritePlan,
    tasks: Sequence[FinishedTask],
    expected: int | None = None,
    *,
    batch_id: int | None = None,
    cause: Exception | None = None,
    changed_ring: tuple[KeyMap, KeyMap] | None = None,
) -> WriteReport:
    """Return, log and save the report of a write that failed. Never raises; messages in queues stay there.

    `expected` is the number of tasks of the write, None if unknown; `changed_ring` are the rings before and after the write, if they
    are the cause.
    """
    unfinished = None if expected is None else expected - len(tasks)
    notes = () if cause is None else (f"the write failed: {cause}",)
    report = _report(
        plan, tasks, batch_id, notes, failed=True, unfinished=unfinished, changed_ring=changed_ring
    )
    _log.warning(
        "%s: the write failed; %s",
        plan.options.place,
        describe_left_rows(report),
        extra={"exchange": plan.options.target},
    )
    save_report(report, plan.options.report_path, streaming=plan.streaming)
    return report


def _check_stored(plan: WritePlan, tasks: Sequence[FinishedTask], batch_id: int | None) -> None:
    """Check that the streams have the rows of the tasks, each once and unchanged, and no others of this version; remember its end."""
    _check_absent(plan, tasks, batch_id)
    _check_counts(plan, tasks)
    if plan.layout is not None and plan.options.version is not None:
        end_version(plan.layout, plan.options)


def _check_absent(plan: WritePlan, tasks: Sequence[FinishedTask], batch_id: int | None) -> None:
    """Check that no stream has rows of this version for which the frame has no partition."""
    options = plan.options
    if plan.layout is None or not options.exactly_once:
        return
    version = options.version
    if version is None and batch_id is not None:
        version = batch_id + 1
    query_id = next((task.write_id for task in tasks if task.write_id), plan.write_id)
    app_id = options.app_id or query_id
    if version is not None and app_id:
        check_absent(plan.layout, options, app_id, version, {task.partition for task in tasks})


def _check_counts(plan: WritePlan, tasks: Sequence[FinishedTask]) -> None:
    """Check that the rows that were read back are stored once and unchanged."""
    counts = sum((task.streams for task in tasks if task.streams is not None), StreamCounts())
    remedies = [remedy for name, remedy in _REMEDIES.items() if getattr(counts, name)]
    if not remedies:
        return
    report = total_report(tasks)
    changed = f", {counts.changed:,} have another key or body" if counts.changed else ""
    raise PublishError(
        f"of the rows that were read back from the streams, {counts.verified:,} are stored once, {counts.lost:,} are lost and "
        f"{counts.doubled:,} are there more than once{changed}. {'; '.join(counts.differences)}. {' '.join(remedies)} {report}",
        report,
        exchange=plan.options.target,
    )


def _compare_rings(
    plan: WritePlan, tasks: Sequence[FinishedTask], batch_id: int | None, ring: WatchedRing
) -> None:
    """Raise a PublishError if the ring by which rows were routed has changed."""
    rows = sum((Counter(task.predicted) for task in tasks), Counter[str]())
    before = ring.ring
    change = ring.change(rows)
    if change is None:
        return
    now = ring.ring
    report = total_report(tasks)
    exchange = plan.options.exchange
    error = PublishError(f"exchange {exchange!r}: {change}; {report}", report, exchange=exchange)
    changed = (before, now) if before is not None and now is not None else None
    abort_write(plan, tasks, len(tasks), batch_id=batch_id, cause=error, changed_ring=changed)
    raise with_report(error, report)


def _report(
    plan: WritePlan,
    tasks: Sequence[FinishedTask],
    batch_id: int | None,
    notes: tuple[str, ...],
    **failure: Any,
) -> WriteReport:
    options = plan.options
    return WriteReport(
        "" if options.queue else options.target,
        tuple(tasks),
        options.ring.provenance if options.ring else None,
        plan.write_id or "",
        batch_id,
        time.time() - plan.started,
        (*plan.notes, *notes),
        queue=options.queue or None,
        to_streams=options.to_streams,
        super_stream=bool(options.super_stream),
        placed_streams=len(plan.layout.streams) if plan.layout and options.exactly_once else 0,
        **failure,
    )


# -- the notes of a report


def collect_notes(
    tasks: Sequence[FinishedTask], options: WriteOptions, ring_now: str | None = None
) -> tuple[str, ...]:
    """Return the distinct notes of the tasks, and those on all tasks together; `ring_now` is that of `WatchedRing.check_again`."""
    of_tasks = [note for task in tasks for note in task.notes]
    distinct = tuple(dict.fromkeys([*of_tasks, *_skip_notes(tasks, options)]))
    if options.exactly_once:
        return distinct if ring_now is None else (*distinct, ring_now)
    return (
        *distinct,
        *_attempt_notes(tasks),
        *_loss_notes(tasks, options, ring_now),
        *_key_notes(tasks, options),
    )


def _skip_notes(tasks: Sequence[FinishedTask], options: WriteOptions) -> Iterator[str]:
    rows = sum(task.rows for task in tasks)
    # Tasks of a stale version skip all rows, and say so themselves; bad rows have samples, unless those of returned rows took all places.
    bad = sum(task.skipped for task in tasks if task.samples or not options.skip_stale)
    total = total_report(tasks)
    returned = total.returned + total.unknown
    samples = [sample for task in tasks for sample in task.samples]
    if options.skip_bad_rows and bad:
        yield f"badRows is skip, and {bad:,} of {rows:,} rows were not published{_first_of(samples, is_returned=False)}"
    if options.skip_unroutable and returned:
        yield f"onUnroutable is skip, and {returned:,} of {rows:,} rows were routed to no queue{_first_of(samples, is_returned=True)}"


def _first_of(samples: Sequence[RowSample], *, is_returned: bool) -> str:
    sample = next((sample for sample in samples if sample.is_returned is is_returned), None)
    if sample is None:
        return ""
    row = "" if sample.row is None else f"row {sample.row} of "
    return f"; {row}partition {sample.partition}: {sample.reason}"


def _attempt_notes(tasks: Sequence[FinishedTask]) -> Iterator[str]:
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
            "tasks, or a repeated stage; after such a stage, rows may be in the queues twice, though every attempt is 0"
        )


def _loss_notes(tasks: Sequence[FinishedTask], options: WriteOptions, ring_now: str | None) -> Iterator[str]:
    if options.super_stream:  # no ring
        return
    total = total_report(tasks)
    reconnects = total.reconnects
    if not reconnects:
        if ring_now is not None:
            yield ring_now
        return
    if ring_now is not None:
        yield f"connections were lost and opened again ({reconnects}): {ring_now}"
    else:
        advice = ""
        if options.ring is not None:
            advice = "; rows by predicted queue are then wrong, so read the ring again and compare"
        yield (
            f"connections were lost and opened again ({reconnects}): if a broker with Mnesia (the default until "
            f"4.1) was restarted, the ring may have another order now, and keys may have changed queue during the write{advice}"
        )
    if options.keep_order and total.republished:
        yield (
            "messages were sent again after a connection was lost, and copies from the old connection may arrive "
            "after newer messages of their key: a consumer that needs the order drops messages older than what "
            "it has seen"
        )


def _key_notes(tasks: Sequence[FinishedTask], options: WriteOptions) -> Iterator[str]:
    if not options.keep_order:
        return
    compared, split, has_all = count_split_keys(task.keys for task in tasks)
    if split:
        of_what = f"its {compared:,} keys" if has_all else f"{compared:,} keys looked at"
        yield (
            f"ordering is per-key, and {split:,} of {of_what} are in more than one partition, so the order "
            "of their messages is random: place the rows first (spark_connector.place, or repartition by "
            "the key and sortWithinPartitions)"
        )

"""The notes of a report, found by comparing its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spark_connector.placing.key_sample import SplitKeys

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions
    from spark_connector.reports.task_report import TaskReport

__all__ = ["notes_on"]


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
            "metadata in Mnesia (the default until 4.1), the ring may have another order now, and keys may have "
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
    found = SplitKeys.of(task.keys for task in tasks)
    if found.split:
        of_what = f"its {found.looked_at:,} keys" if found.complete else f"{found.looked_at:,} keys looked at"
        yield (
            f"ordering is per-key, and {found.split:,} of {of_what} are in more than one partition, so the order "
            "of their messages is random: place the rows first (spark_connector.place, or repartition by "
            "the key and sortWithinPartitions)"
        )

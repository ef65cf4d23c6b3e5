"""The notes of a write on all of its tasks together."""

from __future__ import annotations

import pyarrow as pa

from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import HashRing
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports import TaskReport
from spark_connector.writing.commit import collect_notes
from spark_connector.writing.key_samples import KeySampler

RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://h", "exchange": "x", **more})


def test_an_ordinary_write_needs_no_note() -> None:
    tasks = [TaskReport(0, 0, task_id=8), TaskReport(1, 0, task_id=7), TaskReport(2, 0, task_id=9)]
    assert collect_notes(tasks, options(ring=RING.to_json(), ordering="per-key")) == ()
    assert collect_notes([TaskReport(0, 0)], options()) == ()
    assert collect_notes([], options(ordering="per-key")) == ()


def test_notes_of_tasks_are_reported_once() -> None:
    assert collect_notes([TaskReport(0, 0, notes=("a",)), TaskReport(1, 0, notes=("a", "b"))], options()) == (
        "a",
        "b",
    )


def test_tasks_that_ran_again() -> None:
    tasks = [TaskReport(0, 0, task_id=4), TaskReport(1, 2, task_id=7)]  # 5 and 6 failed
    (note,) = collect_notes(tasks, options())
    assert note.startswith("Spark ran 1 of 2 tasks more than once")


def test_a_stage_that_ran_again_though_every_attempt_is_0() -> None:
    """The numbers between are those of the stage before it, whose files were gone."""
    tasks = [TaskReport(0, 0, task_id=4), TaskReport(1, 0, task_id=5), TaskReport(2, 0, task_id=9)]
    (note,) = collect_notes(tasks, options())
    assert "Spark ran 3 other tasks between those of this write" in note
    assert "rows of this write may be in the queues twice, though every attempt is 0" in note


def test_a_broker_that_may_have_restarted() -> None:
    tasks = [
        TaskReport(0, 0, publish_report=PublishReport(reconnects=2, republished=5)),
        TaskReport(1, 0, publish_report=PublishReport(reconnects=1)),
    ]
    for given in (options(), options(ring=RING.to_json())):
        (note,) = collect_notes(tasks, given)
        assert note.startswith("connections were lost and opened again (3): if the broker was restarted")
        assert ("rows by predicted queue are then wrong" in note) == (given.ring is not None)
    ring, copies = collect_notes(tasks, options(ordering="per-key"))
    assert "the ring may have another order now" in ring
    assert "copies from the old connection may arrive after newer messages of their key" in copies


def test_keys_in_more_than_one_partition() -> None:
    def task(partition: int, *keys: bytes) -> TaskReport:
        sampler = KeySampler()
        sampler.add(pa.array(keys, pa.binary()))
        return TaskReport(partition, 0, keys=sampler.sample())

    per_key = options(ordering="per-key")
    assert collect_notes([task(0, b"a"), task(1, b"b", b"c")], per_key) == ()
    (note,) = collect_notes([task(0, b"a", b"c"), task(1, b"b", b"c")], per_key)
    assert note.startswith("ordering is per-key, and 1 of its 3 keys are in more than one partition")
    many = [b"%d" % n for n in range(2_000)]
    (note,) = collect_notes([task(0, *many), task(1, *many)], per_key)
    assert "1,000 of 1,000 keys looked at are in more than one partition" in note

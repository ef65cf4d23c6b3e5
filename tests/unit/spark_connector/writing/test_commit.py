"""The end of a write: its report, and the notes on all of its tasks together."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import MismatchError, RowError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable, SuperStream
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import WatchedRing
from spark_connector.reports import TaskReport
from spark_connector.writing import stream_layout
from spark_connector.writing.commit import abort_write, collect_notes, commit_write
from spark_connector.writing.key_samples import KeySampler
from spark_connector.writing.preflight import plan_write
from spark_connector.writing.write_plan import WritePlan

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
OPTIONS = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false"}
DONE = TaskReport(0, 0, rows=5, publish_report=PublishReport(rows=5, confirmed=5))
RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


@pytest.mark.parametrize(
    ("expected", "others"), [(None, "the other tasks"), (2, "1 other task"), (3, "2 other tasks")]
)
def test_a_failed_write_reports_the_remaining_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expected: int | None, others: str
) -> None:
    path = tmp_path / "report.json"
    plan = plan_write({**OPTIONS, "reportPath": str(path)}, SCHEMA)
    with caplog.at_level(logging.WARNING):
        report = abort_write(plan, [DONE], expected, cause=RowError("row 7: too long"))
    assert (report.failed, report.confirmed) == (True, 5)
    assert report.notes == ("the write failed: row 7: too long",)
    assert json.loads(path.read_text())["unfinished"] == (None if expected is None else expected - 1)
    assert (
        f"the write failed; at least 5 rows of 1 finished task are in the queues and stay there; rows of {others} may be in the "
        "queues as well\n" in caplog.text
    )
    assert vars(caplog.records[-1])["exchange"] == plan.options.target


def test_a_committed_write_saves_its_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    plan = plan_write({**OPTIONS, "reportPath": str(path)}, SCHEMA)
    report = commit_write(plan, [DONE])
    assert path.read_text() == report.to_json()
    assert (report.failed, report.rows, report.write_id) == (False, 5, plan.write_id)


def test_a_batch_by_slots_notes_that_slots_changed_hands_while_all_connections_lived() -> None:
    slots = [ExchangeRef("s0"), ExchangeRef("s1")]
    ring = HashRing.from_buckets(slots)
    before, after = (SlotTable(ring, {slots[0]: "q1", slots[1]: queue}) for queue in ("q1", "q2"))
    tables = iter([before, after, before, before])
    for notes in (["the slots or the ring have changed"], []):
        watched = WatchedRing(lambda: next(tables))
        given = {**OPTIONS, "ring": before.to_json()}
        report = commit_write(plan_write(given, SCHEMA, ring=watched), [DONE], ring=watched)
        assert [note[:34] for note in report.notes] == notes


def test_a_stream_without_a_task_must_not_have_rows_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs no task for a frame without rows."""
    monkeypatch.setattr(stream_layout, "last_id", lambda *_: (1 << stream_layout.ROW_BITS) + 3)
    once = {"superStream": "s", "delivery": "exactly-once", "appId": "load", "version": "1"}
    options = WriteOptions.parse({"url": "amqp://h", **once})
    layout = stream_layout.StreamLayout.of(SuperStream(["s0", "s1"]), SCHEMA)
    plan = WritePlan(MessageColumns.of(SCHEMA, options), options, layout=layout)
    with pytest.raises(MismatchError, match=r"stream 's1' has 3 rows of version 1 .*, and this run gives 0"):
        commit_write(plan, [TaskReport(0, 0)])


# -- notes


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


def test_tasks_that_ran_again_are_noted() -> None:
    tasks = [TaskReport(0, 0, task_id=4), TaskReport(1, 2, task_id=7)]  # 5 and 6 failed
    (note,) = collect_notes(tasks, options())
    assert note.startswith("Spark ran 1 of 2 tasks more than once")


def test_a_stage_that_ran_again_though_every_attempt_is_0() -> None:
    """The numbers between are those of the stage before it, whose files were gone."""
    tasks = [TaskReport(0, 0, task_id=4), TaskReport(1, 0, task_id=5), TaskReport(2, 0, task_id=9)]
    (note,) = collect_notes(tasks, options())
    assert "Spark ran 3 other tasks between those of this write" in note
    assert "rows may be in the queues twice, though every attempt is 0" in note


def test_a_broker_that_may_have_restarted() -> None:
    tasks = [
        TaskReport(0, 0, publish_report=PublishReport(reconnects=2, republished=5)),
        TaskReport(1, 0, publish_report=PublishReport(reconnects=1)),
    ]
    for given in (options(), options(ring=RING.to_json())):
        (note,) = collect_notes(tasks, given)
        assert note.startswith("connections were lost and opened again (3): if a broker with Mnesia")
        assert ("rows by predicted queue are then wrong" in note) == (given.ring is not None)
    ring, copies = collect_notes(tasks, options(ordering="per-key"))
    assert "the ring may have another order now" in ring
    assert "copies from the old connection may arrive after newer messages of their key" in copies


def test_keys_in_more_than_one_partition_are_noted() -> None:
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

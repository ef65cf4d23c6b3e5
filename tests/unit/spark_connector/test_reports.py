"""Reports of tasks and writes: their text, JSON, notes and files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import HashRing
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports import (
    KeySample,
    KeySampler,
    RowSample,
    SplitKeys,
    TaskReport,
    WriteReport,
    check_report_path,
    collect_notes,
    hash_key,
    save_report,
)

FAILED = WriteReport(
    "x", (TaskReport(1, 0, publish_report=PublishReport(confirmed=5)),), None, failed=True, unfinished=2
)


def test_tasks_are_in_the_order_of_their_partitions() -> None:
    report = WriteReport("x", (TaskReport(2, 0), TaskReport(0, 1, "w"), TaskReport(1, 0)), None)
    assert [task.partition for task in report.tasks] == [0, 1, 2]
    assert report.write_id == "w"


def test_a_failed_write_is_reported() -> None:
    shown = json.loads(FAILED.to_json())
    assert (shown["failed"], shown["unfinished"], shown["confirmed"]) == (True, 2, 5)
    assert (
        "FAILED: at least 5 rows of 1 finished task are in the queues and stay there; rows of 2 other tasks"
        in str(FAILED)
    )
    good = WriteReport("x", (TaskReport(0, 0),), None)
    assert "FAILED" not in str(good)
    assert json.loads(good.to_json())["failed"] is False


@pytest.mark.parametrize(
    ("unfinished", "said"),
    [
        (None, "no finished task is known, and rows of any task may be in the queues"),
        (0, "no task finished"),
        (1, "no task finished; rows of 1 task may be in the queues"),
        (2, "no task finished; rows of 2 tasks may be in the queues"),
    ],
)
def test_a_failed_write_without_a_finished_task_counts_nothing(unfinished: int | None, said: str) -> None:
    report = WriteReport("x", (), None, failed=True, unfinished=unfinished)
    assert f"FAILED: {said}; the counts are those of finished tasks " in " ".join(str(report).split())


def test_the_sample_of_keys_is_not_shown() -> None:
    assert "keys" not in json.loads(FAILED.to_json())["tasks"][0]


EVERYTHING = TaskReport(
    3,
    1,
    "w",
    7,
    rows=9,
    skipped=2,
    publish_report=PublishReport(7, 6, 1, 2, 0, 3, 4, 5, 600, 7.5, 0.5),
    predicted={"q1": 6},
    samples=(RowSample(3, None, "312 NO_ROUTE", "abc"),),
    task_id=11,
    notes=("a note",),
    keys=KeySample(b"12345678"),
)
JSON = """{
  "exchange": "x",
  "queue": null,
  "write_id": "w",
  "batch_id": 7,
  "failed": false,
  "unfinished": 0,
  "rows": 18,
  "skipped": 4,
  "published": 14,
  "confirmed": 12,
  "returned": 2,
  "nacked": 4,
  "retried": 6,
  "republished": 8,
  "reconnects": 10,
  "blocked_seconds": 1.0,
  "bytes_sent": 1200,
  "seconds": 12.0,
  "predicted": {
    "q1": 12
  },
  "ring_provenance": "read",
  "notes": [
    "of all"
  ],
  "changed_ring": null,
  "streams": null,
  "samples": [
    {
      "partition": 3,
      "row": null,
      "reason": "312 NO_ROUTE",
      "key_hash": "abc"
    },
    {
      "partition": 3,
      "row": null,
      "reason": "312 NO_ROUTE",
      "key_hash": "abc"
    }
  ],
  "tasks": [
TASK,
TASK
  ]
}"""
TASK = """    {
      "partition": 3,
      "attempt": 1,
      "write_id": "w",
      "batch_id": 7,
      "rows": 9,
      "skipped": 2,
      "published": 7,
      "confirmed": 6,
      "returned": 1,
      "nacked": 2,
      "retried": 3,
      "republished": 4,
      "reconnects": 5,
      "bytes_sent": 600,
      "seconds": 7.5,
      "blocked_seconds": 0.5,
      "predicted": {
        "q1": 6
      },
      "samples": [
        {
          "partition": 3,
          "row": null,
          "reason": "312 NO_ROUTE",
          "key_hash": "abc"
        }
      ],
      "task_id": 11,
      "notes": [
        "a note"
      ],
      "streams": null
    }"""


def test_the_json_has_each_field_of_the_report() -> None:
    report = WriteReport("x", (EVERYTHING,) * 2, "read", batch_id=7, seconds=12.0, notes=("of all",))
    assert report.to_json() == JSON.replace("TASK", TASK)


def test_the_text_of_a_report_has_the_counts_and_the_tasks() -> None:
    report = WriteReport("x", (EVERYTHING,), "read", seconds=12.0)
    assert str(report).splitlines()[:3] == ["write w to exchange 'x', 12.0 s", "", "rows             9"]
    assert "\nreturned         1\nnacked           2\n" in str(report)
    assert " partition   attempt   rows   seconds   rows/s\n" in str(report)


# -- what the tasks of a write tell when they are compared


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


def test_the_counts_are_those_of_the_publisher() -> None:
    task = TaskReport(0, 0, publish_report=PublishReport(7, 6, 1, 2, 0, 3, 4, 5, 600, 7.5, 0.5))
    assert (task.published, task.confirmed, task.returned, task.nacked) == (7, 6, 1, 2)
    assert (task.retried, task.republished, task.reconnects, task.bytes_sent) == (3, 4, 5, 600)
    assert (task.seconds, task.blocked_seconds) == (7.5, 0.5)


def test_a_hash_identifies_a_key_without_showing_it() -> None:
    assert hash_key(b"key") == "2c70e12b7a0646f9"


def sample(keys: range, *, batch: int = 3_000) -> KeySample:
    sampler = KeySampler()
    for at in range(0, len(keys), batch):
        sampler.add(pa.array([b"%d" % key for key in keys[at : at + batch]] * 2, pa.binary()))
    return sampler.sample()


def test_few_keys_are_all_compared() -> None:
    assert SplitKeys.of([sample(range(10)), sample(range(10, 30))]) == SplitKeys(30, 0, complete=True)
    assert SplitKeys.of([sample(range(10)), sample(range(8, 30))]) == SplitKeys(30, 2, complete=True)
    assert SplitKeys.of([]) == SplitKeys(0, 0, complete=True)
    assert SplitKeys.of([sample(range(5)), KeySample()]) == SplitKeys(5, 0, complete=True)


def test_of_many_keys_a_sample_that_both_partitions_have_whole() -> None:
    apart = SplitKeys.of(
        [sample(range(20_000)), sample(range(20_000, 50_000)), sample(range(50_000, 50_005))]
    )
    assert apart.split == 0
    assert not apart.complete
    assert apart.compared > 1_000
    shared = SplitKeys.of([sample(range(20_000)), sample(range(20_000))])
    assert shared.split == shared.compared == 1_000
    few = SplitKeys.of([sample(range(1_100)), sample(range(100_000))])
    assert few.compared < 1_050  # up to the hash that the sample of the larger one reaches
    half = SplitKeys.of([sample(range(20_000)), sample(range(10_000, 30_000))])
    assert 0.2 < half.split / half.compared < 0.5  # a third of the keys are in both


def test_a_sample_is_small_and_detects_a_constant_key() -> None:
    assert len(pickle.dumps(sample(range(100_000)))) < 8_300
    sampler = KeySampler()
    sampler.add([b"k"] * 5)
    assert SplitKeys.of([sampler.sample(), sampler.sample()]) == SplitKeys(1, 1, complete=True)


def test_an_earlier_report_is_kept(tmp_path: Path) -> None:
    path, previous = tmp_path / "report.json", tmp_path / "report.json.previous"
    for exchange in ("first", "second", "third"):
        check_report_path(str(path), streaming=False)
        assert not path.exists()
        save_report(WriteReport(exchange, (), None), str(path), streaming=False)
    assert json.loads(path.read_text())["exchange"] == "third"
    assert json.loads(previous.read_text())["exchange"] == "second"

    previous.write_text("mine")
    with pytest.raises(InputError, match=r"\.previous appended, is not a report"):
        check_report_path(str(path), streaming=False)
    previous.unlink()
    path.write_text("mine")
    with pytest.raises(InputError, match="is not a report"):
        check_report_path(str(path), streaming=False)
    assert path.read_text() == "mine"


def test_the_failed_attempt_of_a_repeated_batch_is_kept(tmp_path: Path) -> None:
    for failed in (True, False):
        save_report(WriteReport("x", (), None, batch_id=4, failed=failed), str(tmp_path), streaming=True)
    found = {path.name: json.loads(path.read_text())["failed"] for path in tmp_path.iterdir()}
    assert found == {"batch-4.json": False, "batch-4.json.previous": True}


def test_a_path_with_a_slash_at_its_end_is_a_folder(tmp_path: Path) -> None:
    report = WriteReport("x", (), None)
    for text in (f"{tmp_path}/reports/", f"{tmp_path}/reports"):
        check_report_path(text, streaming=False)
        save_report(report, text, streaming=False)
        (file,) = (tmp_path / "reports").iterdir()
        assert file.name.startswith("write-")
    with pytest.raises(InputError, match="there is a file of that name"):
        check_report_path(f"{file}/", streaming=False)


def test_the_folder_of_a_stream_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    for _ in range(2):
        check_report_path(str(folder), streaming=True)
        assert folder.is_dir()
    save_report(WriteReport("x", (), None, batch_id=3), str(folder), streaming=True)
    assert json.loads((folder / "batch-3.json").read_text())["batch_id"] == 3
    with pytest.raises(InputError, match="pass a folder"):
        check_report_path(str(folder / "batch-3.json"), streaming=True)
    with pytest.raises(InputError, match=r"cannot be written \(FileNotFoundError: "):
        check_report_path(str(tmp_path / "no" / "folder"), streaming=True)

"""Reports of tasks and writes: their text, JSON, notes and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from spark_connector.reports import (
    RowSample,
    TaskReport,
    WriteReport,
    check_report_path,
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
    keys=b"12345678",
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


def test_the_counts_are_those_of_the_publisher() -> None:
    task = TaskReport(0, 0, publish_report=PublishReport(7, 6, 1, 2, 0, 3, 4, 5, 600, 7.5, 0.5))
    assert (task.published, task.confirmed, task.returned, task.nacked) == (7, 6, 1, 2)
    assert (task.retried, task.republished, task.reconnects, task.bytes_sent) == (3, 4, 5, 600)
    assert (task.seconds, task.blocked_seconds) == (7.5, 0.5)


def test_a_hash_identifies_a_key_without_showing_it() -> None:
    assert hash_key(b"key") == "2c70e12b7a0646f9"


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

"""Reports of a write: tasks in the order of their partitions, whole and failed, as text and as JSON."""

from __future__ import annotations

import json

from rabbit_chx.publishing import PublishReport
from spark_connector.placing.key_sample import KeySample
from spark_connector.reports.task_report import RowSample, TaskReport
from spark_connector.reports.write_report import WriteReport

FAILED = WriteReport.of(
    "x", [TaskReport(1, 0, publish_report=PublishReport(confirmed=5))], None, failed=True, unfinished=2
)


def test_tasks_are_in_the_order_of_their_partitions() -> None:
    report = WriteReport.of("x", [TaskReport(2, 0), TaskReport(0, 1, "w"), TaskReport(1, 0)], None)
    assert [task.partition for task in report.tasks] == [0, 1, 2]
    assert report.write_id == "w"


def test_a_failed_write_says_so() -> None:
    shown = json.loads(FAILED.to_json())
    assert (shown["failed"], shown["unfinished"], shown["confirmed"]) == (True, 2, 5)
    assert "FAILED: 1 tasks finished" in str(FAILED)
    assert "rows of 2 other tasks may be in the queues as well" in str(FAILED)
    assert "rows of the other tasks may" in str(WriteReport.of("x", [], None, failed=True, unfinished=None))
    good = WriteReport.of("x", [TaskReport(0, 0)], None)
    assert "FAILED" not in str(good)
    assert json.loads(good.to_json())["failed"] is False


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
      ]
    }"""


def test_the_json_to_the_letter() -> None:
    report = WriteReport.of("x", [EVERYTHING] * 2, "read", batch_id=7, seconds=12.0, notes=["of all"])
    assert report.to_json() == JSON.replace("TASK", TASK)


def test_the_text() -> None:
    report = WriteReport.of("x", [EVERYTHING], "read", seconds=12.0)
    assert str(report).splitlines()[:3] == ["write w to exchange 'x', 12.0 s", "", " rows               9"]
    assert " returned           1\n nacked             2\n" in str(report)

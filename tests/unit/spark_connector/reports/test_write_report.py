"""Reports: of tasks in the order of their partitions, whole and failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rabbit_chx.errors import InputError
from spark_connector.reports.report_file import check_report_path, save_report
from spark_connector.reports.write_report import TaskReport, WriteReport

if TYPE_CHECKING:
    from pathlib import Path

FAILED = WriteReport.of("x", [TaskReport(1, 0, confirmed=5)], None, failed=True, unfinished=2)


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


def test_an_earlier_report_is_kept_beside(tmp_path: Path) -> None:
    path, previous = tmp_path / "report.json", tmp_path / "report.json.previous"
    for exchange in ("first", "second", "third"):
        check_report_path(str(path), streaming=False)
        assert not path.exists()
        save_report(WriteReport.of(exchange, [], None), str(path), streaming=False)
    assert json.loads(path.read_text())["exchange"] == "third"
    assert json.loads(previous.read_text())["exchange"] == "second"

    previous.write_text("mine")
    with pytest.raises(InputError, match=r"or the one with \.previous behind its name, is no report"):
        check_report_path(str(path), streaming=False)
    previous.unlink()
    path.write_text("mine")
    with pytest.raises(InputError, match="is no report: name another, or remove it yourself"):
        check_report_path(str(path), streaming=False)
    assert path.read_text() == "mine"


def test_the_folder_of_a_stream_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    for _ in range(2):
        check_report_path(str(folder), streaming=True)
        assert folder.is_dir()
    save_report(WriteReport.of("x", [], None, batch_id=3), str(folder), streaming=True)
    assert json.loads((folder / "batch-3.json").read_text())["batch_id"] == 3
    with pytest.raises(InputError, match="a stream has a report for each batch, so give a folder"):
        check_report_path(str(folder / "batch-3.json"), streaming=True)
    with pytest.raises(InputError, match=r"cannot be written \(FileNotFoundError\)"):
        check_report_path(str(tmp_path / "no" / "folder"), streaming=True)

"""The file of a report: written whole, and no earlier one is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbit_chx.errors import InputError
from spark_connector.reports import WriteReport, check_report_path, save_report


def test_an_earlier_report_is_kept_beside(tmp_path: Path) -> None:
    path, previous = tmp_path / "report.json", tmp_path / "report.json.previous"
    for exchange in ("first", "second", "third"):
        check_report_path(str(path), streaming=False)
        assert not path.exists()
        save_report(WriteReport(exchange, (), None), str(path), streaming=False)
    assert json.loads(path.read_text())["exchange"] == "third"
    assert json.loads(previous.read_text())["exchange"] == "second"

    previous.write_text("mine")
    with pytest.raises(InputError, match=r"or the one with \.previous appended, is not a report"):
        check_report_path(str(path), streaming=False)
    previous.unlink()
    path.write_text("mine")
    with pytest.raises(InputError, match="is not a report: name another, or remove it yourself"):
        check_report_path(str(path), streaming=False)
    assert path.read_text() == "mine"


def test_the_failed_attempt_of_a_repeated_batch_is_kept_beside(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="a stream has a report for each batch, so give a folder"):
        check_report_path(str(folder / "batch-3.json"), streaming=True)
    with pytest.raises(InputError, match=r"cannot be written \(FileNotFoundError: "):
        check_report_path(str(tmp_path / "no" / "folder"), streaming=True)

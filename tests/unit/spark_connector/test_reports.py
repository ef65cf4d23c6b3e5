"""Reports of tasks and writes: their text, JSON, notes and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark_messages import DONE

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from spark_connector.reports import (
    FinishedTask,
    RowSample,
    StreamCounts,
    WriteReport,
    check_report_path,
    hash_key,
    save_report,
)


def test_tasks_are_in_the_order_of_their_partitions() -> None:
    report = WriteReport("x", (FinishedTask(2, 0), FinishedTask(0, 1, "w"), FinishedTask(1, 0)), None)
    assert [task.partition for task in report.tasks] == [0, 1, 2]
    assert report.write_id == "w"


def test_a_write_into_streams_without_rows_has_zero_counts() -> None:
    """Spark runs no task for a frame without rows."""
    assert WriteReport("s", (), to_streams=True).streams == StreamCounts()
    assert WriteReport("x", ()).streams is None


def test_rows_that_a_stream_had_are_not_published_again() -> None:
    counts = StreamCounts({"s-0": 6}, known=6)
    again = FinishedTask(0, 0, rows=6, publish_report=PublishReport(rows=6, confirmed=6), streams=counts)
    report = WriteReport("s", (again,), to_streams=True)
    assert (report.rows, report.confirmed, report.published) == (6, 6, 0)
    shown = json.loads(report.to_json())
    assert (shown["published"], shown["tasks"][0]["published"]) == (0, 0)


def test_the_text_names_a_super_stream_and_the_partition_of_null_keys() -> None:
    tasks = tuple(FinishedTask(at, 0, streams=StreamCounts()) for at in range(4))
    lines = str(WriteReport("s", tasks, to_streams=True, super_stream=True, placed_streams=3)).splitlines()
    assert lines[0].startswith("write unnamed to super stream 's', ")
    assert [line for line in lines if "(null keys)" in line] == [
        line for line in lines if line.startswith(" 3 ")
    ]
    assert "null keys" not in str(WriteReport("s", tasks, to_streams=True))


DOUBTS = "the counts are those of finished tasks"


@pytest.mark.parametrize(
    ("tasks", "unfinished", "said"),
    [
        ([DONE], 2, "at least 5 rows of 1 finished task are in the queues and stay there; rows of 2 "),
        ([], None, f"no finished task is known, and rows of any task may be in the queues; {DOUBTS} "),
        ([], 0, f"no task finished; {DOUBTS} "),
        ([], 1, f"no task finished; rows of 1 task may be in the queues; {DOUBTS} "),
        ([], 2, f"no task finished; rows of 2 tasks may be in the queues; {DOUBTS} "),
    ],
)
def test_a_failed_write_is_reported(tasks: list[FinishedTask], unfinished: int | None, said: str) -> None:
    report = WriteReport("x", tuple(tasks), None, failed=True, unfinished=unfinished)
    assert f"FAILED: {said}" in " ".join(str(report).split())
    shown = json.loads(report.to_json())
    assert (shown["failed"], shown["unfinished"], shown["confirmed"]) == (True, unfinished, 5 * len(tasks))


EVERYTHING = FinishedTask(
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


def test_the_json_has_each_field_of_the_report() -> None:
    report = WriteReport("x", (EVERYTHING,) * 2, "read", batch_id=7, seconds=12.0, notes=("of all",))
    assert f"{report.to_json()}\n" == Path(__file__).with_name("report.json").read_text()


def test_the_text_of_a_report_has_the_counts_and_the_tasks() -> None:
    report = WriteReport("x", (EVERYTHING,), "read", seconds=12.0)
    assert "FAILED" not in str(report)
    assert str(report).splitlines()[:3] == ["write w to exchange 'x', 12.0 s", "", "rows             9"]
    assert "\nreturned         1\nnacked           2\n" in str(report)
    assert " partition   attempt   rows   seconds   rows/s\n" in str(report)
    lost = FinishedTask(0, 0, samples=(RowSample(0, None, "lost"), RowSample(0, 8, "bad")))
    found = [line.split() for line in str(WriteReport("x", (lost,), None)).splitlines()]
    assert ["0", "lost"] in found
    assert ["0", "8", "bad"] in found


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
    for failed in (True, False):  # the failed attempt of a repeated batch is kept
        save_report(WriteReport("x", (), None, batch_id=3, failed=failed), str(folder), streaming=True)
    found = {path.name: json.loads(path.read_text())["failed"] for path in folder.iterdir()}
    assert found == {"batch-3.json": False, "batch-3.json.previous": True}
    with pytest.raises(InputError, match="pass a folder"):
        check_report_path(str(folder / "batch-3.json"), streaming=True)
    with pytest.raises(InputError, match=r"cannot be written \(FileNotFoundError: "):
        check_report_path(str(tmp_path / "no" / "folder"), streaming=True)

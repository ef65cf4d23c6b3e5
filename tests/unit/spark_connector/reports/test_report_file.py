"""The file of a report: written whole, and no earlier one is lost; on the driver, and in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from rabbit_chx.errors import InputError
from spark_connector.reports.report_file import check_report_path, save_report
from spark_connector.reports.write_report import WriteReport


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
    with pytest.raises(InputError, match=r"cannot be written \(ArrowInvalid: "):
        check_report_path("file://elsewhere/report.json", streaming=False)


def test_a_path_of_the_driver_as_a_uri(tmp_path: Path) -> None:
    check_report_path(f"file:{tmp_path}/the%20report.json", streaming=False)
    save_report(WriteReport("x", (), None), f"file:{tmp_path}/the%20report.json", streaming=False)
    assert json.loads((tmp_path / "the report.json").read_text())["exchange"] == "x"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3FileSystem]:
    """A bucket of an S3 service on this machine, which the environment names."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "of the test",
        "AWS_SECRET_ACCESS_KEY": "of the test",
    }.items():
        monkeypatch.setenv(name, value)
    files = S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
    files.create_dir("bucket")
    yield files
    server.stop()


def test_an_object_store(bucket: S3FileSystem) -> None:
    for exchange in ("first", "second"):
        check_report_path("s3a://bucket/report.json", streaming=False)
        save_report(WriteReport(exchange, (), None), "s3a://bucket/report.json", streaming=False)
    for _ in range(2):
        check_report_path("s3a://bucket/stream", streaming=True)
        save_report(WriteReport("x", (), None, batch_id=3), "s3a://bucket/stream", streaming=True)
    check_report_path("s3a://bucket/folder/", streaming=False)
    save_report(WriteReport("x", (), None, write_id="w"), "s3a://bucket/folder/", streaming=False)
    assert {
        file.path for file in bucket.get_file_info(FileSelector("bucket", recursive=True)) if file.is_file
    } == {
        "bucket/report.json",
        "bucket/report.json.previous",
        "bucket/stream/batch-3.json",
        "bucket/stream/batch-3.json.previous",
        "bucket/folder/write-w.json",
    }
    for path, exchange in {"bucket/report.json": "second", "bucket/report.json.previous": "first"}.items():
        with bucket.open_input_stream(path) as file:
            assert json.loads(file.read())["exchange"] == exchange
    with pytest.raises(
        InputError,
        match=r"'s3a://nowhere/r.json': that cannot be written \(OSError: Bucket 'nowhere' not found",
    ):
        check_report_path("s3a://nowhere/r.json", streaming=False)

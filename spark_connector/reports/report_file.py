"""The report of a write as a file: on the driver, or in any file system that Arrow reaches by a URI."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rabbit_chx.errors import InputError
from spark_connector.options.write_options import arrow_uri
from spark_connector.reports.write_report import REPORT_START, WriteReport

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_log = logging.getLogger(__name__)

#: What is appended to the name of an earlier report.
_PREVIOUS = ".previous"
#: File systems in which a file is there once it is closed, whole, and renaming is copying.
_OBJECT_STORES = ("s3", "gcs", "abfs")


def check_report_path(text: str | None, *, streaming: bool) -> None:
    """Make room for the report of a write, so that an earlier report is not taken for it.

    An earlier report is renamed: ``.previous`` is appended to its name, and a file of that name is replaced. The
    folder of a stream is created.

    Args:
        text: the option ``reportPath``; None for no report.
        streaming: whether the write is that of a stream.

    Raises:
        InputError: the path of a stream is a file, the existing file is not a report, the file system cannot be
            reached, or the report cannot be written there.
    """
    if text is None:
        return
    try:
        why = _make_room(text, streaming=streaming)
    except (OSError, ValueError) as cause:  # Arrow raises a ValueError for a URI that it cannot use
        reason = str(cause).partition("\n")[0][:300]
        raise InputError(
            f"option 'reportPath' is {text!r}: that cannot be written ({type(cause).__name__}: {reason}): name another"
        ) from None
    if why is not None:
        raise InputError(f"option 'reportPath' is {text!r}: {why}")


def _make_room(text: str, *, streaming: bool) -> str | None:
    """Return why the report cannot be there; None if it can."""
    from pyarrow.fs import FileType

    files, path, folder = _place(text)
    found = files.get_file_info(path).type
    if streaming or folder:
        if found is FileType.File:
            return (
                "a stream has a report for each batch, so give a folder"
                if streaming
                else "there is a file of that name"
            )
        _create_folder(files, path)
    elif found is FileType.NotFound:
        _create_folder(files, path.rpartition("/")[0])
    elif found is not FileType.Directory:
        previous = path + _PREVIOUS
        there = files.get_file_info(previous).type is not FileType.NotFound
        if not _is_ours(files, path) or (there and not _is_ours(files, previous)):
            return f"that file, or the one with {_PREVIOUS} appended, is not a report: name another, or remove it yourself"
        files.move(path, previous)
    return None


def save_report(report: WriteReport, text: str | None, *, streaming: bool) -> None:
    """Write the report to its file, whole or not at all.

    The earlier report of a batch that is repeated is renamed, as `check_report_path` does it. A failure is logged and not
    raised, since the messages are out already.

    Args:
        report: the report.
        text: the option ``reportPath``; None to write nothing.
        streaming: whether the file in a folder is named after the micro-batch.
    """
    if text is None:
        return
    try:
        from pyarrow.fs import FileType

        files, path, folder = _place(text)
        if streaming or folder or files.get_file_info(path).type is FileType.Directory:
            name = f"batch-{report.batch_id}" if streaming else f"write-{report.write_id}"
            path = f"{path}/{name}.json"
        if streaming and _is_ours(files, path):  # the batch is repeated
            files.move(path, path + _PREVIOUS)
        part = path if files.type_name in _OBJECT_STORES else f"{path}.part"
        with files.open_output_stream(part) as file:
            file.write(report.to_json().encode())
        if part != path:
            files.move(part, path)
    except Exception:  # noqa: BLE001  # raising here would call a write failed that is done
        _log.exception("the report could not be written")


def _place(text: str) -> tuple[FileSystem, str, bool]:
    """Return the file system of the option's path, the path in it, and whether a slash at its end says that it is a folder."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    uri = arrow_uri(text)
    if uri is None:
        return LocalFileSystem(), str(Path(text).absolute()), text.endswith("/")
    files, path = FileSystem.from_uri(uri)
    return files, path.rstrip("/"), urlsplit(uri).path.endswith("/")


def _create_folder(files: FileSystem, path: str) -> None:
    # In an object store this looks whether the bucket is there.
    files.create_dir(path, recursive=files.type_name != "local")


def _is_ours(files: FileSystem, path: str) -> bool:
    from pyarrow.fs import FileType

    if files.get_file_info(path).type is not FileType.File:
        return False
    with files.open_input_stream(path) as file:
        return file.read(len(REPORT_START)) in (b"", REPORT_START)

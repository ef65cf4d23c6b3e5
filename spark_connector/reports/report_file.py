"""The report of a write as a file on the driver."""

from __future__ import annotations

import logging
from pathlib import Path

from rabbit_chx.errors import InputError
from spark_connector.reports.write_report import REPORT_START, WriteReport

_log = logging.getLogger(__name__)

#: What is appended to the name of an earlier report.
_PREVIOUS = ".previous"


def check_report_path(text: str | None, *, streaming: bool) -> None:
    """Make room for the report of a write, so that an earlier report is not taken for it.

    An earlier report is renamed: ``.previous`` is appended to its name, and a file of that name is replaced. The
    folder of a stream is created.

    Args:
        text: the option ``reportPath``; None for no report.
        streaming: whether the write is that of a stream.

    Raises:
        InputError: the path of a stream is a file, the existing file is not a report, or the report cannot be written there.
    """
    if text is None:
        return
    try:
        why = _make_room(text, streaming=streaming)
    except OSError as cause:
        raise InputError(
            f"option 'reportPath' is {text!r}: that cannot be written ({type(cause).__name__}: {cause.strerror}): name another"
        ) from None
    if why is not None:
        raise InputError(f"option 'reportPath' is {text!r}: {why}")


def _make_room(text: str, *, streaming: bool) -> str | None:
    """Return why the report cannot be there; None if it can."""
    path = Path(text)
    if streaming or text.endswith("/"):
        if path.is_file():
            return (
                "a stream has a report for each batch, so give a folder"
                if streaming
                else "there is a file of that name"
            )
        path.mkdir(exist_ok=True)
    elif path.exists() and not path.is_dir():
        previous = _previous(path)
        if not _is_ours(path) or (previous.exists() and not _is_ours(previous)):
            return f"that file, or the one with {_PREVIOUS} appended, is not a report: name another, or remove it yourself"
        path.replace(previous)
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
        path = Path(text)
        if streaming or text.endswith("/") or path.is_dir():
            name = f"batch-{report.batch_id}" if streaming else f"write-{report.write_id}"
            path /= f"{name}.json"
        if streaming and _is_ours(path):  # the batch is repeated
            path.replace(_previous(path))
        part = path.with_name(f"{path.name}.part")
        part.write_text(report.to_json(), encoding="utf-8")
        part.replace(path)
    except Exception:  # noqa: BLE001  # raising here would call a write failed that is done
        _log.exception("the report could not be written")


def _previous(path: Path) -> Path:
    return path.with_name(path.name + _PREVIOUS)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(REPORT_START)) in (b"", REPORT_START)

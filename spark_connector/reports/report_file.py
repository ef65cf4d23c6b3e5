"""The report of a write as a file on the driver."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from spark_connector.reports.write_report import WriteReport

__all__ = ["check_report_path", "save_report"]

_log = logging.getLogger(__name__)

#: What is appended to the name of an earlier report.
_PREVIOUS = ".previous"
#: How `WriteReport.to_json` begins.
_START = b'{\n  "exchange": '


def check_report_path(text: str | None, *, streaming: bool) -> None:
    """Make room for the report of a write, so that an earlier report is not taken for it.

    An earlier report is renamed: ``.previous`` is appended to its name, and a file of that name is replaced. The
    folder of a stream is created.

    Args:
        text: the option ``reportPath``; None for no report.
        streaming: whether the write is that of a stream.

    Raises:
        InputError: the path of a stream is a file, the existing file is not a report, or it cannot be
            renamed.
    """
    if text is None:
        return
    path = Path(text)
    try:
        if streaming:
            path.mkdir(exist_ok=True)
        if path.is_dir() or not path.exists():
            return
        previous = path.with_name(path.name + _PREVIOUS)
        if _is_ours(path) and (not previous.exists() or _is_ours(previous)):
            path.replace(previous)
            return
    except FileExistsError:
        raise InputError(
            f"option 'reportPath' is {text!r}: a stream has a report for each batch, so give a folder"
        ) from None
    except OSError as cause:
        raise InputError(
            f"option 'reportPath' is {text!r}: that cannot be written ({type(cause).__name__}): name another"
        ) from None
    raise InputError(
        f"option 'reportPath' is {text!r}: that file, or the one with {_PREVIOUS} appended, is not a report: "
        "name another, or remove it yourself"
    )


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_START)) in (b"", _START)


def save_report(report: WriteReport, text: str | None, *, streaming: bool) -> None:
    """Write the report to its file, whole or not at all.

    A failure is logged and not raised, since the messages are out already.

    Args:
        report: the report.
        text: the option ``reportPath``; None to write nothing.
        streaming: whether the file in a folder is named after the micro-batch.
    """
    if text is None:
        return
    try:
        path = Path(text)
        if path.is_dir():
            name = f"batch-{report.batch_id}" if streaming else f"write-{report.write_id}"
            path = path / f"{name}.json"
        part = path.with_name(f"{path.name}.part")
        part.write_text(report.to_json(), encoding="utf-8")
        part.replace(path)
    except Exception:  # noqa: BLE001  # raising here would call a write failed that is done
        _log.exception("the report could not be written")

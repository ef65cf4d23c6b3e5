"""The report of a write as a file on the driver."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from spark_connector.reports.write_report import WriteReport

__all__ = ["PREVIOUS", "check_report_path", "save_report"]

_log = logging.getLogger(__name__)

#: What an earlier report has behind its name.
PREVIOUS = ".previous"
#: How `WriteReport.to_json` begins.
_START = b'{\n  "exchange": '


def check_report_path(text: str | None, *, streaming: bool) -> None:
    """See to it that the report of an earlier write cannot be taken for that of this one.

    It is kept under its name with `PREVIOUS` behind it, in place of the one before. The folder of a stream is made.

    Raises:
        InputError: a stream has a report per batch, and the path is a file; or there is a file that cannot be
            moved, or is no report.
    """
    if text is None:
        return
    path = Path(text)
    try:
        if streaming:
            path.mkdir(exist_ok=True)
        if path.is_dir() or not path.exists():
            return
        previous = path.with_name(path.name + PREVIOUS)
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
        f"option 'reportPath' is {text!r}: that file, or the one with {PREVIOUS} behind its name, is no report: "
        "name another, or remove it yourself"
    )


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_START)) in (b"", _START)


def save_report(report: WriteReport, text: str | None, *, streaming: bool) -> None:
    """Write it, whole or not at all. A failure is logged, not raised: the messages are out already."""
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

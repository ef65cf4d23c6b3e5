"""What the broker answered to preflight, remembered: Spark plans a stream again for every micro-batch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_connector.writing.application_folder import scratch_folder

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions

__all__ = ["PreflightAnswer"]


class PreflightAnswer:
    """The notes that asking the broker has led to.

    Args:
        path: file that keeps them for other processes of the application; None to keep them in this object
            alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: tuple[str, ...] | None = None

    @classmethod
    def of_query(cls, options: WriteOptions, given: Mapping[str, str]) -> PreflightAnswer:
        """Return the answer for a streaming query of this application, which may be empty.

        Checkpoint, broker and exchange identify the query. The answer is kept in a file, since Spark ends
        Python processes that are idle for a minute.

        Args:
            options: the parsed options of the query.
            given: the options as texts, of which `checkpointLocation` is needed.
        """
        folder = scratch_folder()
        if folder is None:
            return cls()
        checkpoint = next((text for name, text in given.items() if name.lower() == "checkpointlocation"), "")
        query = json.dumps([options.brokers.masked_url, options.exchange, checkpoint])
        name = hashlib.sha256(query.encode()).hexdigest()[:32]
        return cls(folder / f"looked-{name}.json")

    @property
    def notes(self) -> tuple[str, ...] | None:
        """The notes; None if the broker was not asked yet, or the file cannot be read."""
        if self._notes is None and self._path is not None:
            with suppress(OSError, ValueError):
                self._notes = tuple(json.loads(self._path.read_text(encoding="utf-8")))
        return self._notes

    def keep(self, notes: tuple[str, ...]) -> None:
        """Remember the notes. If the file cannot be written, the next process asks the broker again."""
        self._notes = notes
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                part = self._path.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(notes), encoding="utf-8")
                part.replace(self._path)

"""A look at the broker that is remembered, as a stream plans anew for every micro-batch."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from spark_connector.writing.application_folder import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spark_connector.options.write_options import WriteOptions

__all__ = ["Look"]


class Look:
    """What a look at the broker found: notes for the report. None as long as nobody has looked.

    Args:
        path: a file that keeps it for other processes of the application; None keeps it in this object alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: tuple[str, ...] | None = None

    @classmethod
    def of_query(cls, options: WriteOptions, given: Mapping[str, str]) -> Look:
        """That of a streaming query of this application, which has its own checkpoint, broker and exchange.

        Spark ends its Python processes when they are idle for a minute, so it is kept in a file.
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
        """What was found; None where nobody has looked, or nobody can tell."""
        if self._notes is None and self._path is not None:
            with suppress(OSError, ValueError):
                self._notes = tuple(json.loads(self._path.read_text(encoding="utf-8")))
        return self._notes

    def keep(self, notes: tuple[str, ...]) -> None:
        """Remember it. Where it cannot be written, the next process looks again."""
        self._notes = notes
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                part = self._path.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(notes), encoding="utf-8")
                part.replace(self._path)

"""The position of a reader that the broker keeps under a name: written seldom, and verified at the end.

The broker writes each stored offset into the stream, as a chunk that its other readers receive too (osiris 1.13.1, osiris_writer.erl,
``write_tracking``). So a write is due after some rows or seconds, not after each batch. The command has no reply: the broker drops it
while the stream has no leader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, RabbitChxError, UnreachableError
from rabbit_chx.streams import frames
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.log_lookup import ChunkFinder

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

#: A write is due after this number of rows or seconds. The first one is due at once and the next ones soon, so that a program that is
#: killed again and again does not read the same rows repeatedly.
_DUE_ROWS = 10_000
_FIRST_DUE_S = 0.5
_DUE_S = 5.0
_LAST_WRITES_S = 5.0


def log_start_without_position(finder: ChunkFinder, stream: str, start: frames.OffsetSpec) -> int:
    """Return where the log starts, if rows may be missing before `start` while no position is stored; else 0.

    The broker removes a position together with its row (osiris 1.13.1, osiris_tracking.erl, ``snapshot``), so a reader that was overtaken
    by retention looks like a new one. An offset needs no such check: if its row was removed, reading it is an error. Nor does a time that
    the log has.
    """
    first = None if isinstance(start, int) else finder.chunk_at(stream, "first", chunk_selector="all")
    if first is None or (isinstance(start, datetime) and frames.milliseconds(start) > first.timestamp_ms):
        return 0
    return first.offset


class StoredOffset:
    """The offset of the last processed row, under a name in a stream.

    Attributes:
        name: the name.
        offset: the offset to store; None before a row was processed.
    """

    def __init__(self, stream: str, name: str) -> None:
        self.name = name
        self.offset: int | None = None
        self._stream = stream
        self._written: int | None = None
        self._written_at = time.monotonic()
        self._due_s = 0.0
        self._rows = 0  # processed since the last write

    def start(self, finder: ChunkFinder, start: frames.OffsetSpec) -> tuple[frames.OffsetSpec, int]:
        """Return the offset after the stored one; or `start` and the result of `log_start_without_position` if none is stored."""
        stored = self._find(finder.connection)
        if stored is None:
            return start, log_start_without_position(finder, self._stream, start)
        return stored + 1, 0

    def note(self, batch: pa.RecordBatch) -> None:
        """Note that the rows of a batch are processed."""
        if "offset" not in batch.schema.names:
            raise InputError(
                f"the batch has no column offset, but {', '.join(batch.schema.names)}: pass one with it"
            )
        if batch.num_rows:
            self.offset = batch["offset"][-1].as_py()
            self._rows += batch.num_rows

    def write_if_due(self, connection: StreamConnection) -> None:
        """Write the offset if enough rows or seconds have passed since the last write."""
        late_s = time.monotonic() - self._written_at
        if self.offset != self._written and (self._rows >= _DUE_ROWS or late_s >= self._due_s):
            self._write(connection)

    def finish(self, connect: Callable[[], StreamConnection]) -> None:
        """Write the offset, and verify within some seconds that the leader has it. A failure is logged: the rows are read again."""
        if self.offset is None:
            return

        deadline = time.monotonic() + _LAST_WRITES_S
        try:
            with closing(connect()) as connection:
                connection.deadline = deadline
                stored = self._find(connection)
                while stored is None or stored < self.offset:
                    self._write(connection)
                    stored = self._find(connection)
                    if time.monotonic() > deadline:
                        raise UnreachableError(
                            f"{connection.where}: the leader has not taken it within {_LAST_WRITES_S:g} s"
                        )
        except RabbitChxError as cause:
            _log.warning(
                "the offset %d of %r is not stored: %s",
                self.offset,
                self.name,
                cause,
                extra={"queue": self._stream},
            )

    def _find(self, connection: StreamConnection) -> int | None:
        return connection.query_offset(self.name, self._stream)

    def _write(self, connection: StreamConnection) -> None:
        assert self.offset is not None
        connection.store_offset(self.name, self._stream, self.offset)
        self._written = self.offset
        self._written_at = time.monotonic()
        self._rows = 0
        self._due_s = min(max(_FIRST_DUE_S, 2 * self._due_s), _DUE_S)

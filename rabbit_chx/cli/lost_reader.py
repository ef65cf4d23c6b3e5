"""stdout and stderr whose reader may end, as with ``| head``.

A command that reads ends then. One that changes a broker goes on, and what it still writes is discarded: whether a change is made does not
depend on who reads the output.
"""

from __future__ import annotations

import io
import os
import pathlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: The exit code that a shell gives a program that ended because nobody reads its output.
NO_READER = 141


class _Watched(io.FileIO):
    """A standard stream that notices the end of its reader.

    Attributes:
        is_lost: the reader has ended.
        is_needed: False: the rest is discarded without an error.
    """

    def __init__(self, handle: int, *, is_needed: bool) -> None:
        super().__init__(handle, "wb", closefd=False)
        self.is_lost = False
        self.is_needed = is_needed

    def write(self, data: Any, /) -> int:
        """Write to the stream; after the end of its reader, to nowhere."""
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_lost = True
            with pathlib.Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if self.is_needed:
                raise
            return len(data)


@contextmanager
def watched_streams() -> Iterator[None]:
    """Watch the stdout and stderr of this process during a block; those that a test has replaced stay."""
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _watch(sys.stdout, is_needed=True)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _watch(sys.stderr, is_needed=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(BrokenPipeError, AttributeError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _watch(stream: io.TextIOWrapper, *, is_needed: bool) -> io.TextIOWrapper:
    """Return a stream that writes each line at once where the given one does, which is unbuffered with PYTHONUNBUFFERED."""
    raw = _Watched(stream.fileno(), is_needed=is_needed)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _of_stdout() -> _Watched | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Watched) else None


def go_on_without_reader() -> None:
    """Let this command, which changes a broker, do its work whether or not anybody reads what it says."""
    if (raw := _of_stdout()) is not None:
        raw.is_needed = False


def is_reader_lost() -> bool:
    """Return whether the reader of stdout has ended."""
    raw = _of_stdout()
    return raw is not None and raw.is_lost

"""Progress of long work, on stderr: a bar on a terminal; elsewhere a line after two seconds, and then now and then."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import BinaryIO, ClassVar, Self

from rabbit_chx.text import error_text

_BAR_EVERY_S = 0.25
_FIRST_LINE_S = 2.0
_LINE_EVERY_S = 5.0
_SIGN_EVERY_S = 30.0
_JOIN_S = 5.0
_SHORT_S = 1.0
_BAR_WIDTH = 32
_CLEAR_LINE = "\r\x1b[K"


# Ctrl-C may interrupt the main thread while it writes. `with` releases the lock then. An Event may not release its inner lock.
_bar_lock = threading.Lock()
_bar_is_shown = False  # there is one terminal


def clear_bar() -> None:
    """Remove the bar from the terminal, before a message is written; it is shown again at once."""
    global _bar_is_shown  # noqa: PLW0603
    with _bar_lock:
        if _bar_is_shown and sys.stderr is not None:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
        _bar_is_shown = False


def _show_bar(text: str) -> None:
    global _bar_is_shown  # noqa: PLW0603
    with _bar_lock:
        sys.stderr.write(f"{_CLEAR_LINE}{text}")
        sys.stderr.flush()
        _bar_is_shown = True


class CountProgress:
    """Shows a count that rises to a known total, if that takes more than a second; of nested ones, the innermost.

    Args:
        work: the work, such as ``compared``.
        total: the count at the end; None if it is unknown, so that only the time is shown.
        count: returns the count. A thread of its own calls it, until it raises an error.
        shown: formats a count.
    """

    _entered: ClassVar[list[CountProgress]] = []  # the last one is shown

    def __init__(
        self,
        work: str,
        total: int | None,
        count: Callable[[], int] = lambda: 0,
        shown: Callable[[int], str] = "{:,}".format,
    ) -> None:
        self._work = work
        self._total = total
        self._count = count
        self._shown = shown
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"progress of {work}", daemon=True)

    def __enter__(self) -> Self:
        self._entered.append(self)
        if sys.stderr is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered.remove(self)
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)  # it may hang in `count`; the work it shows is done

    def _run(self) -> None:
        try:
            if not sys.stderr.isatty():
                self._lines()
            elif not self._stop.wait(_SHORT_S):
                self._bar()
        except Exception as cause:  # noqa: BLE001  # a display must not end the work it shows
            sys.stderr.write(f"{self._work}: progress is not available ({error_text(cause)})\n")

    def _bar(self) -> None:
        started = time.monotonic()
        try:
            while True:
                if self._entered[-1:] != [self]:
                    if self._stop.wait(_BAR_EVERY_S):
                        return
                    continue
                count = self._count()
                seconds = f"{timedelta(seconds=int(time.monotonic() - started))}"
                parts = [self._work, *self._gauge(count), seconds]
                width = shutil.get_terminal_size().columns - 1
                _show_bar(" ".join(parts)[:width])
                if self._stop.wait(_BAR_EVERY_S):
                    return
        finally:
            clear_bar()

    def _gauge(self, count: int) -> list[str]:
        if self._total is None:
            return []
        filled = min(_BAR_WIDTH * count // self._total, _BAR_WIDTH) if self._total else _BAR_WIDTH
        return [f"[{'#' * filled:<{_BAR_WIDTH}}]", self._position(count)]

    def _lines(self) -> None:
        started = time.monotonic()
        wait_s = _FIRST_LINE_S
        while not self._stop.wait(wait_s):
            wait_s = _SIGN_EVERY_S if self._total is None else _LINE_EVERY_S
            if self._entered[-1:] != [self]:
                continue
            position = " ..." if self._total is None else f": {self._position(self._count())} after"
            sys.stderr.write(f"{self._work}{position} {time.monotonic() - started:.0f} s\n")
            sys.stderr.flush()

    def _position(self, count: int) -> str:
        """Return the count and its percentage, rounded down: only completed work is at 100%."""
        if self._total is None:
            return ""
        percent = min(100 * count // self._total, 100) if self._total else 100
        return f"{percent}%, {self._shown(count)} of {self._shown(self._total)}"


@contextmanager
def sign_of_life(work: str) -> Iterator[None]:
    """Show how long a block has been working, if it takes long.

    Args:
        work: the work of the block.
    """
    with CountProgress(work, None):
        yield


@contextmanager
def reading(name: str, file: BinaryIO) -> Iterator[None]:
    """Show how much of a file a block has read, in bytes.

    Args:
        name: the name of the file.
        file: the open file. For a pipe, which has no size, only the time is shown.
    """
    try:
        size = os.fstat(file.fileno()).st_size if file.seekable() else 0
    except OSError:  # not a file of the system
        size = 0
    with CountProgress(f"reading {name}", size or None, file.tell, _bytes):
        yield


def _bytes(count: int) -> str:
    size = float(count)
    unit = "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1_000:
            break
        size = size / 1_000
        unit = larger
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.1f} {unit}"

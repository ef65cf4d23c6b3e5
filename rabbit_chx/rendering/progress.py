"""Progress of long work, on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rabbit_chx.errors import MissingExtraError

_BAR_EVERY_S = 0.25
_LINE_EVERY_S = 5.0
_GOODBYE_S = 5.0
_SHORT_S = 1.0


class CountProgress:
    """Shows a count that rises to a known total. A thread of its own asks for the count.

    Args:
        what: what is done.
        total: the count at which it is done.
        count: returns the count. The thread calls it, until it raises.
    """

    def __init__(self, what: str, total: int, count: Callable[[], int]) -> None:
        self._what = what
        self._total = total
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"progress of {what}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(_GOODBYE_S)  # it may hang in `count`; the work it shows is done

    def _run(self) -> None:
        try:
            if sys.stderr.isatty():
                self._bar()
            else:
                self._lines()
        except Exception as cause:  # noqa: BLE001  # a display must not end the work it shows
            sys.stderr.write(f"{self._what}: no progress to show ({cause})\n")

    def _bar(self) -> None:
        try:
            from rich import progress
            from rich.console import Console
        except ImportError:
            raise MissingExtraError("a progress bar needs rich: pip install 'rabbit-chx[cli]'") from None
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=32),
            progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            progress.TimeElapsedColumn(),
        )
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(self._what, total=self._total)
            while not self._stop.wait(_BAR_EVERY_S):
                bars.update(task, completed=self._count())

    def _lines(self) -> None:
        started = time.monotonic()
        while not self._stop.wait(_LINE_EVERY_S):
            sys.stderr.write(
                f"{self._what}: {self._count():,} of {self._total:,} after {time.monotonic() - started:.0f} s\n"
            )
            sys.stderr.flush()


@contextmanager
def sign_of_life(what: str) -> Iterator[None]:
    """Show on a terminal that a block is at work and for how long, if it takes more than a second.

    Args:
        what: what the block works on.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=32),
        progress.TimeElapsedColumn(),
    )
    bars = progress.Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bars.add_task(what, total=None)
    begun = threading.Timer(_SHORT_S, bars.start)
    begun.daemon = True
    begun.start()
    try:
        yield
    finally:
        begun.cancel()
        begun.join()
        if bars.live.is_started:
            bars.stop()

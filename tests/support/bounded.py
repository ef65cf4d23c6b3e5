"""What a test does beside it, and waits for: all with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")


def until(condition: Callable[[], _T], what: str, within_s: float = 60.0, every_s: float = 0.05) -> _T:
    """Return what a condition returns as soon as it is true.

    Raises:
        AssertionError: it is not true in time; the message contains its last value.
    """
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}; {value!r}"
        time.sleep(every_s)
    return value


class Beside(threading.Thread):
    """Does something beside the test, which gets what it raises.

    Attributes:
        ended: when it was over, in seconds of the monotonic clock.
    """

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._do = do
        self._error: BaseException | None = None
        self.ended: float | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self._do()
        except BaseException as error:  # noqa: BLE001  # raised by `finish`, in the thread of the test
            self._error = error
        self.ended = time.monotonic()

    def finish(self, within_s: float = 200.0) -> None:
        """Wait until it is over; raise what it has raised."""
        assert self.ident is not None, "it never began, so it shows nothing"
        self.join(within_s)
        assert not self.is_alive(), "it does not end"
        if self._error is not None:
            raise self._error


@contextmanager
def repeated(do: Callable[[], object], every_s: float) -> Iterator[None]:
    """Do something again and again beside a block, which gets what it raises."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(every_s):
            do()

    beside = Beside(repeat)
    beside.start()
    try:
        yield
    finally:
        is_over.set()
        beside.finish()

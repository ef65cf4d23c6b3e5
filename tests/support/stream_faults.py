"""Faults of a scripted stream broker, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scripted_streams import ScriptedConnection

from rabbit_chx.streams.frames import PublishErrors, StreamChanged

NOTHING = StreamChanged("another stream", 6)


class Clock:
    """Stands for the module time: it goes on when somebody waits, or a test lets it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        self.now += 0.001  # so that a loop that waits without sleeping ends
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.05)


def once(fault: Callable[[ScriptedConnection], object], after: int) -> Callable[[ScriptedConnection], object]:
    """Return what lets a fault happen once, when so many rows are sent."""
    done: list[bool] = []

    def happen(connection: ScriptedConnection) -> None:
        if not done and len(connection.sent) >= after:
            done.append(True)
            fault(connection)

    return happen


def refuse(connection: ScriptedConnection) -> None:
    """Refuse the rows that are under way, which the broker then forgets."""
    connection.stream.crash(0, flaw=False)
    ids = np.array([row_id for _, row_id, _ in connection.unconfirmed], np.uint64)
    connection.news = [PublishErrors(0, ids, np.full(len(ids), 18, np.uint16))]


def change(connection: ScriptedConnection) -> None:
    connection.stream.crash(0, flaw=False)
    connection.news = [StreamChanged("s", 6)]


def lose(connection: ScriptedConnection) -> None:
    connection.stream.crash(0, flaw=False)
    connection.lose()


def flaw(connection: ScriptedConnection) -> None:
    """Die in the roll-over: the ids of the last rows are in the log, and the rows are not."""
    connection.stream.crash(0, flaw=True)
    connection.lose()

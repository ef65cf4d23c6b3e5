"""The steps of an operation of a delivery, which a publisher executes with `drive`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import RabbitChxError


class Open(NamedTuple):
    """Close the current connection, if any, and open another; the answer is the connection."""

    settings: ConnectionSettings


class Close(NamedTuple):
    """Close the current connection."""


class Poll(NamedTuple):
    """Send queued frames, and receive frames for at most `wait_s` seconds.

    Attributes:
        until_open: wait until at most this many messages are open or the broker refuses one; None for one round.
    """

    wait_s: float
    until_open: int | None = None


class Sleep(NamedTuple):
    """Wait some seconds without a connection."""

    seconds: float


Step: TypeAlias = Open | Close | Poll | Sleep
Steps: TypeAlias = Generator[Step, OpenConnection | None, None]


def drive(steps: Steps, do: Callable[[Step], OpenConnection | None]) -> None:
    """Execute the steps of an operation. A RabbitChxError of `do` is thrown into the operation; any other exception closes it."""
    with closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = do(step)
                except RabbitChxError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return

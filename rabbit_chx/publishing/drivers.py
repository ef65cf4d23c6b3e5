"""What an operation without I/O asks its publisher to do."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["Open", "Sleep", "Step", "Steps", "Turn"]


class Open(NamedTuple):
    """Give up the present connection, if any, and open one there; the answer is its `Link`."""

    settings: ConnectionSettings


class Turn(NamedTuple):
    """Move bytes both ways, and wait for them.

    Attributes:
        wait_s: seconds to wait at most.
        enough: go on as long as more messages than this are open; None for one round.
    """

    wait_s: float
    enough: int | None = None


class Sleep(NamedTuple):
    """Wait so many seconds, without a connection."""

    seconds: float


Step: TypeAlias = Open | Turn | Sleep
_T = TypeVar("_T")
Steps: TypeAlias = Generator[Step, Any, _T]

"""What a sequence asks of a second connection, which carries messages: parked ones, and the markers of a hand-over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rabbit_chx.topology.sequences.hand_over_marker import HandOverMarker

__all__ = [
    "CarrierEnd",
    "CarrierStep",
    "MarkerReply",
    "MarkerSending",
    "MessageTransfer",
    "Pause",
]


class CarrierStep:
    """A step for the second connection."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MessageTransfer(CarrierStep):
    """Take messages out of a queue, from its head, and publish each to an exchange with all that it came with.

    Each is taken away only after the broker has confirmed its copy. So one may be there twice after a death, and none is lost.
    The answer is the number of messages. It is less than `limit` if the queue has no more.
    """

    queue: str
    exchange: str
    limit: int


@dataclass(frozen=True, slots=True)
class MarkerSending(CarrierStep):
    """Send a marker to a queue, confirmed. Replies come to a queue of the carrier. The answer is None."""

    queue: str
    marker: HandOverMarker


@dataclass(frozen=True, slots=True)
class MarkerReply(CarrierStep):
    """Wait for the reply to a marker. The answer is whether it came in time.

    Attributes:
        marker: the marker.
        kind: the reply.
        timeout_s: the most seconds in which nobody reads the queues. The time starts anew when one of them gets shorter.
        longest_s: the most seconds in all.
        queues: the queues that are read before the reply comes.
    """

    marker: HandOverMarker
    kind: Literal["flushed", "taken"]
    timeout_s: float
    longest_s: float
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause(CarrierStep):
    """Wait. The answer is None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CarrierEnd(CarrierStep):
    """Close the second connection, if there is one. The answer is None."""

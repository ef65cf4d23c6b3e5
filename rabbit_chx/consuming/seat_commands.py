"""What a seat sees, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from rabbit_chx.topology.steps import HandOverMarker

__all__ = [
    "Abandon",
    "Ack",
    "AwaitTime",
    "Claim",
    "DeliveredMessage",
    "FetchParked",
    "GiveUp",
    "Interrupt",
    "Note",
    "Reject",
    "Reply",
    "RunHook",
    "SeatCommand",
    "Start",
    "Subscribe",
]


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """A message that the broker has delivered and that is not acknowledged.

    Attributes:
        tag: its number on the channel.
        key: its routing key.
        content: the message, as the adapter keeps it.
        marker: what it says about a hand-over, where it is a marker.
        reply_to: the queue that waits for the reply to the marker.
    """

    tag: int
    key: str
    content: Any = None
    marker: HandOverMarker | None = None
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Open a channel and consume the queue, behind all that consume it already; then call `subscribed`."""

    line: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a claim into the journal; call `claimed` when it is read there, over the connection of the line."""

    line: int


@dataclass(frozen=True, slots=True)
class Start:
    """Call the handler; then call `handled`."""

    line: int
    delivery: DeliveredMessage
    attempt: int
    generation: int | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt a handler whose line is lost; `handled` is called when it has ended."""

    line: int
    tag: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge a message."""

    line: int
    tag: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a message without requeue: the broker dead-letters it."""

    line: int
    tag: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """End the line so that the broker returns what it holds before it elects another consumer; then call `closed`."""

    line: int


@dataclass(frozen=True, slots=True)
class RunHook:
    """Call the user's hook; then call `hook_done`."""

    which: Literal["gained", "lost"]
    generation: int | None


@dataclass(frozen=True, slots=True)
class AwaitTime:
    """Call `time_passed` with the line and the reason after so many seconds."""

    line: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """Publish a reply to a marker, when the broker has taken all acks of the line."""

    line: int
    queue: str
    marker: HandOverMarker


@dataclass(frozen=True, slots=True)
class FetchParked:
    """Get one message of the parking queue over the line's channel; then call `fetched`."""

    line: int
    park: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the group with an error: the handler failed with this message, and it is to stop then."""

    line: int
    delivery: DeliveredMessage


@dataclass(frozen=True, slots=True)
class Note:
    """Log a warning and count it."""

    says: str


SeatCommand: TypeAlias = (
    Subscribe | Claim | Start | Interrupt | Ack | Reject | Abandon | RunHook | AwaitTime | Reply | FetchParked | GiveUp | Note
)  # fmt: skip

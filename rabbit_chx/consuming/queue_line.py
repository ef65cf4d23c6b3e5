"""A consumer of a queue, and what it holds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from rabbit_chx.consuming.seat_commands import (
    Ack,
    AwaitTime,
    DeliveredMessage,
    FetchParked,
    Note,
    Reply,
    SeatCommand,
    Start,
)

if TYPE_CHECKING:
    from rabbit_chx.consuming.handling import Handling

__all__ = ["POLL", "TAKING", "HandledMessage", "QueueLine"]

#: Why the line waits: to ask the parking queue again, and for the end of a hand-over.
POLL, TAKING = "poll", "taking"
_POLL_S = 0.05


@dataclass(slots=True)
class HandledMessage:
    """A message in hand."""

    delivery: DeliveredMessage
    attempt: int = 1
    running: bool = True


@dataclass(slots=True)
class QueueLine:
    """A consumer of the queue, on a channel of its own.

    Attributes:
        number: tells it from the other lines of the seat.
        state: opening; open; retiring (it finishes what is in hand, and the rest goes back); ended (it is being closed).
        pending: what was delivered and not started, in the order of the queue.
        working: what is in hand, by lane.
        generation: the generation of its claim; None before, and without a journal.
        claim: whether the claim was not made yet, asked for, or had.
        begin: the marker up to whose `end` the parking queue is read now.
        polling: whether the parking queue is being asked, or is asked again in a moment.
        fetching: whether the answer of the parking queue is on its way.
        came: whether parked messages came lately. What comes after the parking queue was empty does not count: it is of another
            hand-over, since the mover of this one has bound the slot.
        emptied: whether the parking queue was empty since `begin`.
        ended: the hand-overs whose `end` was read while another one was awaited, whose mover has died.
        failed: whether a message in it stops the group.
        late: whether it is to be opened again, since others come first.
    """

    number: int
    state: Literal["opening", "open", "retiring", "ended"] = "opening"
    pending: deque[DeliveredMessage] = field(default_factory=deque)
    working: dict[int, HandledMessage] = field(default_factory=dict)
    generation: int | None = None
    claim: Literal["none", "asked", "had"] = "none"
    begin: DeliveredMessage | None = None
    polling: bool = False
    fetching: bool = False
    came: bool = False
    emptied: bool = False
    ended: set[str] = field(default_factory=set)
    failed: bool = False
    late: bool = False

    def start_pending(self, handling: Handling) -> list[SeatCommand]:
        """Start the messages whose lane is free, and obey the markers before which all is handled. Nothing passes a marker.

        Args:
            handling: the lanes.
        """
        commands: list[SeatCommand] = []
        kept: deque[DeliveredMessage] = deque()
        busy = set(self.working)
        free = handling.lanes - len(busy)
        while self.pending and free > 0:
            delivery = self.pending.popleft()
            if delivery.marker is not None:
                if self.working or kept:
                    self.pending.appendleft(delivery)
                    break
                commands += self._obey(delivery, handling)
                if self.begin is not None:
                    break
                continue
            lane = crc32(delivery.key.encode()) % handling.lanes if handling.lanes > 1 else 0
            if lane in busy:
                kept.append(delivery)
                continue
            free -= 1
            busy.add(lane)
            self.working[lane] = HandledMessage(delivery)
            commands.append(Start(self.number, delivery, 1, self.generation))
        self.pending.extendleft(reversed(kept))
        return commands

    # -- hand-over of a slot

    def read_park(self) -> list[SeatCommand]:
        """Ask the parking queue for its next message, unless one is in hand or asked for."""
        if self.polling or self.working or self.begin is None or self.begin.marker is None:
            return []
        self.polling = self.fetching = True
        return [FetchParked(self.number, self.begin.marker.park)]

    def fetched(self, delivery: DeliveredMessage | None) -> list[SeatCommand]:
        """Take a message of the parking queue.

        Args:
            delivery: the message; None where the queue is empty.
        """
        self.polling = self.fetching = False
        if self.state in ("retiring", "ended"):
            return []  # what came goes back when the line ends
        if delivery is None:
            self.polling = self.emptied = True
            return [AwaitTime(self.number, POLL, _POLL_S)]
        self.came = not self.emptied
        if delivery.marker is None:
            self.working[0] = HandledMessage(delivery)
            return [Start(self.number, delivery, 1, self.generation)]
        begin = self.begin
        if delivery.marker.kind != "end" or begin is None or begin.marker != delivery.marker.as_kind("begin"):
            self.ended.add(delivery.marker.id)
            return [Ack(self.number, delivery.tag)]
        self.begin = None
        # An end that came again after the reply would stay in the parking queue.
        return [Ack(self.number, begin.tag), Ack(self.number, delivery.tag), *self._replies(begin, "taken")]

    def end_late(self, queue: str, reason: str, handling: Handling) -> list[SeatCommand]:
        """Go on without the end of a hand-over, where it is still awaited, and the parking queue is read no further.

        Args:
            queue: the queue of the line.
            reason: the reason of the wait, which names the hand-over.
            handling: for how long it was awaited.
        """
        if self.begin is None or reason != f"{TAKING} {self.begin.tag}":
            return []
        if self.came:
            self.came = False
            return [AwaitTime(self.number, reason, handling.park_timeout_s)]
        if self.fetching:  # its answer would be held by nobody
            return [AwaitTime(self.number, reason, _POLL_S)]
        slot, tag, self.begin = _slot(self.begin), self.begin.tag, None
        says = (
            f"the hand-over of {slot} to {queue} did not end, and the parking queue had no more of it for {handling.park_timeout_s:g} s: "
            "what is parked is left to whoever moves the slot"
        )
        return [Note(says), Ack(self.number, tag)]

    def _obey(self, delivery: DeliveredMessage, handling: Handling) -> list[SeatCommand]:
        """Do what a marker says. All that came before it is handled and acknowledged."""
        marker = delivery.marker
        assert marker is not None  # noqa: S101  # the caller has looked
        if marker.kind == "begin" and marker.id not in self.ended:
            self.begin, self.came, self.emptied = delivery, False, False
            reason = f"{TAKING} {delivery.tag}"
            return [AwaitTime(self.number, reason, handling.park_timeout_s), *self.read_park()]
        kinds: dict[str, Literal["flushed", "taken"]] = {"flush": "flushed", "begin": "taken"}
        replies = self._replies(delivery, kinds[marker.kind]) if marker.kind in kinds else []
        return [*replies, Ack(self.number, delivery.tag)]  # a marker without a reply comes again

    def _replies(self, asked: DeliveredMessage, kind: Literal["flushed", "taken"]) -> list[SeatCommand]:
        """Return the reply to a marker, if anybody waits for it."""
        if asked.marker is None or not asked.reply_to:
            return []
        return [Reply(self.number, asked.reply_to, asked.marker.reply(kind))]


def _slot(begin: DeliveredMessage) -> str:
    return begin.marker.slot if begin.marker else ""

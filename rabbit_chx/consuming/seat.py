"""A member's place at one queue: what it decides, without I/O and without a clock.

The broker elects one consumer of the queue. A member that is elected learns it from its first delivery. It then claims the
queue in the journal, runs the hook `on_gained`, and handles messages.

A consumer that holds messages is not cancelled. The next consumer would be elected first, and the messages returned after that,
behind later ones (3.8.9, 3.10.8, 4.0.5 and 4.3.6, tried). It is abandoned: its channel ends by an error, and the messages are
returned first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from zlib import crc32

from rabbit_chx.consuming.member import GroupMember
from rabbit_chx.topology.hand_over_marker import HandOverMarker

#: Why a line waits: to ask the parking queue again, and for the end of a hand-over.
POLL, TAKING = "poll", "taking"
_POLL_S = 0.05
_CLAIM_S = 0.05
_REPLIES: dict[str, Literal["flushed", "taken"]] = {"flush": "flushed", "begin": "taken"}


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
    """Call `time_passed` with the line and the reason after some seconds."""

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
    """Log a warning."""

    says: str


SeatCommand: TypeAlias = (
    Subscribe | Claim | Start | Interrupt | Ack | Reject | Abandon | RunHook | AwaitTime | Reply | FetchParked | GiveUp | Note
)  # fmt: skip


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
        queue: the queue.
        member: the member that consumes it.
        state: opening; open; retiring (it finishes what is in hand, and the rest goes back); ended (it is being closed).
        pending: what was delivered and not started, in the order of the queue.
        working: what is in hand, by lane.
        generation: the generation of its claim; None before, and without a journal.
        claim: whether the claim was not made yet, asked for, or had.
        begin: the marker up to whose `end` the parking queue is read now.
        polling: whether the parking queue is being asked, or is asked again in a moment.
        fetching: whether the answer of the parking queue is on its way.
        came: whether parked messages came lately. What comes after the parking queue was empty does not count: it is of another
            hand-over, since the mover of this hand-over has bound the slot.
        emptied: whether the parking queue was empty since `begin`.
        ended: the hand-overs whose `end` was read while another one was awaited, whose mover has died.
        failed: whether a message in it stops the group.
        late: whether it is to be opened again, since others come first.
    """

    number: int
    queue: str
    member: GroupMember = field(repr=False)
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

    def start_pending(self) -> list[SeatCommand]:
        """Start the messages whose lane is free, and obey the markers before which all is handled. Nothing passes a marker."""
        commands: list[SeatCommand] = []
        held_back: deque[DeliveredMessage] = deque()
        busy = set(self.working)
        lanes = self.member.lanes
        free = lanes - len(busy)
        while self.pending and free > 0:
            delivery = self.pending.popleft()
            if delivery.marker is not None:
                if self.working or held_back:
                    self.pending.appendleft(delivery)
                    break
                commands += self._obey(delivery, delivery.marker)
                if self.begin is not None:
                    break
                continue
            lane = crc32(delivery.key.encode()) % lanes if lanes > 1 else 0
            if lane in busy:
                held_back.append(delivery)
                continue
            free -= 1
            busy.add(lane)
            self.working[lane] = HandledMessage(delivery)
            commands.append(Start(self.number, delivery, 1, self.generation))
        self.pending.extendleft(reversed(held_back))
        return commands

    # -- hand-over of a slot

    def read_park(self) -> list[SeatCommand]:
        """Ask the parking queue for its next message, unless a message is in hand or asked for."""
        if self.polling or self.working or self.begin is None or self.begin.marker is None:
            return []
        self.polling = self.fetching = True
        return [FetchParked(self.number, self.begin.marker.park)]

    def fetched(self, delivery: DeliveredMessage | None) -> list[SeatCommand]:
        """Take a message of the parking queue."""
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

    def end_late(self, reason: str) -> list[SeatCommand]:
        """Go on without the end of a hand-over, where it is still awaited, and the parking queue is read no further."""
        if self.begin is None or reason != f"{TAKING} {self.begin.tag}":
            return []
        park_s = self.member.pace.park_s
        if self.came:
            self.came = False
            return [AwaitTime(self.number, reason, park_s)]
        if self.fetching:  # its answer would be held by nobody
            return [AwaitTime(self.number, reason, _POLL_S)]
        slot, tag, self.begin = self.begin.marker.slot if self.begin.marker else "", self.begin.tag, None
        says = (
            f"the hand-over of {slot} to {self.queue} did not end, and the parking queue had no more of it for {park_s:g} s: "
            "what is parked is left to whoever moves the slot"
        )
        return [Note(says), Ack(self.number, tag)]

    def _obey(self, delivery: DeliveredMessage, marker: HandOverMarker) -> list[SeatCommand]:
        """Do what a marker says. All that came before it is handled and acknowledged."""
        if marker.kind == "begin" and marker.id not in self.ended:
            self.begin, self.came, self.emptied = delivery, False, False
            reason = f"{TAKING} {delivery.tag}"
            return [AwaitTime(self.number, reason, self.member.pace.park_s), *self.read_park()]
        replies = self._replies(delivery, _REPLIES[marker.kind]) if marker.kind in _REPLIES else []
        return [*replies, Ack(self.number, delivery.tag)]  # a marker without a reply comes again

    def _replies(self, question: DeliveredMessage, kind: Literal["flushed", "taken"]) -> list[SeatCommand]:
        """Return the reply to a marker, if anybody waits for it."""
        if question.marker is None or not question.reply_to:
            return []
        return [Reply(self.number, question.reply_to, question.marker.reply(kind))]


class Seat:
    """What one member does at one queue. Each method takes an event and returns what is to be done."""

    def __init__(self, queue: str, member: GroupMember) -> None:
        self.queue = queue
        self.line: QueueLine | None = None
        self.held = False  # between the hooks on_gained and on_lost
        self.stopping = False
        self.delivered_count = 0
        self.generation: int | None = None  # of the last claim
        self._member = member
        self._numbers = 0
        self._hook_runs = False
        self._owes_lost = False
        self._orphans: set[tuple[int, int]] = set()  # handlers that still run although their line is lost

    # -- what the group wants

    def consume(self) -> list[SeatCommand]:
        """Consume the queue, unless it is consumed."""
        if self.stopping or self.line is not None:
            return []
        self._numbers += 1
        self.line = QueueLine(self._numbers, self.queue, self._member)
        return [Subscribe(self._numbers)]

    def step_back(self) -> list[SeatCommand]:
        """Finish what is in hand, let the others have the queue, and consume it again behind them."""
        if self.stopping or self.line is None:
            return []
        if self.line.state == "opening":
            self.line.late = True
        elif self.line.state == "open":
            self.line.state = "retiring"
        return self._advance()

    def stop(self) -> list[SeatCommand]:
        """Finish what is in hand and leave the queue; the rest goes back to its place."""
        self.stopping = True
        if self.line is not None and self.line.state == "open":
            self.line.state = "retiring"
        return self._advance()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of this seat is left at the broker or in a handler."""
        return not (self.line or self._orphans or self._hook_runs or self._owes_lost)

    @property
    def is_leaving(self) -> bool:
        """Whether it lets go of the queue, or has none."""
        return self.line is None or self.line.state in ("retiring", "ended")

    @property
    def is_idle(self) -> bool:
        """Whether it is subscribed and has nothing to do."""
        line = self.line
        return line is not None and line.state == "open" and not (line.pending or line.working or line.begin)

    # -- what the broker says

    def subscribed(self, number: int) -> list[SeatCommand]:
        """Note that the broker knows the consumer of a line."""
        line = self._line(number)
        if line is None:
            return []
        line.state = "retiring" if self.stopping or line.late else "open"
        return self._advance()

    def delivered(self, number: int, delivery: DeliveredMessage) -> list[SeatCommand]:
        """Take a message."""
        self.delivered_count += 1
        line = self._line(number)
        if line is None or line.state == "ended":
            return []  # it goes back
        line.pending.append(delivery)
        return self._advance()

    def fetched(self, number: int, delivery: DeliveredMessage | None) -> list[SeatCommand]:
        """Take a message of the parking queue."""
        line = self._line(number)
        if line is None or not line.fetching:
            return []
        return line.fetched(delivery) + self._advance()

    def closed(self, number: int) -> list[SeatCommand]:
        """Note that a line is gone, with all that it held. One that was abandoned is followed by another one."""
        line = self._line(number)
        if line is None:
            return []
        commands = self.lost()
        return commands + self.consume() if line.state == "ended" else commands

    def lost(self) -> list[SeatCommand]:
        """Note that the connection is gone, and the line with all that it held."""
        line, self.line = self.line, None
        if line is None:
            return []
        running = [(line.number, work.delivery.tag) for work in line.working.values() if work.running]
        self._orphans.update(running)
        if self.held:
            self._owes_lost = True
        return [*(Interrupt(number, tag) for number, tag in running), *self._advance()]

    # -- what the journal says

    def claimed(self, number: int, generation: int) -> list[SeatCommand]:
        """Note that the claim of a line is in the journal.

        It was read over the connection of the line, so the broker has not given up that connection before: whoever is elected
        in place of this member claims later.
        """
        line = self._line(number)
        if line is None:
            return []
        line.claim, line.generation = "had", generation
        self.generation = generation
        return self._advance()

    def superseded(self) -> list[SeatCommand]:
        """Note that another member has claimed the queue since our last claim."""
        if self.line is not None and self.line.claim == "had":
            self.line.claim, self.line.generation = "none", None
        if self.held:
            self._owes_lost = True
        return self._advance()

    # -- what the handler, the hooks and the clock say

    def handled(self, number: int, tag: int, *, failed: bool = False) -> list[SeatCommand]:
        """Note that the handler has ended."""
        if (number, tag) in self._orphans:
            self._orphans.discard((number, tag))
            return self._advance()
        line = self._line(number)
        if line is None:
            return []
        lane = next((lane for lane, work in line.working.items() if work.delivery.tag == tag), None)
        if lane is None:
            return []
        if not failed:
            del line.working[lane]
            return [Ack(number, tag), *self._advance()]
        return self._failed(line, lane)

    def _failed(self, line: QueueLine, lane: int) -> list[SeatCommand]:
        work = line.working[lane]
        tag = work.delivery.tag
        if line.state != "retiring" and not self.stopping and work.attempt <= self._member.retries:
            work.running = False
            return [AwaitTime(line.number, str(lane), self._member.delay_s(work.attempt))]
        del line.working[lane]
        if line.state == "retiring" or self.stopping:
            line.failed = True  # it goes back, and the next member tries again
            return self._advance()
        if self._member.on_failure == "dead-letter":
            return [Reject(line.number, tag), *self._advance()]
        line.failed = True
        return [GiveUp(line.number, work.delivery)]

    def hook_done(self) -> list[SeatCommand]:
        """Note that a hook has ended."""
        self._hook_runs = False
        return self._advance()

    def time_passed(self, number: int, reason: str) -> list[SeatCommand]:
        """Note that the time of an `AwaitTime` is over."""
        line = self._line(number)
        if line is None:
            return []
        if reason == POLL:
            line.polling = False
            return self._advance()
        if reason.startswith(TAKING):
            return line.end_late(reason) + self._advance()
        return self._try_again(line, int(reason))

    def _try_again(self, line: QueueLine, lane: int) -> list[SeatCommand]:
        work = line.working.get(lane)
        if work is None or work.running:
            return []
        if line.state == "retiring":
            del line.working[lane]
            return self._advance()
        if self._lacks_claim(line):  # another member has had the queue meanwhile
            return [*self._claim(line), AwaitTime(line.number, str(lane), _CLAIM_S)]
        work.attempt += 1
        work.running = True
        return [Start(line.number, work.delivery, work.attempt, line.generation)]

    # -- what is next

    def _line(self, number: int) -> QueueLine | None:
        return self.line if self.line is not None and self.line.number == number else None

    def _advance(self) -> list[SeatCommand]:
        """Return what can be done now."""
        line = self.line
        if line is None or line.state in ("opening", "ended"):
            return self._settle_debts()
        if line.state == "retiring":
            return self._let_go(line)
        return self._settle_debts() or ([] if self._is_busy else self._begin_work(line))

    @property
    def _is_busy(self) -> bool:
        """Whether a hook, or a handler whose line is lost, must end before anything is started."""
        return bool(self._hook_runs or self._orphans or self._owes_lost)

    def _settle_debts(self) -> list[SeatCommand]:
        """Return the hook that is due because the queue was lost, when no handler runs any more."""
        works = self.line is not None and self.line.working
        if self._hook_runs or self._orphans or works or not self._owes_lost:
            return []
        self._owes_lost = self.held = False
        self._hook_runs = True
        return [RunHook("lost", self.generation)]

    def _let_go(self, line: QueueLine) -> list[SeatCommand]:
        """Abandon a line when nothing of it is in hand."""
        for lane, work in list(line.working.items()):
            if not work.running:  # it waits for its next attempt, and the next member makes that
                del line.working[lane]
        if line.working or line.fetching or line.claim == "asked" or self._hook_runs or self._orphans:
            return []
        if self.held:
            self._owes_lost = True
            return self._settle_debts()
        line.state = "ended"
        return [Abandon(line.number)]

    def _begin_work(self, line: QueueLine) -> list[SeatCommand]:
        if line.failed or not (line.pending or line.begin):
            return []
        if self._lacks_claim(line):
            return [] if line.working else self._claim(line)
        if not self.held:
            self.held = self._hook_runs = True
            return [RunHook("gained", line.generation)]
        if line.begin is not None:
            return line.read_park()
        return line.start_pending()

    def _lacks_claim(self, line: QueueLine) -> bool:
        return self._member.journal is not None and line.claim != "had"

    def _claim(self, line: QueueLine) -> list[SeatCommand]:
        """Ask for a claim, unless a claim is under way."""
        if line.claim != "none":
            return []
        line.claim = "asked"
        return [Claim(line.number)]

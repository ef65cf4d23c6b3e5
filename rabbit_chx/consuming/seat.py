"""A member's place at one queue: what it decides, without I/O and without a clock.

The broker elects one consumer of the queue. A member that is elected learns it from its first delivery. It then claims the
queue in the journal, runs the hook `on_gained`, and handles messages.

A consumer that holds messages is not cancelled. The next consumer would be elected first, and the messages returned after that,
behind later ones (3.8.9, 3.10.8, 4.0.5 and 4.3.6, tried). It is abandoned: its channel ends by an error, and the messages are
returned first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.consuming.queue_line import POLL, TAKING, QueueLine
from rabbit_chx.consuming.seat_commands import (
    Abandon,
    Ack,
    AwaitTime,
    Claim,
    DeliveredMessage,
    GiveUp,
    Interrupt,
    Reject,
    RunHook,
    SeatCommand,
    Start,
    Subscribe,
)

if TYPE_CHECKING:
    from rabbit_chx.consuming.handling import Handling

__all__ = ["Seat"]

_CLAIM_S = 0.05


class Seat:
    """What one member does at one queue. Each method takes an event and returns what is to be done.

    Args:
        queue: the queue.
        handling: lanes, repetitions, and what follows the last one.
        journal: whether claims are written into a journal.
    """

    def __init__(self, queue: str, handling: Handling, *, journal: bool = True) -> None:
        self.queue = queue
        self.line: QueueLine | None = None
        self.held = False  # between the hooks on_gained and on_lost
        self.stopping = False
        self.delivered_count = 0
        self.generation: int | None = None  # of the last claim
        self._handling = handling
        self._journal = journal
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
        self.line = QueueLine(self._numbers)
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
        """Note that the broker knows the consumer of a line.

        Args:
            number: the line.
        """
        line = self._line(number)
        if line is None:
            return []
        line.state = "retiring" if self.stopping or line.late else "open"
        return self._advance()

    def delivered(self, number: int, delivery: DeliveredMessage) -> list[SeatCommand]:
        """Take a message.

        Args:
            number: the line that it came over.
            delivery: the message.
        """
        self.delivered_count += 1
        line = self._line(number)
        if line is None or line.state == "ended":
            return []  # it goes back
        line.pending.append(delivery)
        return self._advance()

    def fetched(self, number: int, delivery: DeliveredMessage | None) -> list[SeatCommand]:
        """Take a message of the parking queue.

        Args:
            number: the line that asked for it.
            delivery: the message; None where the queue is empty.
        """
        line = self._line(number)
        if line is None or not line.fetching:
            return []
        return line.fetched(delivery) + self._advance()

    def closed(self, number: int) -> list[SeatCommand]:
        """Note that a line is gone, with all that it held. One that was abandoned is followed by another one.

        Args:
            number: the line.
        """
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

        Args:
            number: the line.
            generation: its place in the journal.
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
        """Note that the handler has ended.

        Args:
            number: the line of the message.
            tag: the number of the message on its channel.
            failed: whether it raised.
        """
        if (number, tag) in self._orphans:
            self._orphans.discard((number, tag))
            return self._advance()
        line = self._line(number)
        lane = (
            None
            if line is None
            else next((n for n, w in line.working.items() if w.delivery.tag == tag), None)
        )
        if line is None or lane is None:
            return []
        if not failed:
            del line.working[lane]
            return [Ack(number, tag), *self._advance()]
        return self._failed(line, lane)

    def _failed(self, line: QueueLine, lane: int) -> list[SeatCommand]:
        work = line.working[lane]
        tag = work.delivery.tag
        if line.state != "retiring" and not self.stopping and work.attempt <= self._handling.retries:
            work.running = False
            return [AwaitTime(line.number, str(lane), self._handling.delay_s(work.attempt))]
        del line.working[lane]
        if line.state == "retiring" or self.stopping:
            line.failed = True  # it goes back, and the next member tries again
            return self._advance()
        if self._handling.on_failure == "dead-letter":
            return [Reject(line.number, tag), *self._advance()]
        line.failed = True
        return [GiveUp(line.number, work.delivery)]

    def hook_done(self) -> list[SeatCommand]:
        """Note that a hook has ended."""
        self._hook_runs = False
        return self._advance()

    def time_passed(self, number: int, reason: str) -> list[SeatCommand]:
        """Note that the time of an `AwaitTime` is over.

        Args:
            number: the line.
            reason: the reason that the command gave.
        """
        line = self._line(number)
        if line is None:
            return []
        if reason == POLL:
            line.polling = False
            return self._advance()
        if reason.startswith(TAKING):
            return line.end_late(self.queue, reason, self._handling) + self._advance()
        return self._try_again(line, int(reason))

    def _try_again(self, line: QueueLine, lane: int) -> list[SeatCommand]:
        work = line.working.get(lane)
        if work is None or work.running:
            return []
        if line.state == "retiring":
            del line.working[lane]
            return self._advance()
        if self._journal and line.claim != "had":  # another member has had the queue meanwhile
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
        if self._journal and line.claim != "had":
            return [] if line.working else self._claim(line)
        if not self.held:
            self.held = self._hook_runs = True
            return [RunHook("gained", line.generation)]
        if line.begin is not None:
            return line.read_park()
        return line.start_pending(self._handling)

    def _claim(self, line: QueueLine) -> list[SeatCommand]:
        """Ask for a claim, unless one is under way."""
        if line.claim != "none":
            return []
        line.claim = "asked"
        return [Claim(line.number)]

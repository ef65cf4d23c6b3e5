"""A member's place at one queue: what it decides, without I/O and without a clock.

The broker elects one consumer of the queue. A member that is elected learns it from its first delivery. It then claims the
queue in the journal, runs the hook `on_gained`, and handles messages. Two things that RabbitMQ does rule how it ends a consumer:

- A consumer that holds messages is not cancelled, and its channel is not closed politely. The next consumer would be elected
  first, and the messages returned after that, behind later ones (3.10.8, 4.0.5 and 4.3.6, tried). It is abandoned: its channel
  ends by an error, and the messages are returned first.
- A consumer that holds messages while another one with a higher priority waits is not abandoned either. It would stay in the
  queue for ever, and stop the queue when it is elected again (4.3.6, tried; not 4.0.5). It finishes what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.consuming.queue_line import POLL, TAKING, QueueLine
from rabbit_chx.consuming.seat_commands import (
    Abandon,
    Ack,
    AwaitTime,
    Claim,
    CloseLine,
    GiveUp,
    Interrupt,
    Probe,
    Reject,
    RunHook,
    Start,
    Subscribe,
)

if TYPE_CHECKING:
    from rabbit_chx.consuming.handling import Handling
    from rabbit_chx.consuming.seat_commands import DeliveredMessage, SeatCommand

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
        self.lines: list[QueueLine] = []  # oldest first; two while the priority changes
        self.held = False  # between the hooks on_gained and on_lost
        self.stopping = False
        self.delivered_count = 0
        self._handling = handling
        self._journal = journal
        self._numbers = 0
        self._budget = 0  # how many messages are still started while the group stops
        self._wanted: int | None = None
        self._hook_runs = False
        self._owes_lost = False
        self._last_generation: int | None = None
        self._orphans: set[tuple[int, int]] = set()  # handlers that still run although their line is lost

    # -- what the group wants

    def want(self, priority: int) -> list[SeatCommand]:
        """Consume with this priority.

        Args:
            priority: the ``x-priority``.
        """
        self._wanted = priority
        if self.stopping or len(self.lines) > 1 or (self.lines and self.lines[-1].priority == priority):
            return []
        if self.lines and self.lines[0].state == "opening":
            return []  # when the broker knows it: two that open at a time may be known in either order
        self._numbers += 1
        self.lines.append(QueueLine(self._numbers, priority))
        return [Subscribe(self._numbers, priority)]

    def renew(self) -> list[SeatCommand]:
        """Consume again over another line, with the same priority, and abandon the old line, which gets nothing."""
        if self.stopping or len(self.lines) != 1 or self.lines[0].state != "open":
            return []
        self.lines[0].state = "retiring"
        return self._advance()

    def stop(self, *, drain: bool = False) -> list[SeatCommand]:
        """Finish what is in hand and leave the queue; the rest goes back to its place.

        Args:
            drain: whether another member is to have the queue already: then all that was delivered is finished.
        """
        self.stopping = True
        self._budget = self._handling.prefetch
        if drain and len(self.lines) == 1 and self.lines[0].state == "open":
            self.lines[0].state = "draining"
            return [Probe(self.lines[0].number), *self._advance()]
        for line in self.lines:
            if line.state == "open":
                line.state = "retiring" if line is self.lines[-1] else "draining"
        return self._advance()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of this seat is left at the broker or in a handler."""
        return not (self.lines or self._orphans or self._hook_runs or self._owes_lost)

    @property
    def is_idle(self) -> bool:
        """Whether it is subscribed and has nothing to do."""
        return len(self.lines) == 1 and self.lines[0].state == "open" and not (
            self.lines[0].pending or self.lines[0].working or self.lines[0].begin
        )  # fmt: skip

    @property
    def in_hand(self) -> list[tuple[int, DeliveredMessage]]:
        """The messages for which a handler runs, each with its line."""
        return [
            (line.number, work.delivery)
            for line in self.lines
            for work in line.working.values()
            if work.running
        ]

    # -- what the broker says

    def subscribed(self, number: int) -> list[SeatCommand]:
        """Note that the broker knows the consumer of a line.

        Args:
            number: the line.
        """
        line = self._line(number)
        if line is None:
            return []
        line.state = "open"
        if self.stopping:
            line.state = "retiring" if line is self.lines[-1] else "draining"
        commands: list[SeatCommand] = []
        for older in self.lines:
            if older is not line and older.state in ("open", "draining"):
                older.state = "draining"
                commands.append(Probe(older.number))
        if self._wanted is not None:
            commands += self.want(self._wanted)
        return commands + self._advance()

    def probed(self, number: int) -> list[SeatCommand]:
        """Note that all is here that was delivered over a line before it was probed.

        Args:
            number: the line.
        """
        line = self._line(number)
        if line is None:
            return []
        line.probed = True
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
        """Note that a line is gone, with all that it held.

        Args:
            number: the line.
        """
        line = self._line(number)
        if line is None:
            return []
        self.lines.remove(line)
        commands: list[SeatCommand] = []
        for work in line.working.values():
            if work.running:
                self._orphans.add((number, work.delivery.tag))
                commands.append(Interrupt(number, work.delivery.tag))
        if line.state != "ended" and self.held and not self.lines:
            self._owes_lost = True
        if self._wanted is not None and (self.lines or line.state == "ended"):
            commands += self.want(self._wanted)
        return commands + self._advance()

    # -- what the journal says

    def claimed(self, number: int, generation: int | None) -> list[SeatCommand]:
        """Note that the claim of a line is in the journal.

        Args:
            number: the line.
            generation: its place in the journal.
        """
        line = self._line(number)
        if line is None:
            return []
        line.claim, line.generation = "had", generation
        self._last_generation = generation
        return self._advance()

    def superseded(self) -> list[SeatCommand]:
        """Note that another member has claimed the queue since our last claim."""
        for line in self.lines:
            if line.claim == "had":
                line.claim, line.generation = "none", None
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
            claims: list[SeatCommand] = [Claim(line.number)] if line.claim == "none" else []
            line.claim = "asked"
            return [*claims, AwaitTime(line.number, str(lane), _CLAIM_S)]
        work.attempt += 1
        work.running = True
        return [Start(line.number, work.delivery, work.attempt, line.generation)]

    # -- what is next

    def _line(self, number: int) -> QueueLine | None:
        return next((line for line in self.lines if line.number == number), None)

    def _advance(self) -> list[SeatCommand]:
        """Return what can be done now."""
        if not self.lines:
            return self._settle_debts()
        line = self.lines[0]
        if line.state == "draining" and self.stopping and self._is_drained(line):
            line.state = "retiring"
        if line.state == "draining" and line.probed and line.holds_nothing and len(self.lines) > 1:
            return self._end(line)  # the broker elects the next one when this one holds nothing
        if line.state == "retiring":
            return self._let_go(line)
        if line.state in ("opening", "ended"):
            return self._settle_debts()
        return self._settle_debts() or ([] if self._is_busy else self._begin_work(line))

    @property
    def _is_busy(self) -> bool:
        """Whether a hook, or a handler whose line is lost, must end before anything is started."""
        return bool(self._hook_runs or self._orphans or self._owes_lost)

    def _settle_debts(self) -> list[SeatCommand]:
        """Return the hook that is due because the queue was lost, when no handler runs any more."""
        if (
            self._hook_runs
            or self._orphans
            or not self._owes_lost
            or any(line.working for line in self.lines)
        ):
            return []
        self._owes_lost = self.held = False
        self._hook_runs = True
        return [RunHook("lost", self._last_generation)]

    def _is_drained(self, line: QueueLine) -> bool:
        """Whether a line that drains while the group stops may be left."""
        if line.failed or (line.probed and line.holds_nothing):
            return True
        return len(self.lines) == 1 and self._budget <= 0 and not line.working

    def _let_go(self, line: QueueLine) -> list[SeatCommand]:
        """Abandon a line when nothing of it is in hand."""
        for lane, work in list(line.working.items()):
            if not work.running:  # it waits for its next attempt, and the next member makes that
                del line.working[lane]
        if line.working or line.fetching or line.claim == "asked" or self._hook_runs or self._orphans:
            return []
        if self.stopping and self.held:
            self._owes_lost = True
            return self._settle_debts()
        line.state = "ended"
        return [Abandon(line.number)]

    def _end(self, line: QueueLine) -> list[SeatCommand]:
        line.state = "ended"
        return [CloseLine(line.number)]

    def _begin_work(self, line: QueueLine) -> list[SeatCommand]:
        if line.failed or not (line.pending or line.begin):
            return []
        if self._journal and line.claim != "had":
            if line.claim == "asked" or line.working:
                return []
            line.claim = "asked"
            return [Claim(line.number)]
        if not self.held:
            self.held = self._hook_runs = True
            return [RunHook("gained", line.generation)]
        if line.begin is not None:
            return line.read_park()
        most = self._budget if self.stopping and len(self.lines) == 1 else self._handling.lanes
        commands = line.start_pending(self._handling, most)
        self._budget -= sum(isinstance(command, Start) for command in commands)
        return commands

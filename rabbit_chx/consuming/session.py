"""One connection of a group: it consumes the queues, keeps the journal, and ends when the group stops or the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rabbit_chx.consuming.journal import (
    EntryKind,
    JournalEntry,
    Ownership,
    Roster,
    SilenceClock,
    priority_without_journal,
)
from rabbit_chx.consuming.member import GroupMember
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.consuming.seat_runner import SeatRunner
from rabbit_chx.consuming.waits import came, first_of
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    HandlerError,
    InputError,
    RabbitChxError,
)

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import GroupChannels, LineChannel

_log = logging.getLogger(__name__)

_CLOCK_DIFFERENCE_S = 30.0
#: A member says its queues with each 20th sign of life.
_READY_EACH = 20
#: How many signs of life tell that another process of the same name lives.
_SIGNS_OF_LIFE = 2
#: When an owner shows itself, so that whoever has its queue lets go. By then, those that wait have stepped back.
_OWNER_S = 1.0
#: How long handlers and hooks that were cancelled may take to end.
CANCELLED_S = 5.0
_FAREWELL_S = 5.0
_ABANDON_S = 1.0
#: After more renewals of a consumer in vain, the log says what else it may be.
_RENEWALS = 2
_DEAD_CONSUMER = (
    "consuming it anew did not help. The broker may deliver to a consumer that is dead, as RabbitMQ 4.3.6 may after a member was "
    "killed: restart the node that leads the queue (docs/consuming.md, 'What RabbitMQ does to order')"
)


class GroupSession:
    """What the queues of a member share while one connection lasts."""

    def __init__(
        self,
        channels: GroupChannels,
        member: GroupMember,
        handle: Callable[[GroupMessage], Awaitable[None]],
        former: Collection[str] = (),
    ) -> None:
        self.channels = channels
        self.member = member
        self.handle = handle
        self.roster = Roster()
        self.token = secrets.token_hex(8)
        self._runners: dict[str, SeatRunner] = {}
        self._former = former
        self._ownership = Ownership(self.token)
        self._watch = QueueWatch()
        self._clock = SilenceClock((member.pace.alive_s + member.pace.gone_s) / 2)
        self._is_known = asyncio.Event()  # our first sign of life was read
        self._is_settled = False
        self._consumed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: RabbitChxError | None = None
        self._ended = asyncio.Event()
        self._lost = asyncio.Event()
        self._is_ready = False
        self._leaving = False
        self._is_over = False
        self._was_ready = False
        self._earlier: dict[str, int] = {}  # signs of life of processes that had this name before, by token
        self._logged_members: list[str] = []  # the members that the log told last
        self._has_heir = False  # whether a later process has this name

    # -- for the runners of the queues

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something until the session ends; its error ends the session."""
        if self._is_over:
            return
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fail(self, error: RabbitChxError) -> None:
        """End the session with an error; the first error counts."""
        if self._error is None and not self._leaving:
            self._error = error
        if not isinstance(error, HandlerError | InputError):
            self._lost.set()
        self._ended.set()

    def priority(self, queue: str) -> int:
        """Return the ``x-priority`` of a consumer that comes now.

        With a journal all have the same. The broker then elects whoever came first (3.10.8, 4.0.5 and 4.3.6, tried), and nobody
        outranks a consumer that is active: RabbitMQ 4.3.6 keeps one that is outranked and dies while it holds messages.
        """
        if self.member.journal is not None:
            return 0
        return priority_without_journal(self.member.name, queue, self.member.weight, settled=self._is_settled)

    def line_lost(self, queue: str, refusal: RabbitChxError | None) -> None:
        """Note that the channel of a queue was closed by the broker, or with the connection."""
        closed = f"{self.channels.where}: the channel that consumes {queue!r} was closed"
        self.fail(refusal or ConnectionLostError(closed, queue=queue))

    def consumes(self, queue: str) -> None:
        """Note that the broker knows the consumer of a queue."""
        self._consumed.add(queue)

    def released(self, queue: str) -> None:
        """Write into the journal that this member has finished with a queue."""
        self._write("released", queue=queue)

    async def claim(self, queue: str, token: str) -> None:
        """Write a claim of a queue into the journal. It lasts for as long as the broker blocks publishers.

        If nothing is blocked and it is not written after `GroupPace.journal_s`, the error is BrokerTimeoutError.
        """
        journal_s = self.member.pace.journal_s
        entry = JournalEntry("claim", self.member.name, time.time(), queue=queue, token=token)
        writing = asyncio.ensure_future(self._append(entry))
        if not await came(writing, journal_s, self.channels.is_blocked):
            raise BrokerTimeoutError(
                f"the claim of {queue!r} is not in the stream {self.member.journal!r} after {journal_s:g} s: look at that "
                "stream, and whether a majority of its nodes is up",
                queue=queue,
            )
        await writing

    # -- its life

    @property
    def is_up(self) -> bool:
        """Whether it has consumed every queue."""
        return len(self._consumed) == len(self._runners)

    @property
    def is_lost(self) -> bool:
        """Whether the connection is lost, or of no use any more."""
        return self._lost.is_set()

    def take(self, runners: Iterable[SeatRunner]) -> None:
        """Take the queues over."""
        self._runners = {runner.seat.queue: runner for runner in runners}
        for runner in self._runners.values():
            runner.session = self
            runner.seat.stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until the group is to stop, the connection is lost, the broker refuses something, or a handler failed for good."""
        try:
            if self.member.journal is not None:
                await self._read_up_to_now(self.member.journal, stop)
            for runner in self._runners.values():
                runner.give(runner.seat.consume())
            self.spawn(self._settle)
            self.spawn(self._look_again)
            await first_of(stop, self._ended)
        except RabbitChxError as error:
            self.fail(error)
        if self._error is not None:
            raise self._error

    async def _read_up_to_now(self, journal: str, stop: asyncio.Event) -> None:
        """Read the journal up to a first sign of life, so that the consumers come behind those that are there."""
        pace = self.member.pace
        since_s = time.time() - _READY_EACH * pace.alive_s - pace.gone_s - _CLOCK_DIFFERENCE_S
        stream = await self.channels.read_journal(journal, since_s, self.read)
        stream.when_closed(partial(self.line_lost, journal))
        self._write("alive")
        known = asyncio.ensure_future(first_of(stop, self._ended, self._is_known))
        if not await came(known, pace.journal_s, self.channels.is_blocked):
            raise BrokerTimeoutError(
                f"what was written into the stream {journal!r} cannot be read there after {pace.journal_s:g} s: look at that stream, "
                "and whether a majority of its nodes is up",
                queue=journal,
            )
        if self._error is not None:
            raise self._error

    async def leave(self) -> None:
        """Finish what is in hand, and give the rest back in order. Where the connection is lost, there is nothing to give back."""
        self._leaving = True
        await self._say("ready")  # with no queues: so the broker elects those that are to have them
        for runner in self._runners.values():
            runner.give(runner.seat.stop())
        if not await emptied(self._runners.values(), self.member.pace.stop_s, self._lost):
            for runner in self._runners.values():
                runner.interrupt_all()
            await emptied(self._runners.values(), CANCELLED_S, self._lost)
        await self._say("left")

    def lose(self) -> list[LineChannel]:
        """Note that the connection is gone: end what it does, cancel the handlers, and return the channels that are to be closed."""
        self._leaving = self._is_over = True
        self._lost.set()
        for task in list(self._tasks):
            task.cancel()
        return [line for runner in self._runners.values() for line in runner.lose_lines()]

    async def close(self, lines: Iterable[LineChannel]) -> None:
        """Close the connection, if it is still there. What it holds goes back first, in order."""
        with contextlib.suppress(TimeoutError, RabbitChxError):
            async with asyncio.timeout(_ABANDON_S):
                await asyncio.gather(*(line.abandon() for line in lines))
        await self.channels.close()

    async def _say(self, kind: EntryKind) -> None:
        """Write that this member leaves, or has left, unless the connection is lost or the name is another process's."""
        if self._is_ready and isinstance(self._error, HandlerError | None) and not self.is_lost:
            with contextlib.suppress(RabbitChxError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._publish(kind)

    # -- the journal

    def read(self, offset: int, entry: JournalEntry) -> None:
        """Take an entry of the journal. It comes over the connection that consumes: by that a claim is known to count."""
        if self._is_over:
            return  # the connection was given up, and the queues have another one
        is_own = entry.token == self.token and entry.kind != "claim"
        now = self._clock.ticked(time.monotonic()) if is_own else self._clock.read(time.monotonic())
        changed = self.roster.take(offset, entry, now)
        if entry.kind == "claim" and (runner := self._runners.get(entry.queue)):
            runner.claim_read(entry.token, offset)
        if entry.member == self.member.name and entry.kind != "claim":
            self._read_own(entry)
        if entry.kind in ("ready", "alive"):
            self._ownership.heard(entry.token, offset)
        if self._leaving:
            return
        if changed:
            self._say_members()
            self._step_back(self._ownership.share_out(self.roster))
            if self._ownership.is_new_owner(self.roster.term):
                asyncio.get_running_loop().call_later(min(_OWNER_S, self.member.pace.alive_s), self._show)
        self._let_go()

    def _say_members(self) -> None:
        members = sorted(self.roster.members)
        if members != self._logged_members:
            self._logged_members = members
            _log.info(
                "group member %s: the members are %s", self.member.name, ", ".join(members) or "not known"
            )

    def _show(self) -> None:
        if not self._leaving:
            self._write("alive")

    def _step_back(self, queues: Iterable[str]) -> None:
        """Come behind the members that are to have these queues now, where this member waits."""
        for queue in queues:
            runner = self._runners.get(queue)
            if runner is not None and not runner.seat.held:
                runner.give(runner.seat.step_back())

    def _let_go(self) -> None:
        """Let go of the queues that this member has and that their owners wait for."""
        for queue, runner in self._runners.items():
            seat = runner.seat
            if seat.held and self._ownership.is_overdue(queue, seat.generation):
                if not seat.is_leaving:
                    owner = self._ownership.owners[queue].member
                    _log.info(
                        "group member %s steps back from %s for %s, generation %s",
                        self.member.name,
                        queue,
                        owner,
                        seat.generation,
                    )
                runner.give(seat.step_back())

    def _read_own(self, entry: JournalEntry) -> None:
        """Take an entry about this member, or about another process of its name."""
        if entry.token != self.token:
            self._read_twin(entry)
        elif entry.kind == "ready":
            self._is_ready = self._was_ready = True
        elif entry.kind == "alive":
            self._is_known.set()
        if self._is_ready and not self._leaving and self.member.name not in self.roster.members:
            self._is_ready = False  # the others have missed this member, or a process of its name has left
            self._write("ready")

    def _read_twin(self, entry: JournalEntry) -> None:
        """Take an entry of another process of this name. Whoever was ready first stays, and the later process ends.

        A process that was there before is most often an earlier run, which has ended and says nothing more, or just one thing more.
        """
        if entry.kind not in ("ready", "alive") or entry.token in self._former:
            return
        if not self._was_ready:
            self._earlier[entry.token] = 0
        elif entry.token not in self._earlier:
            self._has_heir = True
        else:
            self._earlier[entry.token] += 1
            if self._earlier[entry.token] >= _SIGNS_OF_LIFE:
                says = (
                    f"another process is the member {self.member.name!r} of this group: give each process a name of its own "
                    "that stays the same after a restart, such as the name of its pod, and start this one again"
                )
                self.fail(InputError(says))

    def _write(self, kind: EntryKind, queue: str = "") -> None:
        self.spawn(partial(self._publish, kind, queue))

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except RabbitChxError as error:
            self.fail(error)
        except asyncio.CancelledError:
            self._lost.set()  # if this session did not do it, the loop ends
            raise

    async def _publish(self, kind: EntryKind, queue: str = "") -> None:
        """Write an entry about this member."""
        queues = tuple(self._runners) if kind == "ready" and not self._leaving else ()
        weight = self.member.weight if kind == "ready" else 1.0
        await self._append(
            JournalEntry(kind, self.member.name, time.time(), weight, queues, queue, self.token)
        )

    async def _append(self, entry: JournalEntry) -> None:
        if self.member.journal is not None:
            await self.channels.publish(self.member.journal, entry.to_json())

    # -- what happens by the clock

    async def _settle(self) -> None:
        """Take a share of the queues after some seconds of health, and then say again and again that this member is alive."""
        if self.roster.members or self.member.journal is None:  # else there is nobody to take a queue from
            await asyncio.sleep(self.member.pace.settle_s)
        self._is_settled = True
        if self.member.journal is None:
            for runner in self._runners.values():
                runner.give(runner.seat.step_back())  # to the priority of a member that is settled
            return
        await self._publish("ready")
        for count in itertools.count(1):
            await asyncio.sleep(self.member.pace.alive_s)
            if self._is_ready and not (self._leaving and self._has_heir):
                # One at a time, however long it takes.
                await self._publish("alive" if count % _READY_EACH else "ready")
            self._miss_the_silent()

    def _miss_the_silent(self) -> None:
        """Write which members are gone. While this member cannot write or has not read, it misses nobody."""
        read_at = self.roster.seen.get(self.member.name)
        if read_at is None:
            return
        for member in self.roster.silent(read_at, self.member.pace.gone_s):
            _log.warning(
                "group member %s is gone: nothing was heard of it for %g s", member, self.member.pace.gone_s
            )
            self.roster.seen.pop(member, None)  # so that it is said once
            gone = JournalEntry("gone", member, time.time(), token=self.roster.members[member].token)
            self.spawn(partial(self._append, gone))

    async def _look_again(self) -> None:
        """Consume a queue anew that has messages and delivers none."""
        while True:
            await asyncio.sleep(self.member.pace.watch_s)
            for queue, runner in self._runners.items():
                if not self._should_deliver(queue, runner):
                    self._watch.forget(queue)
                    continue
                waiting = await self.channels.ready_count(queue)
                says = self._watch.look(queue, waiting, runner.seat.delivered_count)
                if says is not None and self._should_deliver(queue, runner):
                    _log.warning("%s", says)
                    runner.give(runner.seat.step_back())

    def _should_deliver(self, queue: str, runner: SeatRunner) -> bool:
        """Return whether a queue that has messages would deliver them to this member, as far as it knows."""
        if not runner.seat.is_idle:
            return False
        claim = self.roster.claims.get(queue)
        is_with_another = claim is not None and claim.held and claim.member != self.member.name
        return runner.seat.held or (self._ownership.is_mine(queue) and not is_with_another)


async def emptied(runners: Iterable[SeatRunner], seconds: float, lost: asyncio.Event | None = None) -> bool:
    """Wait until nothing of any queue is in hand; return whether that is so in time."""
    lost = lost or asyncio.Event()
    end = time.monotonic() + seconds
    for runner in runners:
        while not runner.seat.is_empty:
            runner.changed.clear()
            if lost.is_set() or not await first_of(runner.changed, lost, timeout_s=end - time.monotonic()):
                return False
    return True


@dataclass(slots=True)
class _Standstill:
    delivered: int
    looks: int = 0
    renewals: int = 0


class QueueWatch:
    """What one member saw when it looked at its queues (rabbitmq-server#14141)."""

    def __init__(self) -> None:
        self._standstills: dict[str, _Standstill] = {}

    def forget(self, queue: str) -> None:
        """Note that a queue has something to do, or nothing waits in it."""
        self._standstills.pop(queue, None)

    def look(self, queue: str, waiting: int, delivered: int) -> str | None:
        """Note what waits in a queue that has nothing to do. Return what to say if it is to be consumed anew, else None.

        Each renewal in vain doubles the number of looks until the next.
        """
        if not waiting:
            self.forget(queue)
            return None
        standstill = self._standstills.setdefault(queue, _Standstill(delivered))
        if standstill.delivered != delivered:
            self._standstills[queue] = _Standstill(delivered)
            return None
        standstill.looks += 1
        if standstill.looks <= 1 << standstill.renewals:
            return None
        standstill.looks = 0
        standstill.renewals += 1
        says = _DEAD_CONSUMER if standstill.renewals > _RENEWALS else "consuming it anew"
        return f"{queue}: {waiting:,} messages wait and none is delivered: {says}"

"""One connection of a group: it consumes the queues, keeps the journal, and ends when the group stops or the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from rabbit_chx.consuming.journal_entry import JournalEntry
from rabbit_chx.consuming.ownership import Ownership
from rabbit_chx.consuming.queue_watch import QueueWatch
from rabbit_chx.consuming.rendezvous import place, priority_without_journal
from rabbit_chx.consuming.roster import Roster
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    HandlerError,
    InputError,
    RabbitChxError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import Any

    from rabbit_chx.consuming.group_channels import GroupChannels, LineChannel
    from rabbit_chx.consuming.group_member import GroupMember
    from rabbit_chx.consuming.group_message import GroupMessage
    from rabbit_chx.consuming.journal_entry import EntryKind
    from rabbit_chx.consuming.seat_runner import SeatRunner

__all__ = ["GroupSession"]

_log = logging.getLogger(__name__)

_CLOCK_DIFFERENCE_S = 30.0
#: A member says its queues with each 20th sign of life.
_READY_EACH = 20
#: So many signs of life tell that another process of the same name lives.
_SIGNS_OF_LIFE = 2
_CANCELLED_S = 5.0


class GroupSession:
    """What the queues of a member share while one connection lasts.

    Args:
        channels: the connection.
        member: the member.
        handle: the user's handler.
    """

    def __init__(
        self,
        channels: GroupChannels,
        member: GroupMember,
        handle: Callable[[GroupMessage], Awaitable[None]],
    ) -> None:
        self.channels = channels
        self.member = member
        self.handle = handle
        self.roster = Roster()
        self.handled_count = 0
        self.notes = 0
        self._runners: dict[str, SeatRunner] = {}
        self._token = secrets.token_hex(8)
        self._ownership = Ownership(self._token)
        self._watch = QueueWatch()
        self._offset = -1  # of the last entry that was read
        self._is_known = asyncio.Event()  # our first sign of life was read
        self._is_settled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: RabbitChxError | None = None
        self._ended = asyncio.Event()
        self._journal: LineChannel | None = None
        self._is_ready = False
        self._leaving = False
        self._was_ready = False
        self._earlier: dict[str, int] = {}  # signs of life of processes that had this name before, by token
        self._has_heir = False  # whether a later process has this name

    # -- for the runners of the queues

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until the session ends.

        Args:
            work: the coroutine.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fail(self, error: RabbitChxError) -> None:
        """End the session with an error; the first one counts.

        Args:
            error: the error.
        """
        if self._error is None and not self._leaving:
            self._error = error
        self._ended.set()

    def place(self, queue: str) -> int:
        """Return the ``x-priority`` of a consumer that comes now.

        Args:
            queue: the queue.
        """
        name, weight = self.member.name, self.member.weight
        if self.member.journal is None:
            return priority_without_journal(name, queue, weight, settled=self._is_settled)
        return place(self._offset, name, queue, weight)

    def line_lost(self, queue: str, refusal: RabbitChxError | None) -> None:
        """Note that the channel of a queue was closed by the broker, or with the connection.

        Args:
            queue: the queue.
            refusal: the broker's refusal, where the user lacks a permission.
        """
        closed = f"{self.channels.where}: the channel that consumes {queue!r} was closed"
        self.fail(refusal or ConnectionLostError(closed, queue=queue))

    def released(self, queue: str) -> None:
        """Write into the journal that this member has finished with a queue.

        Args:
            queue: the queue.
        """
        self._write("released", queue=queue)

    # -- its life

    async def run(self, runners: Iterable[SeatRunner], stop: asyncio.Event) -> None:
        """Consume until the group is to stop; then leave every queue in order.

        Args:
            runners: the queues.
            stop: set when the group is to stop.

        Raises:
            RabbitChxError: the connection is lost, the broker refuses something, or a handler failed for good.
        """
        self._runners = {runner.seat.queue: runner for runner in runners}
        try:
            await self._begin()
            await self._until(stop)
        except RabbitChxError as error:
            self.fail(error)
        finally:
            await self._leave()
        if self._error is not None:
            raise self._error

    async def _begin(self) -> None:
        if self.member.journal is not None:
            await self._read_up_to_now(self.member.journal)
        for runner in self._runners.values():
            await runner.do(runner.seat.consume())
        self.spawn(self._settle())
        self.spawn(self._look_again())

    async def _read_up_to_now(self, journal: str) -> None:
        """Read the journal up to a first sign of life, so that the consumers come behind those that are there."""
        pace = self.member.pace
        since_s = time.time() - _READY_EACH * pace.alive_s - pace.gone_s - _CLOCK_DIFFERENCE_S
        self._journal = await self.channels.read_journal(journal, since_s, self._read)
        self._journal.when_closed(partial(self.line_lost, journal))
        self._write("alive")
        try:
            async with asyncio.timeout(pace.journal_s):
                await self._until(self._is_known)
        except TimeoutError:
            raise BrokerTimeoutError(
                f"what was written into the stream {journal!r} cannot be read there after {pace.journal_s:g} s: look at that stream, "
                "and whether a majority of its nodes is up",
                queue=journal,
            ) from None
        if self._error is not None:
            raise self._error

    async def _until(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _leave(self) -> None:
        """Finish what is in hand, give the rest back in order, and close the connection."""
        self._leaving = True
        try:
            await self._say("ready")  # with no queues: so the broker elects those that are to have them
            for runner in self._runners.values():
                await runner.do(runner.seat.stop())
            if not await self._emptied(self.member.pace.stop_s):
                for runner in self._runners.values():
                    runner.interrupt_all()
                await self._emptied(_CANCELLED_S)
            await self._say("left")
        finally:
            for runner in self._runners.values():
                runner.lose_lines()
            for task in list(self._tasks):
                task.cancel()
            await self.channels.close()

    async def _say(self, kind: EntryKind) -> None:
        """Write that this member leaves, or has left, unless the connection is lost or the name is another process's."""
        if self._is_ready and isinstance(self._error, HandlerError | None):
            with contextlib.suppress(RabbitChxError):
                await self._publish(kind)

    async def _emptied(self, seconds: float) -> bool:
        """Wait until nothing of any queue is left; return whether it is so in time."""
        try:
            async with asyncio.timeout(seconds):
                for runner in self._runners.values():
                    while not runner.seat.is_empty:
                        runner.changed.clear()
                        await runner.changed.wait()
        except TimeoutError:
            return False
        return True

    # -- the journal

    def _read(self, offset: int, entry: JournalEntry) -> None:
        self._offset = offset
        changed = self.roster.take(offset, entry, time.monotonic())
        if entry.kind == "claim" and (runner := self._runners.get(entry.queue)):
            runner.claim_read(entry.token, offset)
        if entry.member == self.member.name and entry.kind != "claim":
            self._read_own(entry)
        if entry.kind in ("ready", "alive"):
            self._ownership.heard(entry.token, offset)
        if self._leaving:
            return
        if changed:
            self._step_back(self._ownership.share_out(self.roster))
        self._let_go()

    def _step_back(self, queues: Iterable[str]) -> None:
        """Come behind the members that are to have these queues now, where this member waits."""
        for queue in queues:
            runner = self._runners.get(queue)
            if runner is not None and not runner.seat.held:
                runner.give(runner.seat.step_back())

    def _let_go(self) -> None:
        """Let go of the queues that this member has and that their owners wait for."""
        for queue, runner in self._runners.items():
            if runner.seat.held and self._ownership.is_overdue(queue, runner.seat.generation):
                runner.give(runner.seat.step_back())

    def _read_own(self, entry: JournalEntry) -> None:
        """Take an entry about this member, or about another process of its name."""
        if entry.token != self._token:
            self._read_twin(entry)
        elif entry.kind == "ready":
            self._is_ready = self._was_ready = True
        elif entry.kind == "alive":
            self._is_known.set()
        if self._is_ready and not self._leaving and self.member.name not in self.roster.members:
            self._is_ready = False  # the others have missed this member, or a process of its name has left
            self._write("ready")

    def _read_twin(self, entry: JournalEntry) -> None:
        """Take an entry of another process of this name. Whoever was ready first stays, and the later one ends.

        One that was there before is most often an earlier run, which has ended and says nothing more, or just one thing more.
        """
        if entry.kind not in ("ready", "alive"):
            return
        if not self._was_ready:
            self._earlier[entry.token] = 0
        elif entry.token not in self._earlier:
            self._has_heir = True
        else:
            self._earlier[entry.token] += 1
            if self._earlier[entry.token] >= _SIGNS_OF_LIFE:
                self.fail(
                    InputError(
                        f"another process is the member {self.member.name!r} of this group: give each process a name of its own "
                        "that stays the same after a restart, such as the name of its pod, and start this one again"
                    )
                )

    def _write(self, kind: EntryKind, queue: str = "") -> None:
        self.spawn(self._guarded(self._publish(kind, queue)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RabbitChxError as error:
            self.fail(error)

    async def _publish(self, kind: EntryKind, queue: str = "") -> None:
        """Write an entry about this member."""
        queues = tuple(self._runners) if kind == "ready" and not self._leaving else ()
        weight = self.member.weight if kind == "ready" else 1.0
        await self._append(
            JournalEntry(kind, self.member.name, time.time(), weight, queues, queue, self._token)
        )

    async def _append(self, entry: JournalEntry) -> None:
        if self._journal is not None and self.member.journal is not None:
            await self._journal.publish(self.member.journal, entry.to_json())

    # -- what happens by the clock

    async def _settle(self) -> None:
        """Take a share of the queues after some seconds of health, and then say again and again that this member is alive."""
        await asyncio.sleep(self.member.pace.settle_s)
        self._is_settled = True
        if self.member.journal is None:
            for runner in self._runners.values():
                runner.give(runner.seat.step_back())  # to the priority of a member that is settled
            return
        self._write("ready")
        for count in itertools.count(1):
            await asyncio.sleep(self.member.pace.alive_s)
            if self._is_ready and not (self._leaving and self._has_heir):
                self._write("alive" if count % _READY_EACH else "ready")
            self._miss_the_silent()

    def _miss_the_silent(self) -> None:
        """Write which members are gone. What this member has not read yet counts for nobody's silence."""
        read_at = self.roster.seen.get(self.member.name)
        if read_at is None:
            return
        for member in self.roster.silent(read_at, self.member.pace.gone_s):
            _log.warning(
                "group member %s is gone: nothing was heard of it for %g s", member, self.member.pace.gone_s
            )
            self.roster.seen.pop(member, None)  # so that it is said once
            gone = JournalEntry("gone", member, time.time(), token=self.roster.members[member].token)
            self.spawn(self._guarded(self._append(gone)))

    async def _look_again(self) -> None:
        """Consume a queue anew that has messages and delivers none."""
        while True:
            await asyncio.sleep(self.member.pace.watch_s)
            for queue, runner in self._runners.items():
                if not self._should_deliver(queue, runner):
                    self._watch.forget(queue)
                    continue
                try:
                    waiting = await self.channels.ready_count(queue)
                except RabbitChxError as error:
                    self.fail(error)
                    return
                says = self._watch.look(queue, waiting, runner.seat.delivered_count)
                if says is not None and self._should_deliver(queue, runner):
                    _log.warning("%s", says)
                    self.notes += 1
                    runner.give(runner.seat.step_back())

    def _should_deliver(self, queue: str, runner: SeatRunner) -> bool:
        """Whether a queue that has messages would deliver them to this member, as far as it knows."""
        if not runner.seat.is_idle:
            return False
        claim = self.roster.claims.get(queue)
        others = claim is not None and claim.held and claim.member != self.member.name
        return runner.seat.held or (self._ownership.is_mine(queue) and not others)

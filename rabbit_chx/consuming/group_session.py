"""One connection of a group: it consumes the queues, keeps the journal, and ends when the group stops or the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from typing import TYPE_CHECKING

from rabbit_chx.consuming.journal_entry import JournalEntry
from rabbit_chx.consuming.rendezvous import queue_priority, unsettled_priority
from rabbit_chx.consuming.roster import Roster
from rabbit_chx.errors import ConnectionLostError, InputError, RabbitChxError

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

#: Before the priority of a member that is not settled yet, where no journal tells who is.
_UNSETTLED = -(1 << 21)
_CLOCK_DIFFERENCE_S = 30.0
#: After so many renewals of a consumer in vain, the log says what else it may be.
_RENEWALS = 2
_DEAD = (
    "consuming it anew did not help. The broker may deliver to a consumer that is dead, as RabbitMQ 4.3.6 may after a member was "
    "killed: restart the node that leads the queue (docs/consuming.md, 'What RabbitMQ does to order')"
)
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: RabbitChxError | None = None
        self._ended = asyncio.Event()
        self._journal: LineChannel | None = None
        self._is_ready = False
        self._leaving = False
        self._was_ready = False
        self._earlier: dict[str, int] = {}  # signs of life of processes that had this name before, by token
        self._has_heir = False  # whether a later process has this name
        self._mine: frozenset[str] = frozenset()  # the queues that this member is to have

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

    def line_lost(self, queue: str) -> None:
        """Note that the channel of a queue was closed by the broker, or with the connection.

        Args:
            queue: the queue.
        """
        self.fail(
            ConnectionLostError(
                f"{self.channels.where}: the channel that consumes {queue!r} was closed", queue=queue
            )
        )

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
            pace = self.member.pace
            since_s = time.time() - _READY_EACH * pace.alive_s - pace.gone_s - _CLOCK_DIFFERENCE_S
            self._journal = await self.channels.read_journal(self.member.journal, since_s, self._read)
            self._journal.when_closed(lambda: self.line_lost(str(self.member.journal)))
        for queue, runner in self._runners.items():
            await runner.do(runner.seat.want(self._first_priority(queue)))
        self.spawn(self._settle())
        self.spawn(self._watch())

    def _first_priority(self, queue: str) -> int:
        return (
            _UNSETTLED
            if self.member.journal is None
            else unsettled_priority(self.member.name, queue, self.member.weight)
        )

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
            for queue, runner in self._runners.items():
                await runner.do(runner.seat.stop(drain=self._is_ready and queue not in self._mine))
            if not await self._emptied(self.member.pace.stop_s):
                for runner in self._runners.values():
                    runner.interrupt_all()
                await self._emptied(_CANCELLED_S)
            await self._say_good_bye()
        finally:
            for runner in self._runners.values():
                runner.lose_lines()
            for task in list(self._tasks):
                task.cancel()
            await self.channels.close()

    async def _say_good_bye(self) -> None:
        """Let the others share the queues anew. Not before: a consumer that is outranked while it leaves would be kept."""
        name = self.member.journal
        if (
            self._is_ready
            and self._journal is not None
            and name is not None
            and isinstance(self._error, InputError | None)
        ):
            entry = JournalEntry("left", self.member.name, time.time(), token=self._token)
            with contextlib.suppress(RabbitChxError):
                await self._journal.publish(name, entry.to_json())

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
        changed = self.roster.take(offset, entry, time.monotonic())
        if entry.kind == "claim" and (runner := self._runners.get(entry.queue)):
            runner.claim_read(entry.token, offset)
        if entry.member == self.member.name and entry.kind != "claim":
            self._read_own(entry)
        if changed:
            self._share_out()

    def _read_own(self, entry: JournalEntry) -> None:
        """Take an entry about this member, or about another process of its name."""
        if entry.token != self._token:
            self._read_twin(entry)
        elif entry.kind == "ready":
            self._is_ready = self._was_ready = True
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

    def _share_out(self) -> None:
        """Take the priorities of the new term: first for the queues that are this member's, so that nobody else is elected."""
        mine = self.roster.members.get(self.member.name)
        if self._leaving or mine is None or mine.token != self._token:
            return  # an earlier run of this member may still be there
        owners = self.roster.owners()
        self._mine = frozenset(queue for queue, owner in owners.items() if owner == self.member.name)
        for queue in self._mine:
            self._want(queue, self.roster.term)
        asyncio.get_running_loop().call_later(self.member.pace.alive_s, self._stand_by, self.roster.term)

    def _stand_by(self, term: int) -> None:
        if term == self.roster.term and not self._leaving:
            for queue in self._runners.keys() - self._mine:
                self._want(queue, term)

    def _want(self, queue: str, term: int) -> None:
        if runner := self._runners.get(queue):
            owns = queue in self._mine
            priority = queue_priority(term, self.member.name, queue, self.member.weight, owns=owns)
            runner.give(runner.seat.want(priority))

    def _write(self, kind: EntryKind, queue: str = "") -> None:
        if self._journal is None or self.member.journal is None:
            return
        queues = tuple(self._runners) if kind == "ready" else ()
        weight = self.member.weight if kind == "ready" else 1.0
        entry = JournalEntry(kind, self.member.name, time.time(), weight, queues, queue, self._token)
        self.spawn(self._written(entry))

    async def _written(self, entry: JournalEntry) -> None:
        if self._journal is None or self.member.journal is None:
            return
        try:
            await self._journal.publish(self.member.journal, entry.to_json())
        except RabbitChxError as error:
            self.fail(error)

    # -- what happens by the clock

    async def _settle(self) -> None:
        """Take a share of the queues after some seconds of health, and then say again and again that this member is alive."""
        await asyncio.sleep(self.member.pace.settle_s)
        if self.member.journal is None:
            for queue, runner in self._runners.items():
                runner.give(runner.seat.want(unsettled_priority(self.member.name, queue, self.member.weight)))
            return
        self._write("ready")
        for count in itertools.count(1):
            await asyncio.sleep(self.member.pace.alive_s)
            if self._is_ready and not (self._leaving and self._has_heir):
                self._write("alive" if count % _READY_EACH else "ready")
            for member in self.roster.silent(time.monotonic(), self.member.pace.gone_s):
                if member != self.member.name:
                    _log.warning(
                        "group member %s is gone: nothing was heard of it for %g s",
                        member,
                        self.member.pace.gone_s,
                    )
                    gone = self.roster.members[member].token
                    entry = JournalEntry("gone", member, time.time(), token=gone)
                    self.roster.seen.pop(member, None)  # so that it is said once
                    self.spawn(self._written(entry))

    async def _watch(self) -> None:
        """Consume a queue anew that has messages and delivers none (rabbitmq-server#14141)."""
        waiting: dict[str, int] = {}  # what was delivered when messages were last seen to wait
        renewed: dict[str, int] = {}  # how often in vain
        while True:
            await asyncio.sleep(self.member.pace.watch_s)
            for queue, runner in self._runners.items():
                seat = runner.seat
                if not seat.is_idle or not (seat.held or queue in self._mine):
                    waiting.pop(queue, None)
                    continue
                try:
                    ready = await self.channels.ready_count(queue)
                except RabbitChxError as error:
                    self.fail(error)
                    return
                if not ready:
                    waiting.pop(queue, None)
                    renewed.pop(queue, None)
                elif waiting.get(queue) == seat.delivered_count and seat.is_idle:
                    renewed[queue] = renewed.get(queue, 0) + 1
                    says = _DEAD if renewed[queue] > _RENEWALS else "consuming it anew"
                    _log.warning("%s: %d messages wait and none is delivered: %s", queue, ready, says)
                    self.notes += 1
                    runner.give(seat.renew())
                else:
                    if waiting.get(queue, seat.delivered_count) != seat.delivered_count:
                        renewed.pop(queue, None)
                    waiting[queue] = seat.delivered_count

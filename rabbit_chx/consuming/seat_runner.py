"""Does what a seat asks for, on asyncio: channels, handlers, hooks and timers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from rabbit_chx.consuming.journal_entry import JournalEntry
from rabbit_chx.consuming.seat_commands import (
    Abandon,
    Ack,
    AwaitTime,
    Claim,
    FetchParked,
    GiveUp,
    Interrupt,
    Note,
    Reject,
    Reply,
    RunHook,
    Start,
    Subscribe,
)
from rabbit_chx.errors import BrokerTimeoutError, HandlerError, RabbitChxError
from rabbit_chx.topology.sequences.group_tag import tag_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from rabbit_chx.consuming.group_channels import GroupChannels, LineChannel
    from rabbit_chx.consuming.group_member import GroupMember
    from rabbit_chx.consuming.group_message import GroupMessage
    from rabbit_chx.consuming.seat import Seat
    from rabbit_chx.consuming.seat_commands import DeliveredMessage, SeatCommand

__all__ = ["RunnerSession", "SeatRunner"]

_log = logging.getLogger(__name__)


class RunnerSession(Protocol):
    """What a runner needs of the connection and of the group."""

    channels: GroupChannels
    member: GroupMember
    handle: Callable[[GroupMessage], Awaitable[None]]
    handled_count: int
    notes: int

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until the session ends."""

    def fail(self, error: RabbitChxError) -> None:
        """End the session with an error."""

    def place(self, queue: str) -> int:
        """Return the ``x-priority`` of a consumer that comes now."""

    def line_lost(self, queue: str, refusal: RabbitChxError | None) -> None:
        """Note that the channel of a queue was closed by the broker."""

    def released(self, queue: str) -> None:
        """Note that this member has finished with a queue."""


class SeatRunner:
    """One queue of a member, at work. It outlives a connection: `session` is set for each.

    Args:
        seat: what decides.
        session: the connection, and what all queues share.
    """

    def __init__(self, seat: Seat, session: RunnerSession) -> None:
        self.seat = seat
        self.session = session
        self.changed = asyncio.Event()
        self._lines: dict[int, LineChannel] = {}
        self._handlers: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._errors: dict[tuple[int, int], BaseException] = {}
        self._claims: dict[str, int] = {}  # the lines by the tokens of their claims
        self._outbox: deque[SeatCommand] = deque()
        self._draining = False

    def give(self, commands: list[SeatCommand]) -> None:
        """Do commands, from where nothing may be awaited.

        Args:
            commands: the commands.
        """
        if commands:
            self._outbox.extend(commands)
            if not self._draining:
                self._spawn(self._drain())
        self.changed.set()

    async def do(self, commands: list[SeatCommand]) -> None:
        """Do commands in their order, after those that were given before.

        Args:
            commands: the commands.
        """
        self._outbox.extend(commands)
        await self._drain()
        self.changed.set()

    def claim_read(self, token: str, generation: int) -> None:
        """Take a claim that was read in the journal.

        Args:
            token: its token; that of another member's claim means that it has the queue.
            generation: its place in the journal.
        """
        line = self._claims.pop(token, None)
        self.give(self.seat.superseded() if line is None else self.seat.claimed(line, generation))

    def interrupt_all(self) -> None:
        """Cancel the handlers that run."""
        for task in self._handlers.values():
            task.cancel()

    def lose_lines(self) -> None:
        """Note that the connection is gone."""
        self._lines.clear()
        self._claims.clear()
        if self.seat.line is not None:
            self.give(self.seat.closed(self.seat.line.number))

    async def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._outbox:
                await self._perform(self._outbox.popleft())
        finally:
            self._draining = False

    async def _perform(self, command: SeatCommand) -> None:  # noqa: C901, PLR0912  # one branch for each command
        match command:
            case Start():
                task = asyncio.create_task(self._handle(command))
                self._handlers[command.line, command.delivery.tag] = task
            case Ack(number, tag):
                if line := self._lines.get(number):
                    await line.ack(tag)
            case Reject(number, tag):
                if line := self._lines.get(number):
                    _log.warning("%s: a message is dead-lettered after its last attempt", self.seat.queue)
                    await line.reject(tag)
            case Subscribe():
                self._spawn(self._subscribe(command))
            case Abandon(number):
                self._spawn(self._abandon(number))
            case Claim(number):
                self._spawn(self._claim(number))
            case RunHook():
                self._spawn(self._run_hook(command))
            case Interrupt(number, tag):
                if running := self._handlers.get((number, tag)):
                    running.cancel()
            case AwaitTime(number, reason, seconds):
                asyncio.get_running_loop().call_later(seconds, self._time_passed, number, reason)
            case Reply():  # at once: the ack of the marker, and the end of the line, come behind it
                await self._guarded(self._reply(command))
            case FetchParked(number, park):
                self._spawn(self._fetch(number, park))
            case GiveUp(number, delivery):
                self._give_up(number, delivery)
            case Note(says):
                _log.warning("%s", says)
                self.session.notes += 1
            case _:
                assert_never(command)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.session.spawn(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RabbitChxError as error:
            self.session.fail(error)

    # -- handlers and hooks

    async def _handle(self, start: Start) -> None:
        where = start.line, start.delivery.tag
        message = start.delivery.content
        if start.generation is not None or start.attempt > 1:
            message = replace(message, generation=start.generation, attempt=start.attempt)
        failed = True
        try:
            await self.session.handle(message)
            failed = False
        except asyncio.CancelledError:
            self._errors[where] = asyncio.CancelledError("the handler was cancelled")
        except Exception as error:  # noqa: BLE001  # whatever a user's handler raises
            self._errors[where] = error
            _log.info("%s: the handler failed at attempt %d: %r", self.seat.queue, start.attempt, error)
        finally:
            if self._handlers.get(where) is asyncio.current_task():
                del self._handlers[where]
        commands = self.seat.handled(start.line, start.delivery.tag, failed=failed)
        if not failed:
            self._errors.pop(where, None)
            self.session.handled_count += 1
        await self.do(commands)

    def _give_up(self, number: int, delivery: DeliveredMessage) -> None:
        cause = self._errors.pop((number, delivery.tag), None)
        message = delivery.content
        error = HandlerError(
            f"queue {self.seat.queue!r}: the handler failed with the message {message.message_id!r} of the key "
            f"{message.routing_key!r} at each of {self.session.member.handling.retries + 1} attempts, the last time with {cause!r}; "
            "the message is in its place again: mend the handler, or choose on_failure='dead-letter'",
            queue=self.seat.queue,
        )
        error.__cause__ = cause
        self.session.fail(error)

    async def _run_hook(self, hook: RunHook) -> None:
        call = self.session.member.hooks.get(hook.which)
        try:
            if call is not None:
                async with asyncio.timeout(self.session.member.pace.hook_s):
                    await call(self.seat.queue)
        except Exception:  # noqa: BLE001  # whatever a user's hook raises
            _log.exception("%s: the hook on_%s failed; the group goes on", self.seat.queue, hook.which)
        if hook.which == "lost":
            self.session.released(self.seat.queue)
        await self.do(self.seat.hook_done())

    # -- the broker

    async def _subscribe(self, command: Subscribe) -> None:
        number = command.line

        async def take(delivery: DeliveredMessage) -> None:
            await self.do(self.seat.delivered(number, delivery))

        session = self.session
        line = await session.channels.consume(
            self.seat.queue,
            session.place(self.seat.queue),
            session.member.handling.prefetch,
            tag_of(session.member.name),
            take,
        )
        self._lines[number] = line
        line.when_closed(partial(self._closed, number, session))
        await self.do(self.seat.subscribed(number))

    def _closed(self, number: int, session: RunnerSession, refusal: RabbitChxError | None) -> None:
        if self._lines.pop(number, None) is not None and session is self.session:
            session.line_lost(self.seat.queue, refusal)

    async def _abandon(self, number: int) -> None:
        if line := self._lines.pop(number, None):
            await line.abandon()
        self._errors = {where: error for where, error in self._errors.items() if where[0] != number}
        await self.do(self.seat.closed(number))

    async def _claim(self, number: int) -> None:
        session = self.session
        if session.member.journal is None:
            await self.do(self.seat.claimed(number, None))
            return
        token = secrets.token_hex(8)
        self._claims[token] = number
        entry = JournalEntry("claim", session.member.name, time.time(), queue=self.seat.queue, token=token)
        if line := self._lines.get(number):
            # Over the channel of the consumer: once the broker has given up this channel, no claim comes from it any more.
            await line.publish(session.member.journal, entry.to_json())
        await asyncio.sleep(session.member.pace.journal_s)
        if token in self._claims and session is self.session:
            raise BrokerTimeoutError(
                f"the claim of {self.seat.queue!r} is not in the stream {session.member.journal!r} after {session.member.pace.journal_s:g} s: "
                "look at that stream, and whether a majority of its nodes is up",
                queue=self.seat.queue,
            )

    async def _reply(self, reply: Reply) -> None:
        if line := self._lines.get(reply.line):
            await line.publish(reply.queue, b"", reply.marker.headers())

    async def _fetch(self, number: int, park: str) -> None:
        if line := self._lines.get(number):
            await self.do(self.seat.fetched(number, await line.fetch(park)))

    def _time_passed(self, number: int, reason: str) -> None:
        self.give(self.seat.time_passed(number, reason))

"""Does what a seat asks for, on asyncio: channels, handlers, hooks and timers."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from rabbit_chx.consuming.member import GroupMember, Hook
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.consuming.seat import (
    Abandon,
    Ack,
    AwaitTime,
    Claim,
    DeliveredMessage,
    FetchParked,
    GiveUp,
    Interrupt,
    Note,
    Reject,
    Reply,
    RunHook,
    Seat,
    SeatCommand,
    Start,
    Subscribe,
)
from rabbit_chx.errors import ConnectionLostError, HandlerError, RabbitChxError
from rabbit_chx.topology.applying import tag_of

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import GroupChannels, LineChannel

_log = logging.getLogger(__name__)


class RunnerSession(Protocol):
    """What a runner needs of the connection and of the group."""

    channels: GroupChannels
    member: GroupMember
    handle: Callable[[GroupMessage], Awaitable[None]]

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something until the session ends."""

    def fail(self, error: RabbitChxError) -> None:
        """End the session with an error."""

    def priority(self, queue: str) -> int:
        """Return the ``x-priority`` of a consumer that comes now."""

    def line_lost(self, queue: str, refusal: RabbitChxError | None) -> None:
        """Note that the channel of a queue was closed by the broker."""

    def consumes(self, queue: str) -> None:
        """Note that the broker knows the consumer of a queue."""

    def released(self, queue: str) -> None:
        """Note that this member has finished with a queue."""

    async def claim(self, queue: str, token: str) -> None:
        """Write a claim into the journal, however long the broker blocks publishers."""


class SeatRunner:
    """One queue of a member, at work. It outlives a connection: `session` is set for each.

    What needs the connection is the session's to end. Handlers and hooks go on without it, until they are done.

    Args:
        seat: what decides.
        session: the connection.
        prefetch: how many messages may be delivered ahead.
    """

    def __init__(self, seat: Seat, session: RunnerSession, prefetch: int) -> None:
        self.seat = seat
        self.session = session
        self._prefetch = prefetch
        self.changed = asyncio.Event()
        self._lines: dict[int, LineChannel] = {}
        self._handlers: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._errors: dict[tuple[int, int], BaseException] = {}
        self._claims: dict[str, int | None] = {}  # the lines by the tokens of their claims; None: it was read
        self._outbox: deque[SeatCommand] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._hook: asyncio.Task[None] | None = None
        self._gives_up = False  # whether a hook is not to be called again

    def give(self, commands: list[SeatCommand]) -> None:
        """Do commands in their order, after those that were given before."""
        self._outbox.extend(commands)
        self._go_on()
        self.changed.set()

    def claim_read(self, token: str, generation: int) -> None:
        """Take a claim that was read in the journal."""
        if token not in self._claims:
            self.give(self.seat.superseded())
            return
        line, self._claims[token] = self._claims[token], None
        if line is not None:  # else it was written twice
            self.give(self.seat.claimed(line, generation))

    def interrupt_all(self) -> None:
        """Cancel the handlers that run."""
        for task in self._handlers.values():
            task.cancel()

    def interrupt_hook(self) -> None:
        """Cancel the hook that runs."""
        self._gives_up = True
        if self._hook is not None:
            self._hook.cancel()

    def lose_lines(self) -> list[LineChannel]:
        """Note that the connection is gone: cancel the handlers, drop what waits to be sent, and return the channels."""
        lines, waiting = list(self._lines.values()), list(self._outbox)
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        for dropped in (self._outbox, self._lines, self._claims, self._errors):
            dropped.clear()
        self.give(self.seat.lost())
        for command in waiting:
            if isinstance(command, Start):  # it waited behind an ack, so it never began
                self.give(self.seat.handled(command.line, command.delivery.tag, failed=True))
            elif isinstance(command, RunHook | Note):
                self.give([command])
        return lines

    # -- commands

    def _go_on(self) -> None:
        """Do what waits, up to a command that has to be sent and awaited."""
        while self._outbox and self._sending is None:
            command = self._outbox.popleft()
            if isinstance(command, Ack | Reject | Reply):
                self._sending = asyncio.get_running_loop().create_task(self._send(command))
                self._sending.add_done_callback(self._sent)
            else:
                self._perform(command)

    async def _send(self, command: Ack | Reject | Reply) -> None:
        session, line = self.session, self._lines.get(command.line)
        if line is None:
            return
        try:
            match command:
                case Ack(_, tag):
                    await line.ack(tag)
                case Reject(_, tag):
                    _log.warning("%s: a message is dead-lettered after its last attempt", self.seat.queue)
                    await line.reject(tag)
                case Reply(_, queue, marker):
                    await line.answer()  # the broker has taken all acks of the line then
                    await session.channels.publish(queue, b"", marker.headers())
        except RabbitChxError as error:
            session.fail(error)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if sending is self._sending:  # else the line was lost meanwhile
            self._sending = None
            self._go_on()

    def _perform(self, command: SeatCommand) -> None:  # noqa: C901, PLR0912  # one branch for each command
        match command:
            case Start():
                self._start(command)
            case Subscribe(number):
                self.session.spawn(partial(self._subscribe, number))
            case Abandon(number):
                self.session.spawn(partial(self._abandon, number))
            case Claim(number):
                self.session.spawn(partial(self._claim, number))
            case FetchParked(number, park):
                self.session.spawn(partial(self._fetch, number, park))
            case RunHook():
                self._start_hook(command)
            case Interrupt(number, tag):
                if running := self._handlers.get((number, tag)):
                    running.cancel()
            case AwaitTime(number, reason, seconds):
                asyncio.get_running_loop().call_later(
                    seconds, lambda: self.give(self.seat.time_passed(number, reason))
                )
            case GiveUp(number, delivery):
                self._give_up(number, delivery)
            case Note(says):
                _log.warning("%s", says)
            case Ack() | Reject() | Reply():
                raise AssertionError(command)  # `_go_on` sends them
            case _:
                assert_never(command)

    # -- handlers and hooks

    def _start(self, start: Start) -> None:
        message = start.delivery.content
        if start.generation is not None or start.attempt > 1:
            message = replace(message, generation=start.generation, attempt=start.attempt)
        task = asyncio.get_running_loop().create_task(_awaited(self.session.handle, message))
        self._handlers[start.line, start.delivery.tag] = task
        task.add_done_callback(partial(self._handled, start))

    def _handled(self, start: Start, task: asyncio.Task[None]) -> None:
        """Take the end of a handler, even if it was cancelled before it began."""
        where = start.line, start.delivery.tag
        if self._handlers.get(where) is task:
            del self._handlers[where]
        error = asyncio.CancelledError("the handler was cancelled") if task.cancelled() else task.exception()
        if error is None:
            self._errors.pop(where, None)
        else:
            self._errors[where] = error
            _log.info("%s: the handler failed at attempt %d: %r", self.seat.queue, start.attempt, error)
        self.give(self.seat.handled(*where, failed=error is not None))

    def _give_up(self, number: int, delivery: DeliveredMessage) -> None:
        cause = self._errors.pop((number, delivery.tag), None)
        message = delivery.content
        error = HandlerError(
            f"queue {self.seat.queue!r}: the handler raised {type(cause).__name__} for the message with the routing key "
            f"{message.routing_key!r} and the message_id {message.message_id!r} at the last of {self.session.member.retries + 1} attempts "
            f"({cause}). The message is returned to its place: correct the handler, or choose on_failure='dead-letter'",
            queue=self.seat.queue,
        )
        error.__cause__ = cause
        self.session.fail(error)

    def _start_hook(self, hook: RunHook) -> None:
        member = self.session.member
        call = member.on_gained if hook.which == "gained" else member.on_lost
        self._hook = asyncio.get_running_loop().create_task(self._run_hook(hook, call))
        self._hook.add_done_callback(partial(self._hook_done, hook))

    async def _run_hook(self, hook: RunHook, call: Hook | None) -> None:
        verb = "has" if hook.which == "gained" else "has let go of"
        _log.info(
            "group member %s %s %s, generation %s",
            self.session.member.name,
            verb,
            self.seat.queue,
            hook.generation,
        )
        if call is None:
            return
        try:
            async with asyncio.timeout(self.session.member.pace.hook_s):
                await call(self.seat.queue)
        except Exception:  # noqa: BLE001  # whatever a user's hook raises
            _log.exception("%s: the hook on_%s failed; the group goes on", self.seat.queue, hook.which)

    def _hook_done(self, hook: RunHook, task: asyncio.Task[None]) -> None:
        self._hook = None
        if task.cancelled() and hook.which == "lost" and not self._gives_up:
            self._start_hook(hook)  # the loop ends and cancels all that runs; this is still to be done
            return
        if hook.which == "lost":
            self.session.released(self.seat.queue)
        self.give(self.seat.hook_done())

    # -- the broker

    async def _subscribe(self, number: int) -> None:
        session = self.session

        def take(delivery: DeliveredMessage) -> None:
            self.give(self.seat.delivered(number, delivery))

        line = await session.channels.consume_behind(
            self.seat.queue,
            session.priority(self.seat.queue),
            self._prefetch,
            tag_of(session.member.name),
            take,
        )
        self._lines[number] = line
        line.when_closed(partial(self._closed, number, session))
        session.consumes(self.seat.queue)
        self.give(self.seat.subscribed(number))

    def _closed(self, number: int, session: RunnerSession, refusal: RabbitChxError | None) -> None:
        if session is self.session and self._lines.pop(number, None) is not None:
            session.line_lost(self.seat.queue, refusal)

    async def _abandon(self, number: int) -> None:
        if line := self._lines.pop(number, None):
            await self.session.channels.abandon(line)
        self._errors = {where: error for where, error in self._errors.items() if where[0] != number}
        self.give(self.seat.closed(number))

    async def _claim(self, number: int) -> None:
        session, token = self.session, secrets.token_hex(8)
        journal_s = session.member.pace.journal_s
        self._claims[token] = number
        await session.claim(self.seat.queue, token)
        await asyncio.sleep(journal_s)
        if self._claims.pop(token, None) is not None:
            raise ConnectionLostError(
                f"the claim of {self.seat.queue!r} was written into the stream {session.member.journal!r} and is not read there after "
                f"{journal_s:g} s: look at that stream, and whether a majority of its nodes is up",
                queue=self.seat.queue,
            )

    async def _fetch(self, number: int, park: str) -> None:
        if line := self._lines.get(number):
            self.give(self.seat.fetched(number, await line.fetch(park)))


async def _awaited(handle: Callable[[GroupMessage], Awaitable[None]], message: GroupMessage) -> None:
    await handle(message)

"""Executes the commands of a `QueueOwnership` on asyncio: channels, handlers, hooks and timers."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never

from rabbit_chx import errors
from rabbit_chx.connection.failures import raise_if_cancelled
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.consuming.ownership import (
    Abandon,
    Ack,
    AwaitAcks,
    CancelHandler,
    Claim,
    Command,
    DeliveredMessage,
    FailGroup,
    FetchParked,
    LogWarning,
    QueueOwnership,
    Reject,
    ResumeQueues,
    RunHook,
    SendReply,
    StartHandler,
    StartTimer,
    Subscribe,
)
from rabbit_chx.consuming.settings import BLOCKED_S, CANCELLED_S, GroupMember, Hook, call_hook, waiting
from rabbit_chx.text import error_text, typed_error_text
from rabbit_chx.topology.slots import make_consumer_tag
from rabbit_chx.tracing import handler_span

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumerChannel, GroupConnection
    from rabbit_chx.consuming.stream_channels import StreamChannel
    from rabbit_chx.consuming.stream_connection import StreamGroupConnection

_log = logging.getLogger(__name__)

#: A consumer of a queue, or of a stream.
MemberChannel: TypeAlias = "ConsumerChannel | StreamChannel"


class RunnerSession(Protocol):
    """What the runners of queues need of their session, which ends with its connection."""

    connection: GroupConnection | StreamGroupConnection
    member: GroupMember
    handle: Callable[[Any], Awaitable[None]]
    #: Checks a queue that is consumed, before its first message is handled.
    check: Callable[[str], Awaitable[None]]

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task until the session ends."""

    def fail(self, error: errors.RabbitChxError) -> None:
        """End the session with an error."""

    def priority(self, queue: str) -> int:
        """Return the priority of a new consumer."""

    def on_subscribed(self, queue: str) -> None:
        """Record that a queue is consumed."""

    def on_channel_closed(self, queue: str, refusal: errors.RabbitChxError | None) -> None:
        """Record that the channel of a queue has closed."""

    async def write_claim(self, queue: str, token: str) -> None:
        """Write a claim of a queue into the journal."""

    async def unclaimed_generation(self) -> int | None:
        """Return the generation of a queue while the broker blocks publishers; None if it does not."""

    def resume_queues(self) -> None:
        """Let all queues start what may be started now."""

    def write_released(self, queue: str) -> None:
        """Write into the journal that a queue is released."""


class QueueRunner:
    """One queue of a member. It outlives connections: `session` is replaced with each of them.

    Commands are executed in their order. An `Ack`, `Reject`, `AwaitAcks` or `SendReply` is sent before the next command begins; all other commands only
    start a task or a timer. Tasks that need the connection belong to the session and end with it. Handlers and hooks run to their end.

    The event `changed` is set after each event of the queue.
    """

    def __init__(self, ownership: QueueOwnership, session: RunnerSession, prefetch: int) -> None:
        self.ownership = ownership
        self.session = session
        self.prefetch = prefetch
        self.changed = asyncio.Event()
        self._channels: dict[int, MemberChannel] = {}  # by subscription
        self._handlers: dict[tuple[int, int], asyncio.Task[None]] = {}  # by subscription and delivery tag
        self._errors: dict[tuple[int, int], BaseException] = {}  # of the last attempts, by the same
        #: The subscriptions by claim token; None after the claim was read.
        self._claims: dict[str, int | None] = {}
        self._queued: deque[Command] = deque()  # behind the command that is being sent
        self._sending: asyncio.Task[None] | None = None  # of an Ack, Reject, AwaitAcks or SendReply
        self._unending: set[asyncio.Task[None]] = set()  # handlers that were cancelled and go on
        self._park = ""  # a parking queue that exists
        self._hook: asyncio.Task[None] | None = None
        self._is_hook_cancelled = False
        self.handled_at: datetime | None = None  # when a handler returned the last time
        self._waits_for = ""
        self._waiting = ExitStack()

    def execute(self, commands: list[Command]) -> None:
        """Execute commands in their order, after all earlier ones."""
        self._queued.extend(commands)
        self._execute_queued()
        if (what := self.ownership.waits_for) != self._waits_for:
            self._waits_for = what
            self._waiting.close()
            self._waiting.enter_context(waiting(self.ownership.queue, what) if what else nullcontext())
        self.changed.set()

    def on_claim(self, token: str, generation: int) -> None:
        """A claim of this queue, by any member, was read from the journal."""
        if token not in self._claims:
            self.execute(self.ownership.on_superseded())
            return
        subscription = self._claims[token]
        self._claims[token] = None
        if subscription is not None:  # None: the claim was published twice
            self.execute(self.ownership.on_claimed(subscription, generation))

    @property
    def is_handling(self) -> bool:
        """True if a handler or a hook runs."""
        return bool(self._handlers) or self._hook is not None

    @property
    def is_held_up(self) -> bool:
        """True if a handler goes on although it was cancelled; the queue waits for its end."""
        return bool(self._unending)

    def cancel_handlers(self) -> None:
        """Cancel the running handlers."""
        for task in self._handlers.values():
            task.cancel()

    def cancel_hook(self) -> None:
        """Cancel the running hook; it is not called again."""
        self._is_hook_cancelled = True
        if self._hook is not None:
            self._hook.cancel()

    def consume_again(self) -> None:
        """Handle the loss of this queue's channel alone."""
        self.disconnect()
        self.execute(self.ownership.consume())

    def disconnect(self) -> list[MemberChannel]:
        """Handle the loss of the connection: cancel the handlers, drop unsent commands, and return the channels."""
        channels = list(self._channels.values())
        unsent = list(self._queued)
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        for dropped in (self._queued, self._channels, self._claims, self._errors):
            dropped.clear()
        self.execute(self.ownership.on_connection_lost())
        for command in unsent:
            if isinstance(command, StartHandler):  # it waited after an ack: the handler never began
                failed = self.ownership.on_handled(command.subscription, command.delivery.tag, failed=True)
                self.execute(failed)
            elif isinstance(command, RunHook | LogWarning):
                self.execute([command])
        return channels

    # -- commands

    def _execute_queued(self) -> None:
        while self._queued and self._sending is None:
            command = self._queued.popleft()
            if isinstance(command, Ack | Reject | AwaitAcks | SendReply):
                self._sending = asyncio.get_running_loop().create_task(self._send(command))
                self._sending.add_done_callback(self._on_sent)
            else:
                self._execute(command)

    async def _send(self, command: Ack | Reject | AwaitAcks | SendReply) -> None:
        session = self.session
        connection: Any = session.connection
        channel: Any = self._channels.get(command.subscription)  # streams have only `Ack`
        if channel is None:
            return

        try:
            match command:
                case Ack(_, tag):
                    await channel.ack(tag)
                case Reject(_, tag):
                    await channel.reject(tag)
                case AwaitAcks():
                    await channel.sync()
                case SendReply(_, queue, marker):
                    with waiting(self.ownership.queue, f"a reply to be in the queue {queue}: look at alarms"):
                        await channel.sync()  # the broker has processed all acks of the channel then
                        await connection.publish(queue, b"", marker.headers())
        except errors.RabbitChxError as error:
            session.fail(error)

    def _on_sent(self, sending: asyncio.Task[None]) -> None:
        if sending is self._sending:  # otherwise the channel was lost meanwhile
            self._sending = None
            self._execute_queued()

    def _execute(self, command: Command) -> None:  # noqa: C901, PLR0912  # one branch for each command
        match command:
            case StartHandler():
                self._start_handler(command)
            case Subscribe(number):
                self.session.spawn(partial(self._subscribe, number))
            case Abandon(number):
                self.session.spawn(partial(self._abandon, number))
            case Claim(number):
                self.session.spawn(partial(self._claim, number))
            case FetchParked(number, parking_queue):
                self.session.spawn(partial(self._fetch, number, parking_queue))
            case RunHook():
                self._start_hook(command)
            case CancelHandler(number, tag):
                if running := self._handlers.get((number, tag)):
                    running.cancel()
                    asyncio.get_running_loop().call_later(CANCELLED_S, self._note_unending, running)
            case StartTimer(number, reason, seconds):
                asyncio.get_running_loop().call_later(
                    seconds, lambda: self.execute(self.ownership.on_timer(number, reason))
                )
            case FailGroup(number, delivery):
                self._fail_group(number, delivery)
            case LogWarning(message):
                _log.warning("%s", message, extra=self._log_fields)
            case ResumeQueues(tag):
                self.ownership.pass_turn(tag)
                self.session.resume_queues()
            case Ack() | Reject() | AwaitAcks() | SendReply():
                raise AssertionError(command)  # `_execute_queued` sends them
            case _:
                assert_never(command)

    @property
    def _log_fields(self) -> dict[str, object]:
        return {"queue": self.ownership.queue, "generation": self.ownership.generation}

    # -- handlers and hooks

    def _start_handler(self, start: StartHandler) -> None:
        message = start.delivery.content
        if start.attempt > 1:
            message = replace(message, attempt=start.attempt)
        if start.generation is not None:
            message = replace(message, generation=start.generation)
        task = asyncio.get_running_loop().create_task(_call(self.session.handle, message))
        self._handlers[start.subscription, start.delivery.tag] = task
        task.add_done_callback(partial(self._on_handled, start))

    def _on_handled(self, start: StartHandler, task: asyncio.Task[None]) -> None:
        """Process the result of a handler, even if it was cancelled before it began."""
        key = start.subscription, start.delivery.tag
        if self._handlers.get(key) is task:
            del self._handlers[key]

        # A handler that cancels itself, or awaits a task that is cancelled, has failed as any other.
        error = asyncio.CancelledError("the handler was cancelled") if task.cancelled() else task.exception()
        if error is None:
            self._errors.pop(key, None)
            if not _is_election(start.delivery.content):
                self.handled_at = datetime.now(UTC)
        else:
            self._errors[key] = error
            _log.info(
                "%s: the handler failed at attempt %d: %s",
                self.ownership.queue,
                start.attempt,
                typed_error_text(error),
                extra=self._log_fields,
            )
            # Not the error itself, which may have no truth value.
            traceback = (type(error), error, error.__traceback__)
            _log.debug("%s: where the handler failed", self.ownership.queue, exc_info=traceback)

        commands = self.ownership.on_handled(*key, failed=error is not None)
        if any(isinstance(command, Reject) for command in commands):
            _log.warning(
                "%s: %s is rejected, to be dead-lettered, after %d attempts: the handler raised %s. Correct the handler, and publish the "
                "message again",
                self.ownership.queue,
                _named(start.delivery.content),
                start.attempt,
                typed_error_text(self._errors.pop(key)),
                extra=self._log_fields,
            )

        self.execute(commands)

    def _note_unending(self, handler: asyncio.Task[None]) -> None:
        if handler.done():
            return
        self._unending.add(handler)
        handler.add_done_callback(self._unending.discard)
        _log.warning(
            "%s: a handler was cancelled, and goes on after %g s: the queue waits for its end. Let it end when it is cancelled, or restart the process",
            self.ownership.queue,
            CANCELLED_S,
            extra=self._log_fields,
        )

    def _fail_group(self, number: int, delivery: DeliveredMessage) -> None:
        cause = self._errors.pop((number, delivery.tag), None)
        message = delivery.content
        if isinstance(message, GroupMessage):
            kind = "queue"
            raiser = "the handler"
            remedy = ", or choose on_failure='dead-letter'"
            what = f" for {_named(message)}"
            state = "The message is returned to its place"
        else:
            kind = "stream"
            raiser = message.raiser
            what = message.label
            remedy = ""
            state = "The offset is not stored, so the next member begins there"

        error = errors.HandlerError(
            f"{kind} {self.ownership.queue!r}: {raiser} raised {type(cause).__name__}{what} at the last of "
            f"{self.session.member.failures.retries + 1} attempts ({None if cause is None else error_text(cause)}). {state}: correct {raiser}{remedy}",
            queue=self.ownership.queue,
        )
        error.__cause__ = cause
        self.session.fail(error)

    def _start_hook(self, command: RunHook, *, is_repeated: bool = False) -> None:
        member = self.session.member
        call = member.on_gained if command.hook == "gained" else member.on_lost
        self._hook = asyncio.get_running_loop().create_task(self._run_hook(command, call))
        self._hook.add_done_callback(partial(self._on_hook_done, command, is_repeated))

    async def _run_hook(self, command: RunHook, call: Hook | None) -> None:
        member = self.session.member
        queue = self.ownership.queue
        verb = "owns" if command.hook == "gained" else "no longer owns"
        fields = {**self._log_fields, "generation": command.generation}
        generation = "" if command.generation is None else f", generation {command.generation}"
        _log.info("group member %s %s %s%s", member.name, verb, queue, generation, extra=fields)
        if call is None:
            return
        try:
            await call_hook(call, queue, member.timing.hook_s)
        except (KeyboardInterrupt, SystemExit):
            return  # the task of the hook has ended the event loop with it
        except BaseException as error:  # noqa: BLE001  # whatever a user's hook raises, also CancelledError
            raise_if_cancelled(error)
            _log.exception(
                "%s: the hook on_%s failed; the group continues", queue, command.hook, extra=fields
            )

    def _on_hook_done(self, command: RunHook, is_repeated: bool, task: asyncio.Task[None]) -> None:  # noqa: FBT001
        self._hook = None
        if task.cancelled() and not self._is_hook_cancelled:
            if command.hook == "lost" and not is_repeated:
                # The event loop is ending, and cancels all its tasks once. This hook must still run.
                self._start_hook(command, is_repeated=True)
                return
            _log.warning(
                "%s: the hook on_%s was cancelled; the group continues",
                self.ownership.queue,
                command.hook,
                extra=self._log_fields,
            )
        if command.hook == "lost":
            self.session.write_released(self.ownership.queue)
        self.execute(self.ownership.on_hook_done())

    # -- the broker

    async def _subscribe(self, number: int) -> None:
        session = self.session
        queue = self.ownership.queue

        def on_delivered(delivery: DeliveredMessage) -> None:
            self.execute(self.ownership.on_delivered(number, delivery))

        priority = session.priority(queue)
        tag = make_consumer_tag(session.member.name)
        try:
            channel = await session.connection.consume_behind(
                queue, priority, self.prefetch, tag, on_delivered
            )
        except errors.MismatchError:
            await session.check(queue)  # its error says what the queue lacks
            raise
        self._channels[number] = channel
        channel.when_closed(partial(self._on_closed, number, session))
        await session.check(queue)
        session.on_subscribed(queue)
        self.execute(self.ownership.on_subscribed(number))

    def _on_closed(self, number: int, session: RunnerSession, refusal: errors.RabbitChxError | None) -> None:
        if session is self.session and self._channels.pop(number, None) is not None:
            session.on_channel_closed(self.ownership.queue, refusal)

    async def _abandon(self, number: int) -> None:
        channel: Any = self._channels.pop(number, None)
        if channel is not None:
            await self.session.connection.abandon(channel)
        self._errors = {key: error for key, error in self._errors.items() if key[0] != number}
        self.execute(self.ownership.on_abandoned(number))

    async def _claim(self, number: int) -> None:
        session = self.session
        token = secrets.token_hex(8)
        journal_s = session.member.timing.journal_s
        self._claims[token] = number
        writing = asyncio.ensure_future(session.write_claim(self.ownership.queue, token))

        try:
            await asyncio.wait({writing}, timeout=BLOCKED_S)
            generation = None
            if not writing.done():
                generation = await session.unclaimed_generation()
            if generation is not None:
                await self._take_unclaimed(number, generation)
                # A claim after the release would be that of an owner.
                while not writing.done() and number in self._channels:
                    await asyncio.wait({writing}, timeout=BLOCKED_S)
                if not writing.done():
                    del self._claims[token]
                    return
            await writing
        finally:
            writing.cancel()

        await asyncio.sleep(journal_s)
        if self._claims.pop(token, None) is not None:
            raise errors.ConnectionLostError(
                f"the claim of {self.ownership.queue!r} was written into the stream {session.member.journal!r} and is not read there after "
                f"{journal_s:g} s: look at that stream, and whether a majority of its nodes is up",
                queue=self.ownership.queue,
            )

    async def _take_unclaimed(self, number: int, generation: int) -> None:
        """Own the queue until the claim is read, if the broker still answers over the channel that consumes."""
        channel: Any = self._channels.get(number)
        if channel is not None:
            await channel.sync()
            self.execute(self.ownership.on_claimed(number, generation))

    async def _fetch(self, number: int, parking_queue: str) -> None:
        channel: Any = self._channels.get(number)
        connection: Any = self.session.connection
        if channel is None:
            return
        if parking_queue != self._park:  # the request itself would close the channel
            try:
                await connection.declare_passively(parking_queue)
            except errors.NotFoundError:
                self.execute(self.ownership.on_park_missing(number))
                return
        self._park = parking_queue
        try:
            delivery = await channel.fetch(parking_queue)
        except errors.NotFoundError:  # it was deleted since, and the channel is closed
            self._park = ""
            return
        self.execute(self.ownership.on_fetched(number, delivery))


def _named(message: GroupMessage) -> str:
    return (
        f"the message with the routing key {message.routing_key!r} and the message_id {message.message_id!r}"
    )


async def _call(handle: Callable[[Any], Awaitable[None]], message: Any) -> None:
    """Call a handler with a message or a batch. This makes a coroutine of any handler, since a task accepts no other awaitable.

    An error that the call raises fails the task.
    """
    is_message = isinstance(message, GroupMessage)
    if is_message:
        queue = message.queue
        headers = message.headers
    else:
        queue = message.stream
        headers = {}
    with nullcontext() if _is_election(message) else handler_span(queue, headers):
        await handle(message)


def _is_election(content: Any) -> bool:
    """Return whether it is the election of a member of a `StreamGroup`, and neither a message nor a batch."""
    return not isinstance(content, GroupMessage) and content.rows is None

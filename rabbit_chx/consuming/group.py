"""The life of a group member (`Group`, the base of both kinds of groups), and the member of a group of queues (`ConsumerGroup`).

`Group` connects, runs one `GroupSession` after the other, and leaves. `ConsumerGroup` adds the arguments, and the checks of the queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.exchange_types import delivery_limit
from rabbit_chx.amqp.frames import may_be_limit
from rabbit_chx.amqp.settings import read_secretly
from rabbit_chx.checks import check_name
from rabbit_chx.connection.blocking_connection import UsageGuard
from rabbit_chx.connection.failures import connect_timeout_error
from rabbit_chx.connection.tokens import with_credentials
from rabbit_chx.consuming.journal import WITHOUT_JOURNAL, Roster
from rabbit_chx.consuming.message import GroupMessage, Turns
from rabbit_chx.consuming.ownership import QueueOwnership
from rabbit_chx.consuming.queue_checks import (
    PRIORITIES_SINCE,
    check_queues,
    delivered_priority,
    prefetch_of,
    queue_warnings,
)
from rabbit_chx.consuming.runner import QueueRunner
from rabbit_chx.consuming.session import GroupSession, wait_until_finished
from rabbit_chx.consuming.settings import (
    CANCELLED_S,
    GroupMember,
    GroupQueues,
    LoopWatch,
    QueueGroupOptions,
    member_of,
    start_task,
    wait_to_reconnect,
    waiting,
)
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.options import Outage
from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.version import missing_extra

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import GroupConnection
    from rabbit_chx.consuming.stream_connection import StreamGroupConnection

# -- Finds the queue with a message that the broker cannot deliver, without I/O
# A message of an AMQP 1.0 client may have a property that AMQP 0.9.1 does not have, of type uuid or char. The broker fails when it converts it,
# and closes the connection (541), with the consumers of all queues. The close does not name the queue.
#
# So after a 541 the next session consumes the queues one after the other. A queue is left out if it was the only one that was consumed. If
# others were, too, the last one is the first of the next session: a consumer that waited behind another member may be what got the message.

#: Seconds between two trials of a queue that is left out.
RETRY_S = 60.0
_INTERNAL_ERROR = 541
#: Seconds in which a queue that is consumed shows that it can be. They double after each session in which several were consumed.
_SETTLE_S = 0.5
_MAX_SETTLE_S = 8.0


class _EndedSession(Protocol):
    settle_s: float
    consumed: list[str]
    has_settled: bool


class UndeliverableQueues:
    """The queues of a member that are left out, and how its next session consumes the others.

    Attributes:
        left_out: the queues that end each connection that consumes them.
        settle_s: seconds between two queues in the next session; 0 to consume all at once.
        first: the queue that the next session consumes first; None for any.
    """

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self.settle_s = 0.0
        self.first: str | None = None

    def on_session_ended(self, cause: errors.RabbitChxError, session: _EndedSession) -> str | None:
        """Learn from the error that ended a session; return the queue that is left out from now on, None for none."""
        if cause.reply_code != _INTERNAL_ERROR or not session.consumed:
            self.settle_s = 0.0
            self.first = None
            return None
        if not session.settle_s or session.has_settled:
            self.settle_s = _SETTLE_S
            self.first = None
            return None
        last = session.consumed[-1]
        if len(session.consumed) > 1:
            self.settle_s = min(2 * session.settle_s, _MAX_SETTLE_S)
            self.first = last
            return None
        self.left_out.add(last)
        self.settle_s = _SETTLE_S
        self.first = None
        return last


_log = logging.getLogger(__name__)
#: So many different priorities of messages break the order.
_DIFFERENT = 2
#: After this time without success, another attempt to connect begins in parallel.
_CONNECT_S = 1.5

#: The names of brokers of Amazon MQ. Their documentation says: "Creating a stream will result in data loss."
_AMAZON_MQ = re.compile(r"\.mq\.[^.]+\.(amazonaws\.com(\.cn)?|on\.aws)\.?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """The health of a member; it is true if the member is connected, no other member holds what is assigned to it, and nothing is held up or
    left out.

    Attributes:
        connected: whether the member runs, its connection is usable, and its event loop has answered within `GroupTiming.gone_s`.
        handled_at: when a handler returned the last time; None before the first message or batch. An idle member is healthy.
        not_owned: the queues or streams that are assigned to this member and that another member holds, as while they change hands. Empty
            without a journal.
        ignored_entries: the number of entries of the journal, since it connected, that no group can have written. They change nothing.
        held_up: the queues or streams that wait for a handler that goes on although it was cancelled.
        left_out: the queues that this member does not consume, since they have a message that the broker cannot deliver.
    """

    connected: bool
    handled_at: datetime | None
    not_owned: tuple[str, ...] = ()
    ignored_entries: int = 0
    held_up: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.connected and not (self.not_owned or self.held_up or self.left_out)


class Group(ABC):
    """The life of a member, of either kind of group: it connects, runs, reconnects and leaves.

    Args:
        settings: of a connection, for errors.
        member: the member.
    """

    def __init__(self, settings: ConnectionSettings, member: GroupMember) -> None:
        for name, hook in (("on_gained", member.on_gained), ("on_lost", member.on_lost)):
            if hook is not None:
                check_async(name, hook)

        self.member = member.name
        self.reconnects = 0
        self._where = settings.masked_url
        self._attempt_settings = replace(settings, connection_timeout_s=_CONNECT_S)
        self._member = member
        self._retries = Retries(
            reconnect_timeout_s=member.failures.reconnect_timeout_s,
            backoff_s=member.failures.reconnect_backoff_s,
        )
        self._stop = asyncio.Event()
        self._connection: Any = None
        self._session: GroupSession | None = None
        self._prefetches: dict[str, int] = {}  # by queue
        self._limited: set[str] = set()  # queues with a delivery limit
        self._deleted: set[str] = set()  # queues that were deleted while this member ran
        self._undeliverable = UndeliverableQueues()
        self._runners: list[QueueRunner] = []
        self._turns = Turns()
        self._tokens: list[str] = []  # of all sessions so far
        self._attempts: set[asyncio.Task[Any]] = set()  # to connect
        # Of connections that were given up; `run` waits for them at its end.
        self._closings: set[asyncio.Task[None]] = set()
        self._guard: UsageGuard  # since the connection was opened
        self._is_running = False
        self._loop_watch = LoopWatch(member.timing.loop_timeout_s)

    @abstractmethod
    async def _open(self) -> Any:
        """Open a `GroupConnection` or a `StreamGroupConnection`."""

    @abstractmethod
    async def _prepare(self, connection: Any) -> dict[str, int]:
        """Check the queues; return the number of messages of each that may be delivered ahead."""

    # -- state

    @property
    def held(self) -> tuple[str, ...]:
        """The queues (in a `StreamGroup` the streams) that this member owns now."""
        return tuple(runner.ownership.queue for runner in self._runners if runner.ownership.is_held)

    def healthy(self) -> GroupHealth:
        """Return the health of this member, for the probes of an orchestrator; it is true if the member is healthy.

        Any thread may call it. One of its own learns of a handler that blocks the event loop, which a task would wait for.
        """
        session = self._session
        is_silent = self._loop_watch.silence_s > self._member.timing.gone_s
        connected = session is not None and session.is_up and not session.is_lost and not is_silent
        roster = Roster() if session is None else session.roster
        not_owned = []

        for queue, owner in roster.owners().items():
            claim = roster.claims.get(queue)
            if owner == self.member and claim is not None and claim.held and claim.member != self.member:
                not_owned.append(queue)

        handled = [runner.handled_at for runner in self._runners if runner.handled_at is not None]
        ignored = 0 if session is None else session.ignored_entries
        held_up = tuple(sorted(runner.ownership.queue for runner in self._runners if runner.is_held_up))

        return GroupHealth(
            connected,
            max(handled, default=None),
            tuple(sorted(not_owned)),
            ignored,
            held_up,
            tuple(sorted(self._undeliverable.left_out)),
        )

    # -- lifecycle

    async def _enter(self) -> None:
        """Connect and check the queues, for ``__aenter__``. `_connect` uses this connection first."""
        self._guard = UsageGuard(f"the {type(self).__name__} of member {self.member!r}")
        self._guard.check_in_loop()
        with waiting(f"group member {self.member}", f"{self._where}: look whether its nodes are up"):
            self._connection = await self._open()
            try:
                self._prefetches = await self._prepare(self._connection)
            except BaseException:
                await self.__aexit__()
                raise

    async def __aexit__(self, *_: object) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None and self._guard.is_this_process:
            await connection.close()

    def stop(self) -> None:
        """Let `run` finish the messages in progress, return the others in order, and end. An asyncio signal handler may call it."""
        self._stop.set()

    async def _run_once(self, handle: Callable[[Any], Awaitable[None]]) -> None:
        """Run until `stop`, then leave; an InputError unless the group is open and does not run yet."""
        if self._connection is None:
            raise errors.InputError(
                f"the group is not open: use 'async with {type(self).__name__}(...) as group:'"
            )

        self._guard.check_in_loop()
        if self._is_running:
            raise errors.InputError("the group runs already: call run once")

        self._is_running = True
        self._loop_watch.start(self._on_late_loop)
        try:
            await self._run(handle)
        except errors.RabbitChxError as error:  # who runs it in a task may see it late, or never
            _log.error("group member %s ends: %s", self.member, error, extra={"queue": error.queue})
            raise
        finally:
            try:
                await self._finish()
            finally:
                self._loop_watch.stop()
                self._is_running = False

    def _on_late_loop(self, silence_s: float) -> None:
        """End the session: other members may have the queues. The next one joins as a new member does."""
        if self._session is not None:
            error = errors.ConnectionLostError(
                f"group member {self.member}: the event loop did not answer for {silence_s:.0f} s, and loop_timeout_s is "
                f"{self._loop_watch.timeout_s:g}, so others take its queues: a handler must not block the loop; run blocking code by "
                "asyncio.to_thread, or raise loop_timeout_s"
            )
            self._session.fail(error)

    async def _run(self, handle: Callable[[Any], Awaitable[None]]) -> None:
        """Run sessions, each over a new connection, until `stop` or an error after which reconnecting cannot help."""
        self._runners = []
        self._turns = Turns()
        outage: Outage | None = None
        while not self._stop.is_set():
            session = None
            lost_at = None
            began = time.monotonic()
            try:
                session = self._new_session(await self._connect(), handle)
                await session.run(self._stop)
            except (errors.HandlerError, errors.InputError):
                raise
            except errors.RabbitChxError as cause:
                if session is not None:
                    is_steady = time.monotonic() - began >= self._retries.reconnect_timeout_s
                    if session.is_up and (is_steady or not may_be_limit(cause)):
                        outage = None  # the connection had worked
                    lost_at = session.connection.lost_at
                    self._detach(session)
                if self._goes_on_without(cause, session):
                    outage = None
                    continue
                outage = await wait_to_reconnect(
                    self._retries,
                    outage,
                    cause,
                    self._stop,
                    name=f"group member {self.member}",
                    lost_at=lost_at,
                )

    def _goes_on_without(self, cause: errors.RabbitChxError, session: GroupSession | None) -> bool:  # noqa: ARG002  # of a ConsumerGroup
        """Return whether the group runs without a queue that was deleted, or cannot be delivered, according to the error that ended a session."""
        return False

    def _new_session(
        self, connection: GroupConnection | StreamGroupConnection, handle: Callable[[Any], Awaitable[None]]
    ) -> GroupSession:
        """Begin a session. The runner of a queue is created with its first one, and passes on to each later one."""
        session = self._session = GroupSession(connection, self._member, handle, tuple(self._tokens))
        self._tokens.append(session.token)
        present = {runner.ownership.queue for runner in self._runners}
        self._runners += [
            QueueRunner(QueueOwnership(queue, self._member, self._turns), session, prefetch)
            for queue, prefetch in self._prefetches.items()
            if queue not in present
        ]

        for runner in self._runners:
            runner.prefetch = self._prefetches[runner.ownership.queue]
            runner.ownership.is_limited = runner.ownership.queue in self._limited

        absent = self._deleted | self._undeliverable.left_out
        consumed = [runner for runner in self._runners if runner.ownership.queue not in absent]
        session.attach(
            sorted(consumed, key=lambda runner: runner.ownership.queue != self._undeliverable.first)
        )
        session.settle_s = self._undeliverable.settle_s
        return session

    def _detach(self, session: GroupSession) -> None:
        """Close a connection without waiting for it, so that the next attempt begins at once."""
        start_task(session.close(session.detach()), self._closings)

    async def _connect(self) -> Any:
        """Return the connection of `__aenter__`, or a new one.

        An attempt that hangs does not delay the next attempt, since the network may have recovered meanwhile.
        """
        opened = self._connection
        self._connection = None
        if opened is not None:
            return opened

        attempt = asyncio.get_running_loop().create_task(self._open())
        self._attempts.add(attempt)
        end = time.monotonic() + _CONNECT_S
        while opened is None:
            done, self._attempts = await asyncio.wait(
                self._attempts, timeout=end - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise connect_timeout_error(self._attempt_settings)
            for ended in done:
                error = ended.exception()
                if error is None and opened is None:
                    opened = ended.result()
                elif error is None:
                    start_task(ended.result().close(), self._closings)
                elif ended is attempt:
                    raise error

        self._cancel_attempts()
        self.reconnects += 1
        return opened

    def _cancel_attempts(self) -> None:
        for attempt in self._attempts:
            # One that has ended since the last look opened a connection, or failed.
            if not (attempt.cancel() or attempt.cancelled() or attempt.exception()):
                start_task(attempt.result().close(), self._closings)
        self._attempts = set()

    async def _finish(self) -> None:
        """Leave in order. If this is cancelled, or the event loop ends, leave at once. The hook on_lost runs in any case."""
        is_cancelled = False
        while True:
            try:
                await self._leave(patient=not is_cancelled)
            except asyncio.CancelledError:
                is_cancelled = True
            else:
                break
        if is_cancelled:
            raise asyncio.CancelledError

    async def _leave(self, *, patient: bool) -> None:
        """End the session, if `patient` after the messages in progress, and wait for handlers, hooks and connections."""
        self._cancel_attempts()
        if self._session is not None:
            if patient and not self._session.is_lost:
                await self._session.leave()
            self._detach(self._session)
        if not await wait_until_finished(self._runners, CANCELLED_S):
            for runner in self._runners:
                runner.cancel_hook()
            await wait_until_finished(self._runners, CANCELLED_S)
        self._session = None
        await asyncio.gather(*self._closings)


@documented(QueueGroupOptions)
class ConsumerGroup(Group):
    """One member of a group that shares queues and keeps the order of each queue.

    Each queue is a quorum queue with a single active consumer. Every member consumes all queues. The broker delivers each queue to one
    member, and to the next member when the first releases it. Use it in an ``async with`` block.

    If a queue is deleted, the member reconnects and consumes the others, and that queue again once it exists again.

    Raises:
        InputError: an argument is invalid.
        UriError: the URL is malformed, or has a parameter that is not supported.
    """

    @takes(QueueGroupOptions)
    def __init__(self, options: QueueGroupOptions) -> None:
        settings = read_secretly(ConnectionSettings.of, options.url)
        (self._settings,) = with_credentials([settings], options.credentials)
        check_options(options)
        journal = options.journal
        queues = options.queues
        if journal is not None and _AMAZON_MQ.search(self._settings.host):
            raise errors.InputError(
                f"journal is {journal!r}, a stream, and {self._settings.host} is of Amazon MQ, which does not support streams and loses their "
                f"data. {WITHOUT_JOURNAL}"
            )
        self.queues = _static_share(_queue_names(queues), options.static)
        super().__init__(self._settings, member_of(options))
        self._static = options.static
        self._release_numbers: tuple[int, ...] = ()
        self._priorities: set[int] = set()  # of the messages so far, until there are two
        #: Of each queue, when it was found suitable; None if they are not known.
        self._arguments: dict[str, Mapping[str, Any] | None] = {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup member={self.member!r} at {self._settings.masked_url}: {len(self.held)} of {len(self.queues)} queues>"

    @property
    def members(self) -> tuple[str, ...]:
        """The members, according to the journal; empty without a journal."""
        return () if self._session is None else tuple(sorted(self._session.roster.members))

    @property
    def owners(self) -> dict[str, str]:
        """The assigned owner of each queue, according to the journal; empty without a journal."""
        return {} if self._session is None else self._session.roster.owners()

    async def __aenter__(self) -> Self:
        """Connect, and check that the queues are suitable for a group.

        Raises:
            InputError: the broker has no streams, but a journal is configured.
            BrokerRefusedError: the broker refuses to declare the journal.
            NotFoundError: a queue does not exist.
            MismatchError: a queue is not a quorum queue, or has no single active consumer.
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: the broker cannot be reached.
            MissingExtraError: aio-pika is not installed.
        """
        await self._enter()
        return self

    async def run(self, handle: Callable[[GroupMessage], Awaitable[None]]) -> None:
        """Handle messages until `stop` is called or the task is cancelled.

        A message is acknowledged when the handler returns. If the handler raises, it is called with the message again.

        Args:
            handle: an async function of a message.

        Raises:
            HandlerError: all attempts to handle a message failed, and `on_failure` is ``stop``.
            ConnectionLostError: the connection was lost, and reconnecting failed in time.
            NotFoundError: all queues were deleted.
            MismatchError: a queue was deleted and declared again, and is not suitable for a group.
            BrokerRefusedError: the broker refuses an operation, and a retry cannot succeed.
            InputError: the handler is not async; the group is not open or is already running; or another process uses this member name.
        """
        check_async("handle", handle)

        async def handle_message(message: GroupMessage) -> None:
            self._warn_of_priority(message)
            await handle(message)

        await self._run_once(handle_message)

    def _warn_of_priority(self, message: GroupMessage) -> None:
        """Warn once that messages differ in their priority: quorum queues from 4.0 on deliver by it without any argument."""
        priority = message.properties.get("priority")
        known = len(self._priorities)
        if known == _DIFFERENT:
            return
        self._priorities.add(delivered_priority(priority, self._release_numbers))
        if known and len(self._priorities) == _DIFFERENT:
            _log.warning(
                "group member %s: a message of queue %s has %s, unlike others: RabbitMQ delivers higher priorities first, so a key is "
                "not handled in the order of its messages: publish all with the same priority",
                self.member,
                message.queue,
                "no priority" if priority is None else f"the priority {priority}",
                extra={"queue": message.queue},
            )

    def _goes_on_without(self, cause: errors.RabbitChxError, session: GroupSession | None) -> bool:
        if isinstance(cause, errors.NotFoundError):
            return self._goes_on_without_deleted(cause)
        return session is not None and self._leaves_out(cause, session)

    def _goes_on_without_deleted(self, cause: errors.NotFoundError) -> bool:
        left = self._prefetches.keys() - self._deleted - {cause.queue}
        if cause.queue not in self._prefetches or not left:
            return False
        self._deleted.add(cause.queue)
        _log.warning(
            "group member %s: queue %s was deleted; it consumes %d of %d queues, and looks for the queue every %g s",
            self.member,
            cause.queue,
            len(left),
            len(self._prefetches),
            self._member.timing.watch_s,
            extra={"queue": cause.queue},
        )
        return True

    def _leaves_out(self, cause: errors.RabbitChxError, session: GroupSession) -> bool:
        """Return whether the error shows which queue ends each connection that consumes it; the next session is without it."""
        queue = self._undeliverable.on_session_ended(cause, session)
        if queue is None:
            return False
        _log.error(
            "group member %s: queue %s is left out: one of its next %d messages cannot be delivered over AMQP 0.9.1: take it out with AMQP 1.0, "
            "and send uuid and char values as text; retried every %g s: %s",
            self.member,
            queue,
            self._prefetches[queue],
            RETRY_S,
            cause,
            extra={"queue": queue},
        )
        return True

    def _new_session(self, connection: Any, handle: Callable[[Any], Awaitable[None]]) -> GroupSession:
        session = super()._new_session(connection, handle)
        session.check = functools.partial(self._check_again, connection)
        session.spawn(functools.partial(self._await_deleted, connection))
        session.spawn(self._await_deliverable)
        return session

    async def _await_deleted(self, connection: GroupConnection) -> None:
        """End the session when a deleted queue exists again, so that the next one consumes it, too.

        Raises:
            ConnectionLostError: a queue exists again.
            MismatchError: it exists again, and is not suitable for a group.
        """
        while self._deleted:
            await asyncio.sleep(self._member.timing.watch_s)
            for queue in sorted(self._deleted):
                with contextlib.suppress(errors.NotFoundError):
                    self._prefetches |= await self._check_queues(connection, (queue,))
                    self._deleted.discard(queue)
                    raise errors.ConnectionLostError(
                        f"{self._where}: queue {queue!r} was deleted, and exists again: consuming it",
                        queue=queue,
                    )

    async def _await_deliverable(self) -> None:
        """End the session when a queue that was left out can be delivered again, so that the next one consumes it, too."""
        while self._undeliverable.left_out:
            await asyncio.sleep(RETRY_S)
            for queue in sorted(self._undeliverable.left_out):
                if not await self._can_be_delivered(queue):
                    continue
                self._undeliverable.left_out.discard(queue)
                raise errors.ConnectionLostError(
                    f"{self._where}: queue {queue!r} was left out, and can be delivered: consuming it",
                    queue=queue,
                )

    async def _can_be_delivered(self, queue: str) -> bool:
        """Return whether a queue can be consumed for some seconds, over a connection of its own, so that the others go on."""
        from rabbit_chx.consuming.channels import consume_alone

        try:
            await consume_alone(self._settings, queue, self._prefetches[queue])
        except errors.NotFoundError:
            return True  # it was deleted: the next session notes it
        except errors.RabbitChxError as error:
            _log.debug("group member %s: queue %s stays left out: %s", self.member, queue, error)
            return False
        return True

    # -- checks

    async def _open(self) -> GroupConnection:
        try:
            from rabbit_chx.consuming.channels import GroupConnection
        except ModuleNotFoundError as missing:
            raise missing_extra("ConsumerGroup", missing.name, "aio") from None
        return await GroupConnection.open(self._settings)

    async def _prepare(self, connection: GroupConnection) -> dict[str, int]:
        numbers = Release(connection.server_version).numbers
        if numbers < PRIORITIES_SINCE and self._member.journal is None and self._static is None:
            _log.warning(
                "RabbitMQ %s ignores the priority of consumers under a single active consumer: the first member keeps every "
                "queue until it leaves. The order is kept. To share the queues, pass static=(index, count), a journal, or upgrade to 4.0",
                connection.server_version,
            )
        self._release_numbers = numbers
        prefetches = await self._check_queues(connection, self.queues)
        if self._member.journal is not None:
            # After the checks, so that a group that cannot run declares nothing.
            with contextlib.suppress(errors.UnreachableError):  # a node may be down: `run` tries again
                await connection.declare_journal(self._member.journal)
        return prefetches

    async def _check_again(self, connection: GroupConnection, queue: str) -> None:
        """Check a queue that is consumed: another program may have deleted it since the last check, and declared it otherwise.

        If it is deleted after this check, the broker ends the consumer.

        Raises:
            ConnectionLostError: its arguments are others, with which the next session consumes it.
            MismatchError: it is not suitable for a group.
        """
        known = self._arguments[queue]
        if known is None or await connection.queue_arguments(queue, known) == known:
            return
        self._prefetches |= await self._check_queues(connection, (queue,))
        raise errors.ConnectionLostError(
            f"{self._where}: queue {queue!r} was declared again with other arguments: consuming it again",
            queue=queue,
        )

    async def _check_queues(self, connection: GroupConnection, queues: Iterable[str]) -> dict[str, int]:
        """Check that queues are suitable; return the number of messages of each that may be delivered ahead."""
        numbers = Release(connection.server_version).numbers
        arguments = {queue: await connection.queue_arguments(queue) for queue in queues}
        check_queues(arguments, numbers)
        self._arguments |= arguments
        self._limited = {
            queue
            for queue, known in self._arguments.items()
            if delivery_limit(known or {}, numbers) is not None
        }
        for warning in queue_warnings(arguments, numbers, self._member):
            _log.warning("%s", warning)
        # A message that kills its member is requeued with all messages delivered ahead. A delivery limit would drop them with it.
        # All members must use the same prefetch: a quorum queue puts a message that is requeued again after other requeued messages.
        return {queue: prefetch_of(arguments[queue], numbers, self._member) for queue in queues}


def check_async(name: str, function: object) -> None:
    """Raise an InputError for a handler or a hook that is not async."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004  # the method of an object that is callable
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
        raise errors.InputError(f"{name} is {function!r:.100}, which is not async: write async def")


def _queue_names(queues: GroupQueues) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise errors.InputError(f"queues is the text {queues!r}: pass a list of names")
    destinations = queues.destinations if isinstance(queues, KeyMap) else queues
    names = list(dict.fromkeys(name for name in destinations if name is not None))  # None: a hole
    for name in names:
        if isinstance(name, ExchangeRef):
            raise errors.InputError(f"{name} is an exchange: pass the slot table, or the names of its queues")
        check_name(name, "queue")
    if not names:
        raise errors.InputError("queues is empty: pass one queue or more")
    return tuple(str(name) for name in names)


def _static_share(queues: tuple[str, ...], static: tuple[int, int] | None) -> tuple[str, ...]:
    """Return every count-th queue, from the index of this member on."""
    if static is None:
        return queues
    try:
        index, count = static
        is_valid = 0 <= index < count
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise errors.InputError(
            f"static is {static!r}: pass (index, count) with an index from 0 to count - 1"
        )
    return tuple(sorted(queues)[index::count])

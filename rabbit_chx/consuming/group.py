"""A group of consumers that keep order, on aio-pika. The broker elects who handles which queue."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.names import check_name
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.consuming.member import GroupMember, GroupPace, Hook, OnFailure
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.consuming.queue_check import delivery_limit, queue_warnings, refuse_dropping
from rabbit_chx.consuming.seat import Seat
from rabbit_chx.consuming.seat_runner import SeatRunner
from rabbit_chx.consuming.session import CANCELLED_S, GroupSession, emptied
from rabbit_chx.consuming.waits import wait_to_reconnect
from rabbit_chx.errors import BrokerTimeoutError, HandlerError, InputError, MissingExtraError, RabbitChxError
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.limits import Outage
from rabbit_chx.routing import ExchangeRef, HashRing, Release, SlotTable

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import GroupChannels

_log = logging.getLogger(__name__)
_PRIORITIES_FROM = (4, 0, 0)
_STREAMS_FROM = (3, 9, 0)
#: When an attempt to connect has hung for this time, the next attempt begins beside it.
_HANGS_S = 1.5

#: Names of queues, or what has queues: a ring or a slot table.
GroupQueues: TypeAlias = "Iterable[str] | HashRing | SlotTable"


class ConsumerGroup:
    """One member of a group that shares queues and keeps the order of each queue.

    Each queue is a quorum queue with a single active consumer. Every member consumes all queues. The broker gives each queue to
    one member, and to the next member when the first lets go of it. Use it in an ``async with`` block.

    Args:
        url: the AMQP URI, or the settings of a connection.
        queues: the names of the queues; or a `HashRing` or a `SlotTable`, whose queues they are.
        member: a name that no other member has and that stays the same after a restart, such as that of the pod; by default the
            host's name and the process id.
        weight: how much this member takes: one of weight 2 gets twice as many queues as one of weight 1.
        lanes: how many messages of one queue are handled at a time. All messages of a key have one lane, so their order is kept.
        prefetch: how many messages of one queue the broker may deliver ahead, at least `lanes`. When a queue changes hands,
            those that were not started go back to their place. From a queue with a delivery limit `lanes` messages are
            delivered at a time.
        retries: how often a message is given to the handler again after the handler raised. It stays in its place meanwhile.
        backoff_s: seconds before the first repetition; each further one waits twice as long, at most 30 s.
        on_failure: what follows the last attempt. ``stop``: the group ends with a HandlerError, and the message is in its place
            for the next member. ``dead-letter``: the message is rejected and goes to the queue's dead-letter exchange.
        on_gained: an async function of the queue's name, called before the first message of a queue that this member gets.
        on_lost: an async function of the queue's name, called when this member no longer has a queue.
        pace: the times of the group.
        journal: the stream in which the members tell of each other and which gives the generations. None for no journal.
        static: (index, count): this member consumes each count-th queue only. For releases before 4.0 where there is no journal.
        reconnect_timeout_s: for how long to connect again after a loss, in seconds; 0 does not.
        reconnect_backoff_s: seconds before the first attempt; each further one waits twice as long, at most 2 s.

    Raises:
        InputError: an argument cannot work.
        UriError: the URL is malformed, or has a parameter that is not supported.
    """

    def __init__(
        self,
        url: str | ConnectionSettings,
        queues: GroupQueues,
        *,
        member: str | None = None,
        weight: float = 1.0,
        lanes: int = GroupMember.lanes,
        prefetch: int = GroupMember.prefetch,
        retries: int = GroupMember.retries,
        backoff_s: float = GroupMember.backoff_s,
        on_failure: OnFailure = GroupMember.on_failure,
        on_gained: Hook | None = None,
        on_lost: Hook | None = None,
        pace: GroupPace | None = None,
        journal: str | None = JOURNAL,
        static: tuple[int, int] | None = None,
        reconnect_timeout_s: float = Retries.reconnect_timeout_s,
        reconnect_backoff_s: float = Retries.backoff_s,
    ) -> None:
        self._settings = _settings(url)
        self.queues = _static_share(_queue_names(queues), static)
        self._member = GroupMember(
            f"{socket.gethostname()}-{os.getpid()}" if member is None else member,
            weight,
            lanes,
            prefetch,
            retries,
            backoff_s,
            on_failure,
            on_gained,
            on_lost,
            pace or GroupPace(),
            journal,
        )
        self.member = self._member.name
        self._static = static
        self._retries = Retries(reconnect_timeout_s=reconnect_timeout_s, backoff_s=reconnect_backoff_s)
        self._stop = asyncio.Event()
        self._channels: GroupChannels | None = None
        self._session: GroupSession | None = None
        self._prefetches: dict[str, int] = {}
        self._seats: dict[str, Seat] = {}
        self._runners: list[SeatRunner] = []
        self._tokens: list[str] = []  # of all sessions so far
        self._attempts: set[asyncio.Task[GroupChannels]] = set()
        self._closings: set[asyncio.Task[None]] = set()
        self._runs = False
        self.reconnects = 0

    # -- what is known

    @property
    def held(self) -> tuple[str, ...]:
        """The queues that this member has now."""
        return tuple(queue for queue, seat in self._seats.items() if seat.held)

    @property
    def members(self) -> tuple[str, ...]:
        """The members that share the queues, as the journal tells them; empty without a journal."""
        return () if self._session is None else tuple(sorted(self._session.roster.members))

    @property
    def owners(self) -> dict[str, str]:
        """The member that is to have each queue, as the journal tells it; empty without a journal."""
        return {} if self._session is None else self._session.roster.owners()

    def __repr__(self) -> str:
        return f"<ConsumerGroup member={self.member!r} at {self._settings.masked_url}: {len(self.held)} of {len(self.queues)} queues>"

    # -- its life

    async def __aenter__(self) -> Self:
        """Connect, and check that the queues are fit for a group.

        Raises:
            InputError: the broker has no streams, and a journal is asked for.
            NotFoundError: there is no such queue.
            MismatchError: a queue is no quorum queue, or has no single active consumer.
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: nothing answers at the address.
            MissingExtraError: aio-pika is not installed.
        """
        self._channels = await _opened(self._settings)
        try:
            await self._check(self._channels)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        channels, self._channels = self._channels, None
        if channels is not None:
            await channels.close()

    def stop(self) -> None:
        """Let `run` finish the messages in hand, give the others back in order, and return.

        A signal handler of asyncio may call it.
        """
        self._stop.set()

    async def run(self, handle: Callable[[GroupMessage], Awaitable[None]]) -> None:
        """Handle messages until `stop` is called or the task is cancelled.

        A message is acknowledged when the handler returns. If the handler raises, it gets the message again.

        Args:
            handle: an async function of a message.

        Raises:
            HandlerError: the handler failed with a message at each attempt, and `on_failure` is ``stop``.
            ConnectionLostError: the connection is lost and did not come back in time.
            BrokerRefusedError: the broker refuses something, and another attempt would not help.
            InputError: the handler is not async; the group is not open, or runs already; or another process is a member of this name.
        """
        check_async("handle", handle)
        if self._channels is None:
            raise InputError(
                "the group is not open: use it as 'async with ConsumerGroup(url, queues) as group:'"
            )
        if self._runs:
            raise InputError("the group runs already: call run once")
        self._runs = True
        try:
            await self._run(handle)
        finally:
            try:
                await self._ended()
            finally:
                self._runs = False

    async def _run(self, handle: Callable[[GroupMessage], Awaitable[None]]) -> None:
        self._seats = {queue: Seat(queue, self._member) for queue in self.queues}
        self._runners = []
        outage: Outage | None = None
        while not self._stop.is_set():
            session = None
            try:
                session = self._begun(await self._connected(), handle)
                await session.run(self._stop)
            except (HandlerError, InputError):
                raise
            except RabbitChxError as cause:
                if session is not None:
                    if session.is_up:
                        outage = None  # it had come back
                    self._lose(session)
                outage = await wait_to_reconnect(
                    self._retries, outage, cause, self._stop, f"group member {self.member}"
                )

    def _begun(
        self, channels: GroupChannels, handle: Callable[[GroupMessage], Awaitable[None]]
    ) -> GroupSession:
        session = self._session = GroupSession(channels, self._member, handle, self._tokens)
        self._tokens.append(session.token)
        if not self._runners:
            self._runners = [
                SeatRunner(seat, session, self._prefetches[queue]) for queue, seat in self._seats.items()
            ]
        session.take(self._runners)
        return session

    def _lose(self, session: GroupSession) -> None:
        """Give up a connection. Its end is not awaited, so that the next attempt begins at once."""
        self._in_background(session.close(session.lose()))

    async def _connected(self) -> GroupChannels:
        """Return the connection that is open, or another one.

        An attempt that hangs in a dead line does not hold up the next attempt, since the line may be back meanwhile.
        """
        opened, self._channels = self._channels, None
        if opened is not None:
            return opened
        attempt = asyncio.get_running_loop().create_task(_opened(self._settings))
        self._attempts.add(attempt)
        end = time.monotonic() + _HANGS_S
        while opened is None:
            done, self._attempts = await asyncio.wait(
                self._attempts, timeout=end - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise BrokerTimeoutError(
                    f"{self._settings.masked_url}: not open within {_HANGS_S:g} s: check host, port and firewall"
                )
            for ended in done:
                error = ended.exception()
                if error is None and opened is None:
                    opened = ended.result()
                elif error is None:
                    self._in_background(ended.result().close())
                elif ended is attempt:
                    raise error
        self._end_attempts()
        self.reconnects += 1
        return opened

    def _end_attempts(self) -> None:
        for attempt in self._attempts:
            attempt.cancel()
        self._attempts = set()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Close something. `run` waits for it at its end."""
        closing = asyncio.get_running_loop().create_task(work)
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    # -- its end

    async def _ended(self) -> None:
        """Leave in order. If this is cancelled, or the loop ends, leave at once; the hook `on_lost` is called all the same."""
        cancelled = False
        while True:
            try:
                await self._end(patient=not cancelled)
            except asyncio.CancelledError:
                cancelled = True
            else:
                break
        if cancelled:
            raise asyncio.CancelledError

    async def _end(self, *, patient: bool) -> None:
        self._end_attempts()
        if self._session is not None:
            if patient and not self._session.is_lost:
                await self._session.leave()
            self._lose(self._session)
        if not await emptied(self._runners, CANCELLED_S):
            for runner in self._runners:
                runner.interrupt_hook()
            await emptied(self._runners, CANCELLED_S)
        self._session = None
        await asyncio.gather(*self._closings)

    # -- what it needs

    async def _check(self, channels: GroupChannels) -> None:
        """Look at the release and at each queue."""
        numbers = Release(channels.server_version).numbers
        if numbers < _STREAMS_FROM and self._member.journal is not None:
            raise InputError(
                f"journal is {self._member.journal!r}, a stream, and RabbitMQ {channels.server_version} has none: give journal=None, with "
                "which there are no generations, or upgrade to 3.9 or newer"
            )
        if numbers < _PRIORITIES_FROM and self._member.journal is None and self._static is None:
            _log.warning(
                "RabbitMQ %s ignores the priority of consumers under a single active consumer: the member that comes first keeps every "
                "queue until it leaves. The order is kept. To share the queues, give static=(index, count), a journal, or upgrade to 4.0",
                channels.server_version,
            )
        arguments = {queue: await channels.queue_arguments(queue) for queue in self.queues}
        refuse_dropping(arguments, numbers)
        for warning in queue_warnings(arguments, numbers, self._member.on_failure):
            _log.warning("%s", warning)
        # A message that ends its member is returned with all that were delivered ahead. With a limit they would be dropped with it.
        # All members must hold as many: a quorum queue puts what is returned again behind the other returned messages.
        self._prefetches = {
            queue: self._member.prefetch
            if delivery_limit(arguments[queue], numbers) is None
            else self._member.lanes
            for queue in self.queues
        }


def check_async(name: str, function: object) -> None:
    """Refuse a function that is not async.

    Raises:
        InputError: it is not async.
    """
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004  # of a class, where an object is given
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
        raise InputError(f"{name} is {function!r:.100}, which is not async: write async def")


async def _opened(settings: ConnectionSettings) -> GroupChannels:
    try:
        from rabbit_chx.consuming.channels import GroupChannels
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"ConsumerGroup needs {missing.name}, which is not installed: pip install 'rabbit-chx[aio]'"
        ) from None
    return await GroupChannels.open(settings)


def _settings(url: str | ConnectionSettings) -> ConnectionSettings:
    """Return the settings of the connection.

    Raises:
        InputError: it is neither, or the URI cannot be followed.
    """
    if isinstance(url, ConnectionSettings):
        return url
    if not isinstance(url, str):
        raise InputError(f"url is of type {type(url).__name__}: give an AMQP URI, such as amqp://localhost")
    return ConnectionSettings.from_uri(url)


def _queue_names(queues: GroupQueues) -> tuple[str, ...]:
    """Return the names of the queues, each once.

    Raises:
        InputError: there is none, or a name that no queue can have, or a ring with exchanges as destinations.
    """
    if isinstance(queues, str):
        raise InputError(f"queues is the text {queues!r}: give a list of names")
    listed = queues.destinations if isinstance(queues, HashRing | SlotTable) else queues
    names = list(dict.fromkeys(name for name in listed if name is not None))  # None: a hole
    for name in names:
        if isinstance(name, ExchangeRef):
            raise InputError(
                f"{name} is an exchange: give the slot table, or the names of the queues behind it"
            )
        check_name(name, "queue")
    if not names:
        raise InputError("queues is empty: give one queue or more")
    return tuple(str(name) for name in names)


def _static_share(queues: tuple[str, ...], static: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the queues that a member consumes.

    Raises:
        InputError: the index is not from 0 to the count less 1.
    """
    if static is None:
        return queues
    try:
        index, count = static
        is_valid = 0 <= index < count
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise InputError(f"static is {static!r}: give (index, count) with an index from 0 to count - 1")
    return tuple(sorted(queues)[index::count])

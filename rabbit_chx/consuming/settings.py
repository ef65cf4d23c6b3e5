"""The options of groups, each declared once, as `rabbit_chx.options` describes, and what a member is made of.

`GroupTiming`, `FailurePolicy` and `GroupReading` are values, which the members of a group may share.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import may_be_limit
from rabbit_chx.checks import check_seconds, check_whole, is_finite
from rabbit_chx.connection.tokens import Credentials
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import BrokerTimeoutError, InputError, RabbitChxError
from rabbit_chx.options import (
    COUNT,
    SECONDS,
    TEXT,
    WHOLE,
    ValueKind,
    check_options,
    declared,
    documented,
    one_of,
    option,
    value_of,
    whole,
)
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.options import Outage
from rabbit_chx.retry import Backoff, jitter
from rabbit_chx.routing import HashRing, ModulusHashExchange, SlotTable

if TYPE_CHECKING:
    from rabbit_chx.streams.frames import OffsetSpec
    from rabbit_chx.streams.options import StreamTargets

#: Names of queues; or a ring, slot table or x-modulus-hash exchange whose destinations are queues.
GroupQueues: TypeAlias = "Iterable[str] | HashRing | SlotTable | ModulusHashExchange"
Hook: TypeAlias = Callable[[str], Awaitable[None]]
#: Returns where to start, or None for the offset after the stored one.
GainedHook: TypeAlias = "Callable[[str], Awaitable[OffsetSpec | None]]"

_MAX_NAME_BYTES = 100
_MAX_CONCURRENCY = 256
_MAX_PREFETCH = 1000
_MAX_BACKOFF_S = 30.0


_HOOK = ValueKind("async function")
_MEMBER = ValueKind(
    "`str`",
    lambda name: isinstance(name, str) and 0 < len(name.encode(errors="replace")) <= _MAX_NAME_BYTES,
    f"text of 1 to {_MAX_NAME_BYTES} bytes, such as the name of the pod",
)
_WEIGHT = ValueKind(
    "`float`, more than 0", lambda weight: is_finite(weight) and weight > 0, "a finite number, more than 0"
)


# -- values


@dataclass(frozen=True)
class GroupTiming:
    """Intervals and time limits of a group. All members of a group should have the same.

    Attributes:
        warm_up_s: seconds for which a member must be healthy before it takes its share of the queues. A member in a crash loop never reaches
            that, so it takes no queue from another.
        alive_s: seconds between two heartbeats in the journal.
        gone_s: seconds without a heartbeat after which the other members reassign the queues. The broker delivers the queues of a dead
            member to waiting members long before.
        watch_s: seconds between two checks of idle queues.
        hook_s: time limit of a hook, in seconds.
        stop_s: time limit for the messages in progress when the group stops, in seconds. Then their handlers are cancelled.
        journal_s: time limit until a claim is read back from the journal, in seconds.
        loop_timeout_s: seconds without an answer of the event loop, such as while a handler blocks it, after which a member gives up its
            queues. A `StreamGroup` does so itself; the connections of a `ConsumerGroup` are closed by the broker, after two missed
            heartbeats. When the loop answers again, the member joins again. It counts as unhealthy after `gone_s`.
        park_s: seconds without a parked message after which a member stops waiting for the end of a slot's hand-over, because the process
            that moved the slot has died. The messages of the queue wait meanwhile.
    """

    warm_up_s: float = 5.0
    alive_s: float = 3.0
    gone_s: float = 10.0
    watch_s: float = 15.0
    hook_s: float = 10.0
    stop_s: float = 30.0
    journal_s: float = 30.0
    loop_timeout_s: float = 60.0
    park_s: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_seconds(name, value, zero=False)
        if self.gone_s <= self.alive_s:
            raise InputError(f"gone_s is {self.gone_s:g}, and must be longer than alive_s, {self.alive_s:g}")


@documented()
@dataclass(frozen=True)
class FailurePolicy:
    """What a member of a group does after a failure: of a handler, or of the connection."""

    retries: int = option(
        WHOLE,
        "the number of times that a message or a batch is handled again after the handler raised. It stays in its place meanwhile",
        5,
    )
    backoff_s: float = option(
        SECONDS, "delay before the first retry; each further one waits twice as long, at most 30 s", 0.2
    )
    on_failure: Literal["stop", "dead-letter"] = option(
        one_of("stop", "dead-letter"),
        "the action after the last attempt. ``stop``: the group ends with a HandlerError, and the message is in its place for the next member. "
        "``dead-letter``, of a `ConsumerGroup`: the message is rejected, and the broker moves it to the queue's dead-letter exchange",
        "stop",
    )
    reconnect_timeout_s: float = option(
        SECONDS,
        "maximum time to reconnect after a loss, in a `StreamGroup` of all streams; 0 disables it. While one stream is read, a lost one is "
        "subscribed again without such a limit",
        Retries.reconnect_timeout_s,
    )
    reconnect_backoff_s: float = option(
        SECONDS,
        "delay before the first attempt; each further one waits twice as long, at most 2 s",
        Retries.backoff_s,
    )

    def __post_init__(self) -> None:
        check_options(self)


@documented()
@dataclass(frozen=True)
class GroupReading:
    """How a member of a `StreamGroup` reads its streams. The group validates it."""

    start: OffsetSpec = option(
        ValueKind("as for `StreamReader` with a name"),
        "where to start in a stream without a stored offset",
        "first",
    )
    include: Collection[str] = option(
        ValueKind("list of `str`"), "further columns of the batches, as for `StreamReader`", ()
    )
    on_missing: Literal["raise", "count"] = option(
        one_of("raise", "count"),
        "whether rows that retention has removed before they were handled raise a MissingRowsError, or are counted in `missing`, with a "
        "warning in the log",
        "raise",
    )
    batch_rows: int = option(COUNT, "maximum number of rows of a batch", 65_536)


# -- the options


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """The options of every group. It is not validated: a traceback of its constructor would show the password."""

    member: str | None = option(
        _MEMBER,
        "a name that is unique among the members and stays the same after a restart, for example the pod's name",
        otherwise="the host's name and the process id",
    )
    on_lost: Hook | None = option(
        _HOOK, "called with the name of a queue or stream when this member no longer owns it"
    )
    failures: FailurePolicy = option(
        value_of(FailurePolicy),
        "the action after a failure of a handler, or of the connection",
        FailurePolicy(),
    )
    timing: GroupTiming | None = option(
        ValueKind("`GroupTiming`"), "the times of the group", otherwise="`GroupTiming()`"
    )
    credentials: Credentials | None = option(
        ValueKind("function"),
        "returns an OAuth 2 token and its expiry (an aware datetime, or seconds since 1970), instead of a password in the URL. It is called "
        "again, also in other threads, before the token expires; open connections get the new token",
    )


@dataclass(frozen=True)
class QueueGroupOptions(GroupOptions):
    """The options of `ConsumerGroup`."""

    url: str | ConnectionSettings = field(
        repr=False,
        metadata=declared(
            ValueKind("`str` or `ConnectionSettings`"), "the AMQP URI, or the settings of a connection"
        ),
    )
    queues: GroupQueues = field(
        metadata=declared(
            ValueKind("list of `str`, `HashRing`, `SlotTable` or `ModulusHashExchange`"),
            "the names of the queues; or a ring, slot table or exchange, whose queues are consumed",
        )
    )
    _: KW_ONLY
    weight: float = option(
        _WEIGHT,
        "this member's relative share: a member of weight 2 is assigned twice as many queues as one of weight 1",
        1.0,
    )
    concurrency: int = option(
        whole(1, _MAX_CONCURRENCY),
        "the number of messages of one queue that are handled at a time. The messages of a key are handled one after the other",
        1,
    )
    prefetch: int = option(
        ValueKind(f"`int`, `concurrency` to {_MAX_PREFETCH}"),
        "the number of messages of one queue that the broker may deliver ahead. When a queue moves to another member, messages that were not started are "
        "requeued in their place. A queue with a delivery limit delivers `concurrency` messages at a time, and one with the argument "
        "``x-consumer-timeout`` one message from RabbitMQ 4.3 on",
        32,
    )
    on_gained: Hook | None = option(
        _HOOK, "called with the name of a queue before the first message of a queue that this member gains"
    )
    journal: str | None = option(
        TEXT, "the stream that announces members and assigns generations. None for no journal", JOURNAL
    )
    static: tuple[int, int] | None = option(
        ValueKind("(index, count)"),
        "this member consumes every count-th queue only. For releases before 4.0 without a journal",
    )


@dataclass(frozen=True)
class StreamGroupOptions(GroupOptions):
    """The options of `StreamGroup`."""

    url: StreamTargets = field(
        repr=False,
        metadata=declared(
            ValueKind("`str` or `ConnectionSettings`, or a list of them"),
            "as for `StreamReader`; several are tried in turn",
        ),
    )
    _: KW_ONLY
    streams: Iterable[str] | None = option(ValueKind("list of `str`"), "the names of the streams")
    super_stream: str | None = option(
        TEXT, "the super stream whose partitions are shared, instead of `streams`"
    )
    name: str = field(
        metadata=declared(TEXT, "the name of the group. The broker stores the offsets under it")
    )
    reading: GroupReading = option(
        value_of(GroupReading), "where to start, the columns, and the size of a batch", GroupReading()
    )
    on_gained: GainedHook | None = option(
        _HOOK,
        "called with the name of a stream before the first batch of a stream that this member gains. It returns where to start, as `GroupReading.start`; "
        "None for the offset after the stored one. If it raises, it is called again, like a handler",
    )
    addresses: Mapping[str, str] | None = option(
        ValueKind("mapping of `str` to `str`"),
        'the address to connect to for an address that a node advertises: ``{"rabbit-0:5552": "127.0.0.1:15552"}``',
    )


# -- a member


@dataclass(frozen=True)
class GroupMember:
    """What a member of either kind of group is made of. `member_of` takes each field from the option of its name."""

    name: str
    weight: float = QueueGroupOptions.weight
    concurrency: int = QueueGroupOptions.concurrency
    prefetch: int = QueueGroupOptions.prefetch
    failures: FailurePolicy = GroupOptions.failures
    on_gained: Hook | None = None
    on_lost: Hook | None = None
    timing: GroupTiming = field(default_factory=GroupTiming)
    journal: str | None = JOURNAL

    def __post_init__(self) -> None:
        check_whole("prefetch", self.prefetch, self.concurrency, _MAX_PREFETCH)

    def retry_delay_s(self, attempts: int) -> float:
        """Return the delay before the next attempt, in seconds, after 1 or more failed attempts."""
        return Backoff(self.failures.backoff_s, _MAX_BACKOFF_S).delay_s(attempts - 1)


def member_of(options: GroupOptions, **own: Any) -> GroupMember:
    """Return the member of a group's options; `own` are the fields that are not the option of their name."""
    values = {
        each.name: getattr(options, each.name) for each in fields(GroupMember) if hasattr(options, each.name)
    }
    values["name"] = f"{socket.gethostname()}-{os.getpid()}" if options.member is None else options.member
    values["timing"] = options.timing or GroupTiming()
    return GroupMember(**values | own)


# -- Tasks and waits of consumers: of hooks, for events, for publishing while the broker may block publishers, and before reconnecting; `waiting`, `LoopWatch`


_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_MAX_WAIT_S = 2.0
#: Seconds before a failed publish is repeated, and the number of failures in a row of which the last is a warning.
REPUBLISH_S = 1.0
_LASTING = 3
#: A member that cannot write for so long, since the broker blocks publishers, goes on without.
BLOCKED_S = 2.0
#: The time limit of handlers and hooks that are cancelled, in seconds.
CANCELLED_S = 5.0
#: What waits for so long logs once what it waits for, in seconds.
LONG_S = 10.0
_HOOKS: set[asyncio.Task[Any]] = set()  # that run: the event loop would not keep them


@contextmanager
def waiting(name: str, what: str) -> Iterator[None]:
    """Log once that `name` waits in this block for `what`, if it takes more than `LONG_S`. A thread may use it, too."""
    log = partial(_log.warning, "%s has waited for %g s for %s", name, LONG_S, what)
    try:
        timer: asyncio.TimerHandle | Timer = asyncio.get_running_loop().call_later(LONG_S, log)
    except RuntimeError:  # no event loop
        timer = Timer(LONG_S, log)
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class LoopWatch:
    """Measures how long the event loop of a member has not answered. Every thread may read it.

    Args:
        timeout_s: the longest silence in seconds.
    """

    def __init__(self, timeout_s: float = math.inf) -> None:
        self.timeout_s = timeout_s
        self._interval_s = min(1.0, timeout_s / 4)
        self._answered_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def silence_s(self) -> float:
        """The seconds since the last answer, not more than some seconds while the loop is not blocked."""
        # Before the last answer is read, so that an answer in between does not look late.
        now = time.monotonic()
        return now - self._answered_at

    @property
    def is_late(self) -> bool:
        """Whether the silence is too long. It remains so until `start` has called its function."""
        return self.silence_s > self.timeout_s

    def start(self, on_late: Callable[[float], None]) -> None:
        """Watch the running loop; call a function in it with the length of a silence that was too long, when it answers again."""
        silence_s = self.silence_s
        if silence_s > self.timeout_s:
            on_late(silence_s)
        self._answered_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self.start, on_late)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._answered_at = math.inf


async def call_hook(hook: Callable[[str], Awaitable[_T]], queue: str, seconds: float) -> _T:
    """Return what a user's hook returns. It runs in a task of its own: it may cancel itself, and may go on although it is cancelled.

    Raises:
        TimeoutError: it had not ended in time, and was cancelled.
        asyncio.CancelledError: this task was cancelled, and the hook with it; or the hook ended so.
        BaseException: what the hook raised.
    """

    async def call() -> _T:  # a task takes no other awaitable
        return await hook(queue)

    task = asyncio.get_running_loop().create_task(call())
    _HOOKS.add(task)
    task.add_done_callback(_HOOKS.discard)
    try:
        with waiting(queue, "a hook to return: look what on_gained or on_lost waits for"):
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        if not (task.done() or task.cancelling()):  # otherwise the event loop ends, and has cancelled it
            task.cancel()
        await asyncio.wait({task}, timeout=CANCELLED_S)
        if task.cancelled() or not task.done():
            raise
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCELLED_S)
        if not task.done():
            raise TimeoutError(f"it has not ended after {seconds:g} s, and goes on although it was cancelled")
        if task.cancelled():
            raise TimeoutError(f"it had not ended after {seconds:g} s")
    return task.result()


def start_task(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    """Start a task, and keep it in `tasks` until it ends: the event loop would not keep it."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def wait_unless_blocked(
    waited: asyncio.Future[Any], seconds: float, is_blocked: Callable[[], Awaitable[bool]]
) -> bool:
    """Wait for a future that depends on publishing; return whether it is done in time. Otherwise it is cancelled.

    The limit starts over whenever the broker blocks publishers at its beginning or its end.
    """
    try:
        blocked = await is_blocked()
        while not waited.done():
            await asyncio.wait({waited}, timeout=seconds)
            was_blocked = blocked
            blocked = await is_blocked()
            if not (waited.done() or was_blocked or blocked):
                return False
        return True
    finally:
        waited.cancel()


async def wait_to_publish(failures: int, cause: RabbitChxError, queue: str) -> None:
    """Wait before publishing is repeated after so many failures in a row; the third one is a warning."""
    level = logging.WARNING if failures == _LASTING else logging.INFO
    text = "%s; publishing to %s again in %g s"
    _log.log(level, text, cause, queue, REPUBLISH_S, extra={"queue": queue})
    await asyncio.sleep(REPUBLISH_S)


async def wait_for_any(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until one of the events is set; return False after the time limit."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)


async def wait_to_reconnect(
    retries: Retries,
    outage: Outage | None,
    cause: RabbitChxError,
    stop: asyncio.Event,
    *,
    name: str,
    lost_at: float | None = None,
) -> Outage:
    """Wait before the next attempt to connect, and return the present outage; raise the cause if retries are used up or cannot succeed.

    Args:
        retries: the limits.
        outage: the present outage; None begins one.
        cause: the error that ended the connection or the last attempt.
        stop: ends the wait.
        name: the consumer, for the log.
        lost_at: when an outage that begins has begun, by ``time.monotonic()``; None for now.
    """
    outage = outage or Outage(retries, cause, time.monotonic() if lost_at is None else lost_at)
    outage.last = cause
    # For a publisher a time-out means a blocking broker. For a consumer it means a missing response, after which a retry may succeed.
    # A vhost that is refused was open before: a limit of connections may be the reason, which the stream protocol does not tell.
    may_pass = isinstance(cause, BrokerTimeoutError) or may_be_limit(cause)
    if not may_pass and not outage.is_recoverable(cause):
        raise outage.end_error(cause) from cause
    wait_s = outage.retry.wait_s(time.monotonic(), jitter())
    if wait_s is None:
        raise outage.give_up_error(time.monotonic()) from cause
    wait_s = min(wait_s, _MAX_WAIT_S)
    outage.retry.attempts += 1
    _log.warning("%s: %s; connecting again in %.1f s", name, cause, wait_s)
    await wait_for_any(stop, timeout_s=wait_s)
    return outage

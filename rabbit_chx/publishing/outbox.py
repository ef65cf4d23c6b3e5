"""Messages between the threads that submit them and the thread that sends them: bounds, outcomes, counts. No I/O.

A message is *waiting* while there is no room for it, then *queued*, then *sent*; it leaves the outbox with its outcome. Each method may be
called from any thread. Outcomes are passed on outside of the lock: a callback of a future may submit again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

from rabbit_chx.amqp.frames import FRAME_MAX, Return
from rabbit_chx.connection.failures import unknown_outcome
from rabbit_chx.connection.session import OpenConnection, RowLedger
from rabbit_chx.errors import InputError, NackedError, RabbitChxError, RowError, UnroutableError
from rabbit_chx.publishing.batches import BATCH_BYTES
from rabbit_chx.publishing.encoder import Rows, longest_properties, too_large
from rabbit_chx.publishing.publish_report import Returns, RowBatch, close_error, unroutable_remedy
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.text import plural

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

_log = logging.getLogger(__name__)

_FRAMES_BYTES = 60  # of a small message, around key, properties and body


@dataclass(eq=False, slots=True)
class Message:
    """A message, encoded, and its future.

    Attributes:
        future: the future of the caller.
        since: the time of its submission, in seconds of a monotonic clock.
        loop: the event loop of an asyncio future; None for a `concurrent.futures.Future`.
        size: bytes on the wire, about.
        number: its place in the order of submission.
        expires_at: the time at which it gets an error.
        is_sent: whether it was sent at least once.
        has_room: released when a message that waited is queued.
        on_unread: called with an error that nobody can get: the await was cancelled, or its event loop is closed.
    """

    key: bytes
    body: bytes
    properties: bytes
    exchange: bytes
    future: Future[None] | asyncio.Future[None]
    since: float
    loop: asyncio.AbstractEventLoop | None = None
    size: int = 0
    number: int = -1
    expires_at: float = math.inf
    is_sent: bool = False
    has_room: threading.Lock | None = None
    on_unread: Callable[[BaseException], object] | None = None

    def __post_init__(self) -> None:
        self.size = len(self.key) + len(self.body) + len(self.properties) + _FRAMES_BYTES


#: A message and its error; None for a confirmed one.
SettledMessage: TypeAlias = tuple[Message, RabbitChxError | None]
#: Makes the error of a message.
ErrorFor: TypeAlias = Callable[[Message], RabbitChxError]


def _figure(name: str, sentence: str, default: float | None = 0, *, only_grows: bool = False) -> Any:
    metric = Metric(f"rabbit_chx_publisher_{name}", sentence, only_grows=only_grows)
    return field(default=default, metadata=shown(metric=metric))


_count = partial(_figure, only_grows=True)


@dataclass(frozen=True, slots=True)
class SharedStats:
    """Counts of messages since the start: ``confirmed + returned + nacked + failed + in_flight == submitted``.

    Attributes:
        submitted: messages that the publisher took on.
        confirmed: messages that the broker acked and did not return.
        returned: messages that no queue took (UnroutableError).
        nacked: messages that the broker refused: with basic.nack, by closing the channel or the connection, or by smaller frames than their headers.
        failed: messages that got another error.
        unknown: those of the failed messages that may be in a queue (UnknownOutcomeError).
        in_flight: messages without an outcome.
        in_flight_bytes: their bytes.
        republished: messages sent again. Each may be a duplicate.
        reconnects: connections opened in place of another one.
        p50_s: the median time from submission to confirm, of the messages of the last minute, in seconds; None without a confirm.
        p99_s: the same for 99% of the messages.
    """

    submitted: int = _count("submitted", "Messages given to the publisher.")
    confirmed: int = _count("confirmed", "Messages that the broker confirmed and did not return.")
    returned: int = _count("returned", "Messages that no queue took.")
    nacked: int = _count("nacked", "Messages that the broker refused.")
    failed: int = _count("failed", "Messages that got another error.")
    unknown: int = _count("unknown", "Failed messages that may be in a queue.")
    in_flight: int = _figure("in_flight", "Messages without an outcome.")
    in_flight_bytes: int = _figure("in_flight_bytes", "Bytes of the messages without an outcome.")
    republished: int = _count("republished", "Messages sent again, each of them perhaps a duplicate.")
    reconnects: int = _count("reconnects", "Connections opened in place of another one.")
    p50_s: float | None = _figure("p50_seconds", "Median time until a confirm, in the last minute.", None)
    p99_s: float | None = _figure("p99_seconds", "99% of the last minute's confirms came within it.", None)

    def to_prometheus(self, **labels: object) -> str:
        """Return these counts and latencies as metrics in the text format of Prometheus.

        Args:
            labels: the labels of each metric, such as `exchange`; their values are shown as text.

        Raises:
            InputError: Prometheus does not take the name of a label.
        """
        from rabbit_chx.rendering.document import gauges_of
        from rabbit_chx.rendering.output import metrics_text

        return metrics_text(gauges_of(SharedStats, [(labels, self)]))


class Outbox:
    """Unanswered messages, in the order of their submission.

    Args:
        most: the most messages.
        most_bytes: the most bytes; a larger message is taken on alone.
        longest_s: seconds within which each message has an outcome.
        clock: returns seconds of a monotonic clock.

    Attributes:
        counts: outcomes by the names of `SharedStats`.
        closed: why later submissions are refused; None while the outbox is open.
        latencies: times from submission to confirm.
    """

    def __init__(self, most: int, most_bytes: int, longest_s: float, clock: Callable[[], float]) -> None:
        self.closed: str | None = None
        self.latencies = Latencies()
        self.counts = dict.fromkeys(("submitted", "confirmed", "returned", "nacked", "failed", "unknown"), 0)
        self._most = most
        self._most_bytes = most_bytes
        self._longest_s = longest_s
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may submit in the same thread
        self._numbers = numbers()
        self._open: dict[int, Message] = {}  # by number, in order: queued and sent
        self._bytes = 0
        self._queued: deque[Message] = deque()
        self._waiting: deque[Message] = deque()
        self._sleeps = False  # the sending thread

    # -- for submitters

    def submit(self, message: Message) -> tuple[bool, bool]:
        """Queue a message, or let it wait for room; return whether it is queued, and whether the sending thread must be woken."""
        with self._lock:
            if self.closed is not None:
                raise InputError(self.closed)
            if self._waiting or not self._has_room(message):
                message.has_room = threading.Lock()
                message.has_room.acquire()
                self._waiting.append(message)
                return False, False
            self._queue(message)
            is_asleep = self._sleeps
            self._sleeps = False
            return True, is_asleep

    def close(self, why: str) -> None:
        """Refuse later submissions."""
        with self._lock:
            self.closed = self.closed or why

    def withdraw(self, message: Message) -> bool:
        """Take back a message that waits, and queue those behind it that have room; return False if it waits no longer."""
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(message)
            self._queue_waiting()
            return True
        return False

    @property
    def is_held_by_current_thread(self) -> bool:
        """True in a signal handler or a finalizer that has interrupted a method of the outbox in its thread."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001  # as of `threading.Condition`

    def _has_room(self, message: Message) -> bool:
        return not self._open or (
            len(self._open) < self._most and self._bytes + message.size <= self._most_bytes
        )

    def _queue(self, message: Message) -> None:
        message.number = next(self._numbers)
        message.expires_at = self._clock() + self._longest_s
        self.counts["submitted"] += 1
        self._open[message.number] = message
        self._bytes += message.size
        self._queued.append(message)
        if message.has_room is not None:
            message.has_room.release()

    def _queue_waiting(self) -> None:
        while self._waiting and self._has_room(self._waiting[0]):
            self._queue(self._waiting.popleft())

    # -- for the sending thread

    @property
    def is_empty(self) -> bool:
        """True if every message has its outcome."""
        return not self._open and not self._waiting

    @property
    def open(self) -> int:
        """The number of messages without an outcome."""
        return len(self._open) + len(self._waiting)

    def is_due(self, linger_s: float, rows: int) -> bool:
        """Return whether a message is queued: the first since `linger_s` seconds, or this many of them."""
        queued = len(self._queued)
        if not queued:
            return False
        if not linger_s or queued >= rows or self.closed is not None:
            return True
        return self.linger_left_s(linger_s) <= 0.0

    def linger_left_s(self, linger_s: float) -> float:
        """Return the seconds until the first queued message is due; infinity without one."""
        with self._lock:
            return max(0.0, self._queued[0].since + linger_s - self._clock()) if self._queued else math.inf

    def sleep(self) -> bool:
        """Announce a wait, which the next submission ends; return False if a message is queued already."""
        with self._lock:
            self._sleeps = not self._queued
            return self._sleeps

    def take(self, rows: int, most_bytes: int) -> tuple[list[int], Rows] | None:
        """Take the next queued messages, at least one; return their numbers and columns, or None without one."""
        taken: list[Message] = []
        size = 0
        with self._lock:
            while self._queued and len(taken) < rows and (not taken or size < most_bytes):
                message = self._queued.popleft()
                if message.number in self._open:  # it has not expired
                    message.is_sent = True
                    taken.append(message)
                    size += message.size
            self._sleeps = False
        if not taken:
            return None
        return [message.number for message in taken], _join(taken)

    def find_open(self, numbers: Sequence[int]) -> list[int]:
        """Return the indices of the messages without an outcome."""
        open_ = self._open
        return [i for i, number in enumerate(numbers) if number in open_]

    def settle(
        self, numbers: Iterable[int], kind: str = "confirmed", error_for: ErrorFor | None = None
    ) -> None:
        """Give messages their outcome, and queue those that wait for room.

        Args:
            numbers: the messages; those that have an outcome keep it.
            kind: the count of `SharedStats`.
            error_for: returns the error of each; None for confirmed messages.
        """
        with self._lock:
            done = [message for number in numbers if (message := self._open.pop(number, None)) is not None]
            self._bytes -= sum(message.size for message in done)
            self.counts[kind] += len(done)
            if kind == "failed":
                self.counts["unknown"] += sum(message.is_sent for message in done)
            self._queue_waiting()
        if error_for is None:
            self.latencies.add(self._clock(), [message.since for message in done])
        _pass_on(done, error_for)

    def fail(self, error_for: ErrorFor, *, waiting: bool = False) -> int:
        """Give all messages an error, on request also those that wait for room; return their number."""
        with self._lock:
            while waiting and self._waiting:
                self._queue(self._waiting.popleft())
            numbers = list(self._open)
            self._queued.clear()
        self.settle(numbers, "failed", error_for)
        return len(numbers)

    def left_s(self) -> float:
        """Return the seconds until the first message expires, or one that is submitted now."""
        with self._lock:
            first = next(iter(self._open.values()), None)
        return self._longest_s if first is None else first.expires_at - self._clock()

    def expire(self, error_for: ErrorFor) -> None:
        """Give an error to messages that have waited for their outcome for too long."""
        now = self._clock()
        with self._lock:
            first = next(iter(self._open.values()), None)
            if first is None or first.expires_at > now:
                return
            open_ = list(self._open.items())  # a finalizer may submit meanwhile
            late = [number for number, message in open_ if message.expires_at <= now]
        self.settle(late, "failed", error_for)

    def stats(self, republished: int, reconnects: int) -> SharedStats:
        """Return the current counts."""
        with self._lock:
            counts = dict(self.counts)
            open_ = len(self._open)
            size = self._bytes
        p50_s, p99_s = self.latencies.quantiles(self._clock(), (0.5, 0.99))
        return SharedStats(
            **counts,
            in_flight=open_,
            in_flight_bytes=size,
            republished=republished,
            reconnects=reconnects,
            p50_s=p50_s,
            p99_s=p99_s,
        )


def _join(messages: Sequence[Message]) -> Rows:
    return Rows(
        [message.key for message in messages],
        [message.body for message in messages],
        [message.properties for message in messages],
        [message.exchange for message in messages],
    )


_here = threading.local()


def is_in_callback() -> bool:
    """Return whether this thread completes futures: a callback of one must not wait for another, which may be the next one."""
    return getattr(_here, "completes", False)


def _pass_on(messages: Iterable[Message], error_for: ErrorFor | None) -> None:
    """Complete the futures; each event loop is woken once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[SettledMessage]] = defaultdict(list)
    own: list[SettledMessage] = []
    for message in messages:
        outcome = message, error_for and error_for(message)
        (own if message.loop is None else by_loop[message.loop]).append(outcome)
    for loop, those in by_loop.items():
        try:
            loop.call_soon_threadsafe(_complete_all, those)
        except RuntimeError:  # the loop is closed, and nobody awaits
            for message, error in those:
                _drop(message, error)
    _complete_all(own)


def _complete_all(outcomes: Iterable[SettledMessage]) -> None:
    """Complete futures, each of them whatever a callback raises. Ctrl-C and the like are raised at the end in the thread that gets them."""
    left = deque(outcomes)
    interruption: BaseException | None = None
    was_completing = is_in_callback()
    _here.completes = True

    try:
        while left:
            try:
                while left:
                    message, error = left[0]
                    if message.future.done():  # the await was cancelled
                        _drop(message, error)
                    elif error is None:
                        message.future.set_result(None)
                    else:
                        message.future.set_exception(error)
                    left.popleft()
            # SystemExit of a callback, Ctrl-C: the other futures must be done, too.
            except BaseException as cause:  # noqa: BLE001
                _log.exception("a callback of a future raised an exception")
                interruption = interruption or cause
    finally:
        _here.completes = was_completing

    if interruption is not None and threading.current_thread() is threading.main_thread():
        raise interruption


def _drop(message: Message, error: RabbitChxError | None) -> None:
    """Tell the error of a message that nobody awaits any more."""
    if error is not None and message.on_unread is not None:
        message.on_unread(error)


_SLOTS = 6
_SLOT_S = 10.0
_FINEST_S = 1e-5
_GROWTH = math.log(1.05)
_BUCKETS = 400  # up to an hour


class Latencies:
    """Times of the last minute, in buckets of 5%: about 20 kB, whatever the rate."""

    def __init__(self) -> None:
        self._slots: deque[tuple[float, list[int]]] = deque(maxlen=_SLOTS)

    def add(self, now: float, since: Iterable[float]) -> None:
        """Add the times from `since` until now; one thread at a time calls this."""
        if not self._slots or now >= self._slots[-1][0] + _SLOT_S:
            self._slots.append((now, [0] * _BUCKETS))
        counts = self._slots[-1][1]
        for began in since:
            bucket = int(math.log(max(now - began, _FINEST_S) / _FINEST_S) / _GROWTH)
            counts[min(bucket, _BUCKETS - 1)] += 1

    def quantiles(self, now: float, shares: Sequence[float]) -> list[float | None]:
        """Return the times in seconds below which these shares of the times are; None without a time."""
        counts = [0] * _BUCKETS
        for began, slot in list(self._slots):
            if now - began < _SLOTS * _SLOT_S:
                counts = list(map(add, counts, slot))
        total = sum(counts)
        if not total:
            return [None] * len(shares)
        return [_FINEST_S * math.exp(_GROWTH * (_bucket_of(counts, share * total) + 0.5)) for share in shares]


def _bucket_of(counts: Sequence[int], rank: float) -> int:
    reached = 0
    for bucket, count in enumerate(counts):
        reached += count
        if reached >= rank:
            return bucket
    return len(counts) - 1


# -- The messages of an outbox as messages of a delivery, each with its own outcome. No I/O, no clock
# - A confirm, a return and a refusal are outcomes of one message. Refusals are counted per message, and end no operation.
# - A message whose headers do not fit into the broker's frames is not sent.
# - A message of which a connection ended without an answer gets UnknownOutcomeError, if its next copy is returned or refused.
# - A message that closes the channel or the connection gets the error of the close, and so do open messages to the same missing exchange.


_IDLE_POLL_S = 1.0


class OutboxRows:
    """The source of a delivery's messages, and what becomes of them: `MessageSupply` and `DeliveryOutcomes`.

    Args:
        outbox: the messages.
        batch_rows: the most messages of a batch.
        linger_s: seconds for which a message may wait for others.
    """

    def __init__(self, outbox: Outbox, batch_rows: int, linger_s: float) -> None:
        self._outbox = outbox
        self._batch_rows = batch_rows
        self._linger_s = linger_s
        self._ledger = RowLedger[RowBatch]()
        self._returned: dict[int, Return] = {}  # by number, until they are acked
        self._in_doubt: set[int] = set()  # those of them that may be in a queue from before
        self._returns = Returns(self._ledger)
        self._longest_properties = longest_properties(FRAME_MAX)

    # -- as `MessageSupply`

    @property
    def is_over(self) -> bool:
        """True if the outbox is closed and empty."""
        return self._outbox.closed is not None and self._outbox.is_empty

    def is_due(self) -> bool:
        """Return whether enough messages are queued, or one for long enough."""
        return self._outbox.is_due(self._linger_s, self._batch_rows)

    def take(self) -> RowBatch | None:
        """Take the next messages; None without one."""
        taken = self._outbox.take(self._batch_rows, BATCH_BYTES)
        return None if taken is None else RowBatch(taken[1], taken[0])

    def idle_s(self, longest_s: float, *, may_send: bool) -> float:
        """Return the seconds of the next poll, which a submission ends."""
        wait_s = _IDLE_POLL_S if self._outbox.is_empty else longest_s
        if may_send and not self._outbox.sleep():
            wait_s = min(wait_s, self._outbox.linger_left_s(self._linger_s))
        return wait_s

    # -- as `DeliveryOutcomes`

    @property
    def may_end(self) -> bool:
        """True if every message has its outcome."""
        return self._outbox.is_empty

    def attach(self, connection: OpenConnection) -> None:
        """Note the confirms and returns of this connection by message."""
        self._ledger = connection.session.ledger = RowLedger[RowBatch]()
        self._returned, self._in_doubt, self._returns = {}, set(), Returns(self._ledger)
        self._longest_properties = longest_properties(connection.session.frame_max)
        connection.session.on_returned = self._on_returned

    def settle(self) -> None:
        """Give the messages that were acked since the last call their outcome."""
        ledger = self._ledger
        if not ledger.confirmed:
            return
        confirmed = ledger.confirmed
        ledger.confirmed = []
        if self._returned:
            for number in self._returned.keys() & set(confirmed):
                is_in_doubt = number in self._in_doubt
                error_for = partial(_unroutable, self._returned.pop(number))
                self._settle([number], "returned", error_for, is_in_doubt=is_in_doubt)
        self._outbox.settle(confirmed)

    def pending(self, batch: RowBatch) -> RowBatch | None:
        """Return the messages that have not expired; those with too long headers get their error."""
        most = self._longest_properties
        sizes = map(len, batch.rows.properties or ())
        oversized = [number for number, size in zip(batch.numbers, sizes, strict=False) if size > most]
        if oversized:
            error_for = partial(_frame_error, most)
            self._settle(oversized, "nacked", error_for, is_in_doubt=batch.may_be_stored)
        indices = self._outbox.find_open(batch.numbers)
        return batch.pick(indices) if indices else None

    def refusals(self, batch: RowBatch, _acked: int) -> int:
        """Return all refusals."""
        return batch.refusals

    def refuse(self, batch: RowBatch) -> None:
        """Give messages that the broker refused too often their error."""
        self._settle(batch.numbers, "nacked", _nack_error, is_in_doubt=batch.doubt is not None)

    def close(self, closed: Sequence[RowBatch], cause: RabbitChxError, _error: RabbitChxError) -> None:
        """Give messages the error of a close, each with its own name."""
        for batch in closed:
            error_for = partial(_close_error, cause)
            self._settle(batch.numbers, "nacked", error_for, is_in_doubt=batch.may_be_stored)

    def _settle(self, numbers: Sequence[int], kind: str, error_for: ErrorFor, *, is_in_doubt: bool) -> None:
        """Give refused messages their error: if a queue may have them from before, one that says so."""
        if is_in_doubt:
            self._outbox.settle(numbers, "failed", lambda message: unknown_outcome(error_for(message)))
        else:
            self._outbox.settle(numbers, kind, error_for)

    def _on_returned(self, returned: Return, properties: bytes, body: bytes) -> None:
        """Find the message that was returned."""
        if (found := self._returns.find(returned, properties, body)) is not None:
            batch, number = found
            self._returned[number] = returned
            if batch.may_be_stored:
                self._in_doubt.add(number)


def _unroutable(returned: Return, message: Message) -> UnroutableError:
    exchange = _exchange(message)
    return UnroutableError(
        f"exchange {exchange!r}: no queue took {_named(message)} (reply code "
        f"{returned.code}, {returned.text}): {unroutable_remedy(returned)}",
        exchange=exchange,
        reply_code=returned.code,
    )


def _named(message: Message) -> str:
    return f"the message with the routing key {message.key.decode(errors='backslashreplace')!r:.80}"


def _exchange(message: Message) -> str:
    return message.exchange.decode(errors="backslashreplace")


def _nack_error(message: Message) -> NackedError:
    exchange = _exchange(message)
    return NackedError(
        f"exchange {exchange!r}: the broker rejected {_named(message)} (basic.nack): a queue is "
        "full and its overflow is reject-publish, or it has no majority of its nodes",
        exchange=exchange,
    )


def _frame_error(most: int, message: Message) -> RowError:
    return RowError(too_large(message.properties, most), exchange=_exchange(message))


def _close_error(cause: RabbitChxError, message: Message) -> RabbitChxError:
    return close_error(cause, _named(message), _exchange(message))


# -- Errors of futures that nobody has asked for: a bounded warning for each kind, as asyncio has for its futures


_EVERY_S = 10.0
_MOST_EXCHANGES = 3


class UnreadErrors:
    """Counts errors by kind. A kind is logged at once, and then at most once in ten seconds; `flush` logs the rest.

    Args:
        name: the publisher.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._lock = threading.RLock()  # a finalizer may run in a thread that holds it
        self._held: dict[str, Counter[str]] = {}  # by kind, of futures that may still be asked
        self._dropped: dict[str, Counter[str]] = {}  # by kind, not logged
        self._next_at: dict[str, float] = {}

    def hold(self, error: BaseException) -> Unread:
        """Return a mark for the future of this error: if it is collected before `read`, nobody has asked for the error."""
        kind = type(error).__name__
        exchange = getattr(error, "exchange", None) or ""
        with self._lock:
            _LEFT.add(self)
            self._held.setdefault(kind, Counter())[exchange] += 1
        return Unread(self, kind, exchange)

    def release(self, kind: str, exchange: str, *, is_dropped: bool) -> None:
        """Forget an error that was asked for, or log one that never will be."""
        if os.getpid() != self._process or self not in _LEFT:
            return  # the parent process has the future, too; or the process ends, and all are counted
        with self._lock:
            self._held[kind][exchange] -= 1
            if not is_dropped:
                return
            self._dropped.setdefault(kind, Counter())[exchange] += 1
            now = time.monotonic()
            if now < self._next_at.get(kind, 0.0):
                return
            self._next_at[kind] = now + _EVERY_S
            counts = self._dropped.pop(kind)
        self._tell(kind, counts)

    def flush(self, *, is_end: bool = False) -> None:
        """Log what was not logged; at the end of the process also the errors of futures that still exist."""
        if os.getpid() != self._process:
            return
        with self._lock:
            kinds = self._dropped
            self._dropped = {}
            if is_end:
                _LEFT.discard(self)
                for kind, counts in self._held.items():
                    kinds[kind] = kinds.get(kind, Counter()) + counts
        for kind, counts in kinds.items():
            self._tell(kind, counts)

    def _tell(self, kind: str, counts: Counter[str]) -> None:
        if not (total := counts.total()):
            return
        names = [f"{exchange!r} {count:,}" for exchange, count in counts.most_common(_MOST_EXCHANGES)]
        others = len(counts) - len(names)
        _log.warning(
            "%s: %s with %s, and nobody has asked their futures for it (by exchange: %s%s): look at the result of each future, or at stats()",
            self._name,
            f"{plural(total, 'message')} ended",
            kind,
            ", ".join(names),
            f", {others:,} others" if others else "",
        )


class Unread:
    """Belongs to the future of an error that nobody has asked for."""

    __slots__ = ("_about", "_errors")

    def __init__(self, errors: UnreadErrors, kind: str, exchange: str) -> None:
        self._errors: UnreadErrors | None = errors
        self._about = kind, exchange

    def read(self) -> None:
        """Note that somebody has asked for the error."""
        errors = self._errors
        self._errors = None
        if errors is not None:
            errors.release(*self._about, is_dropped=False)

    def __del__(self) -> None:
        if self._errors is not None and not sys.is_finalizing():
            self._errors.release(*self._about, is_dropped=True)


#: Those with an error so far. They outlive their publishers, whose futures may be asked later.
_LEFT: set[UnreadErrors] = set()


def tell_left() -> None:
    """Log what is left of all publishers, at the end of the process."""
    for errors in list(_LEFT):
        errors.flush(is_end=True)

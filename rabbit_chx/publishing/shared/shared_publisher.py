"""The publisher that threads and event loops share: a connection for single messages, and one for bulk, each with a thread of its own.

*Roles.* A `SharedPublisher` submits messages to its `Outbox`; a `_Worker` in a daemon thread executes the steps of a `Delivery` over a
blocking connection. The worker does not refer to the publisher, so that a publisher that nobody closes is collected.

*Outages.* A delivery that fails gives its error to every open message. The worker then begins another delivery: at once for messages, and
without messages with pauses between its attempts, so that `healthy` recovers by itself.

*Bulk.* `_Bulk` calls a `Publisher` in another thread. It opens it for the first call, keeps it, and replaces it after an error.

*Exit.* The daemon thread runs until the interpreter stops it, after the functions of `atexit`. One of them waits for open messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from rabbit_chx.checks import check_seconds
from rabbit_chx.connection.blocking_connection import Connection, Waker
from rabbit_chx.errors import (
    BufferFullError,
    ConnectionLostError,
    InputError,
    MismatchError,
    RabbitChxError,
    UnknownOutcomeError,
    UnreachableError,
)
from rabbit_chx.options import documented, options_of, takes
from rabbit_chx.publishing.batches import Column, PropertyColumns, named_columns
from rabbit_chx.publishing.client_routing import DEFAULT_EXCHANGE
from rabbit_chx.publishing.delivery import Close, Delivery, Open, Poll, Sleep, Step, drive
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.options import CommonOptions, Retries, SharedOptions
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.publishing.publisher import Publisher
from rabbit_chx.publishing.publisher_base import PublisherBase
from rabbit_chx.publishing.shared.outbox import ErrorFor, Message, Outbox, SharedStats, completes_here
from rabbit_chx.publishing.shared.outbox_rows import OutboxRows
from rabbit_chx.retry import Backoff, chance
from rabbit_chx.tracing import TRACED_BY, UNTRACED, publisher_span
from rabbit_chx.words import plural

_log = logging.getLogger(__name__)

_EXIT_S = 5.0
_LAST_S = 1.0  # for the thread to notice that it must end
_SHORTEST_S = 0.25  # for an attempt to connect, and between two looks for messages that have expired
_SHORTEST_POLL_S = 0.01  # of those that end with the time of a message
#: The life of a connection after which the next one is opened at once, also without messages.
_STEADY_S = 10.0
#: The longest pause after a second failure to connect, for messages, too.
_LONGEST_PAUSE_S = 1.0
#: The pauses between attempts to connect while there is no message.
_IDLE_PAUSES = Backoff(1.0, 30.0)


@documented(SharedOptions)
class SharedPublisher(PublisherBase):
    """Publishes for any number of threads and event loops: single messages over one connection, which a thread of its own serves.

    Each message has its own outcome, and no message gets the error of another. What is submitted while the last write is under way is
    written next, together. The messages of one thread, or of one event loop, are sent in the order of their submission. Delivery is at least
    once, as of `Publisher`. Many rows at once are faster with `publish_many`, which has a connection of its own.

    The constructor starts the thread, which connects; it does not wait. The publisher lives as long as the process: a lost connection is
    replaced, and an outage beyond `reconnect_timeout_s` is the error of the messages of that time only. Leaving the ``with`` block or the
    ``async with`` block waits for the outcomes, as `close` does. At the exit of the interpreter the open messages get up to 5 s; a warning
    counts the rest. A call of `publish_many` that runs then is finished first. In a forked process, a call that publishes raises InputError. A publisher cannot be pickled.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument is invalid.

    Example::

        publisher = SharedPublisher("amqp://localhost", exchange="orders")
        publisher.submit("customer-42", body).result()  # in any thread
        await publisher.publish("customer-42", body)  # in any event loop
        report = await publisher.publish_many(keys, bodies)
        publisher.close()
    """

    @takes(SharedOptions)
    def __init__(self, options: SharedOptions) -> None:
        super().__init__(options)
        limits, retries = options.limits, _shared_retries(options.retries)
        if self._read_ring is not None:
            self._take(self._read_ring())
        self._block_s = options.block_s
        self._constant = self._defaults.properties.constant
        self._own_exchange = DEFAULT_EXCHANGE if self._defaults.routing else self.exchange.encode()
        longest_s = options.retries.reconnect_timeout_s + limits.confirm_timeout_s + limits.blocked_timeout_s
        self._outbox = Outbox(limits.max_in_flight, limits.max_in_flight_bytes, longest_s, time.monotonic)
        self._worker = _Worker(
            self._owner.name,
            self._outbox,
            partial(OutboxRows, self._outbox, self._defaults.batch_rows, options.linger_s),
            partial(
                Delivery,
                self._targets,
                self._encoder_for,
                limits,
                clock=time.monotonic,
                chance=chance,
                exchange=self.exchange,
            ),
            retries,
        )
        bulk = {name: getattr(options, name) for name in options_of(CommonOptions)} | {
            "url": self._targets,  # with name and credentials
            "connection_name": None,
            "credentials": None,
            "retries": retries,
        }
        self._bulk = _Bulk(self._owner.name, partial(Publisher, **bulk))
        _WORKERS.add(self._worker)
        self._worker.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def submit(
        self, key: str | bytes, body: str | bytes, *, exchange: str | None = None, **properties: Any
    ) -> Future[None]:
        """Submit a message, and return at once. While the buffer is full, wait for at most `block_s` seconds.

        The future is done when the broker has confirmed the message. It cannot be cancelled. Its callbacks run in the publisher's thread:
        a callback that waits delays all messages. There `submit` does not wait for room, and the result of a message that has no outcome
        yet raises InputError: that message would wait for the callback.

        Args:
            key: the routing key, as str (UTF-8) or bytes.
            body: the body, likewise.
            exchange: the message's exchange; None is that of the publisher.
            properties: message properties by name (``message_id``, ``headers``, ...); None is the publisher's own value, if any.

        Returns:
            A future with the result None, or with the error of this message:

            - UnroutableError: no queue takes it.
            - NackedError: the broker refuses it (basic.nack).
            - Another BrokerRefusedError: the broker closes the channel or the connection over it, or refuses the login.
            - UnknownOutcomeError: it was sent and not answered in time. It may be in a queue.
            - UnreachableError: there was no connection in time. It was not sent.

        Raises:
            BufferFullError: the buffer stayed full.
            InputError: the publisher is closed, or belongs to another process, or there is no such message property.
            RowError: the message cannot be sent: the type or the size of a value.
        """
        self._owner.check()
        future = _Outcome(self._worker.thread)
        future.set_running_or_notify_cancel()  # nobody can recall a message
        with publisher_span(self.exchange, exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            try:
                message = Message.of(
                    self._rows(key, body, exchange, properties, trace), future, time.monotonic()
                )
            except InputError as cause:
                raise _without_number(cause) from None
            if not self._submit(message):
                self._wait_for_room(message)
        return future

    async def publish(
        self, key: str | bytes, body: str | bytes, *, exchange: str | None = None, **properties: Any
    ) -> None:
        """Publish a message, and wait until the broker has confirmed it. `key`, `body`, `exchange` and `properties` are as in `submit`.

        A cancelled call does not cancel the message, unless it still waits for room.

        Raises:
            RabbitChxError: as of the future that `submit` returns, or of `submit`.
        """
        self._owner.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with publisher_span(self.exchange, exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            try:
                rows = self._rows(key, body, exchange, properties, trace)
            except InputError as cause:
                raise _without_number(cause) from None
            message = Message.of(rows, future, time.monotonic(), loop)
            if self._submit(message):
                await future
                return
            timer = loop.call_later(self._block_s, self._give_up, message)
            try:
                await future
            finally:
                timer.cancel()
                self._withdraw(message)

    async def publish_many(
        self,
        keys: Column,
        bodies: Column,
        *,
        properties: PropertyColumns | None = None,
        exchanges: Iterable[str | None] | None = None,
    ) -> PublishReport:
        """Publish `keys`, `bodies`, `properties` and `exchanges` as `Publisher.publish_many`, and wait until every row is answered.

        A `Publisher` with the arguments of this one sends them, in a thread and over a connection of its own; an iterator is read in that
        thread. Calls take turns, and each has the report and the error of its own rows. `stats` does not count them. Between these rows
        and messages of `submit` and `publish` there is no order.

        A cancelled call does not stop its rows, unless it still waits for its turn: those that follow are sent, too.

        Returns:
            The counts of these rows.

        Raises:
            PublishError: a row is not confirmed; `report` has the counts, `__cause__` the reason.
            UnreachableError: there was no connection in time. Nothing was sent.
            BrokerRefusedError: the broker refuses user, password or vhost. Nothing was sent.
            InputError: the publisher is closed, or belongs to another process.
        """
        self._owner.check()
        return await asyncio.wrap_future(self._bulk.call(keys, bodies, properties, exchanges))

    def _rows(
        self,
        key: str | bytes,
        body: str | bytes,
        exchange: str | None,
        properties: Mapping[str, Any],
        trace: Mapping[str, str],
    ) -> Rows:
        columns = named_columns(
            [key],
            [body],
            {name: [value] for name, value in properties.items()},
            None if exchange is None else [exchange],
        )
        rows = self._defaults.traced(trace).rows(columns, 0)
        return replace(
            rows,
            properties=rows.properties or [self._constant],
            exchanges=rows.exchanges or [self._own_exchange],
        )

    def _submit(self, message: Message) -> bool:
        is_queued, is_asleep = self._outbox.submit(message)
        if is_asleep:
            self._worker.wake()
        return is_queued

    def _wait_for_room(self, message: Message) -> None:
        assert message.has_room is not None  # set by the outbox for a message that waits
        # A callback of a future must not wait for the thread that runs it, and nobody for a lock of their own thread.
        must_not_wait = threading.current_thread() is self._worker.thread or self._outbox.is_in_use_here
        wait_s = 0.0 if must_not_wait else min(self._block_s, threading.TIMEOUT_MAX)
        try:
            has_room = message.has_room.acquire(timeout=wait_s)
        except BaseException:  # Ctrl-C
            self._withdraw(message)
            raise
        if not has_room and self._withdraw(message):
            raise self._full(wait_s)

    def _give_up(self, message: Message) -> None:
        if self._withdraw(message) and not message.future.done():
            message.future.set_exception(self._full(self._block_s))

    def _withdraw(self, message: Message) -> bool:
        is_withdrawn = self._outbox.withdraw(message)
        if is_withdrawn:
            self._worker.wake()  # for the messages behind it
        return is_withdrawn

    def _full(self, waited_s: float) -> BufferFullError:
        stats = self.stats()
        return BufferFullError(
            f"{self._owner.name} has {stats.in_flight:,} unanswered messages of {stats.in_flight_bytes:,} bytes, which is the limit, for "
            f"{waited_s:g} s: publish less, or raise max_in_flight, max_in_flight_bytes or block_s",
            exchange=self.exchange,
        )

    def healthy(self) -> bool:
        """Return True if there is a connection, and the broker does not block it."""
        return self._owner.is_this_process and self._worker.is_healthy

    def stats(self) -> SharedStats:
        """Return the counts of messages since the start, and the latencies of the last minute.

        Raises:
            InputError: the publisher belongs to another process.
        """
        self._owner.check()
        return self._worker.stats()

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait until every message has its outcome, for at most `timeout_s` seconds, and close the connections.

        Messages without an outcome then get an UnknownOutcomeError, or a ConnectionLostError if they were not sent; a call of
        `publish_many` gets a PublishError. Later calls raise InputError. In a forked process it does nothing.

        Raises:
            MismatchError: with ``routing="client"`` and a function for the ring, the ring has changed.
        """
        check_seconds("timeout_s", timeout_s)
        if not self._owner.is_this_process:
            return
        is_first = self._outbox.closed is None
        deadline = time.monotonic() + timeout_s
        self._worker.close(timeout_s)
        self._bulk.close(max(0.0, deadline - time.monotonic()))
        if is_first and self._read_ring is not None and self._defaults.routing is not None:
            problem = self._defaults.routing.compare(self._read_ring())
            if problem is not None:
                raise MismatchError(problem, exchange=self.exchange)

    def __del__(self) -> None:
        outbox = getattr(self, "_outbox", None)
        worker = getattr(self, "_worker", None)
        if outbox is None or worker is None or outbox.closed is not None or not self._owner.is_this_process:
            return
        # Without the lock of the outbox, which this thread may hold: nobody can submit any more.
        outbox.closed = "the publisher was collected"
        worker.wake()
        what = f"{type(self).__name__} of exchange {self.exchange!r} was not closed, and {outbox.open} messages are open"
        warnings.warn(
            f"{what}; call close(), or use it in a with block", ResourceWarning, stacklevel=2, source=self
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_worker"):  # an argument was refused
            return f"<{type(self).__name__}: not opened>"
        state = "closed" if self._outbox.closed else f"{self._outbox.open} messages are open"
        return f"<{type(self).__name__} exchange={self.exchange!r} at {self._targets[0].masked_url}: {state}>"


class _Outcome(Future[None]):
    """The future of a message, for which the thread that completes it cannot wait. `close` completes what is left in its own thread."""

    def __init__(self, completed_by: threading.Thread) -> None:
        super().__init__()
        self._completed_by = completed_by

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome, and raise its error; an InputError in a callback that would wait for itself."""
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, and return its error; an InputError in a callback that would wait for itself."""
        self._check()
        return super().exception(timeout)

    def _check(self) -> None:
        is_awaited = completes_here() or threading.current_thread() is self._completed_by
        if is_awaited and not self.done():
            raise InputError(
                "a callback of a future waits for the outcome of another message, which waits for the callback: wait in a thread of your "
                "own, or add a callback to the other future"
            )


def _shared_retries(given: Retries) -> Retries:
    """Return the retries of each delivery. After a close over a message there is another connection in any case."""
    retries = replace(given, retry_first_connection=True, nack_retries=given.nack_retries or 0)
    if given.reconnects:
        return retries
    return replace(retries, reconnect_timeout_s=sys.float_info.min, max_reconnects=None)


def _without_number(cause: InputError) -> InputError:
    return type(cause)(str(cause).removeprefix("row 0: "), exchange=cause.exchange)


_WORKERS: weakref.WeakSet[_Worker] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Wait for the open messages of all publishers when the interpreter exits."""
    workers = [worker for worker in _WORKERS if worker.process == os.getpid() and worker.thread.is_alive()]
    for worker in workers:
        worker.begin_to_close()
    deadline = time.monotonic() + _EXIT_S
    for worker in workers:
        if left := worker.close(max(0.0, deadline - time.monotonic())):
            _log.warning("%s: %d messages are not answered at the exit of the interpreter", worker.name, left)


class _AbortedError(Exception):
    """The publisher was closed, and its open messages are given up."""


class _Worker:
    """Serves the outbox in a thread of its own.

    Args:
        name: the publisher, for logs and errors.
        outbox: the messages.
        rows: makes the rows of a delivery.
        delivery: makes a delivery.
        retries: those of a delivery for messages.
    """

    def __init__(
        self,
        name: str,
        outbox: Outbox,
        rows: Callable[[], OutboxRows],
        delivery: Callable[..., Delivery],
        retries: Retries,
    ) -> None:
        self.name = name
        self.outbox = outbox
        self.process = os.getpid()
        self.is_ready = False
        self._make_rows = rows
        self._make_delivery = delivery
        self._retries = retries
        self._waker = Waker()
        self._connection: Connection | None = None
        self._delivery: Delivery | None = None
        self._republished = self._reconnects = 0  # of deliveries that have ended
        self._connections = 0
        self._aborted = threading.Event()
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="rabbit_chx publisher", daemon=True)

    # -- for other threads

    def wake(self) -> None:
        """End a wait of the thread."""
        self._waker.wake()

    @property
    def is_healthy(self) -> bool:
        """True if messages can be sent now."""
        connection = self._connection
        return (
            self.is_ready
            and connection is not None
            and connection.session.failure is None
            and connection.session.blocked is None
        )

    def stats(self) -> SharedStats:
        """Return the current counts."""
        tally = self._delivery.tally if self._delivery is not None else None
        again = tally.republished + tally.retried if tally is not None else 0
        return self.outbox.stats(self._republished + again, max(0, self._connections - 1))

    def close(self, timeout_s: float) -> int:
        """Send what is open, for a limited time; return the number of messages that are given up."""
        self.begin_to_close()
        if threading.current_thread() is self.thread:
            return 0
        if self.outbox.is_empty and not self.is_ready:  # it connects for nothing
            timeout_s = 0.0
        if self._ended.wait(min(timeout_s, threading.TIMEOUT_MAX)):
            return 0
        cause = ConnectionLostError(
            f"{self.name} was closed, and the broker has not answered within {timeout_s:g} s"
        )
        try:
            left = self.outbox.fail(_failed(cause), waiting=True)
        finally:  # also after Ctrl-C
            self._aborted.set()
            self.wake()
        self._ended.wait(_LAST_S if left else _SHORTEST_S)
        return left

    def begin_to_close(self) -> None:
        """Refuse further messages, and end once there are none."""
        self.outbox.close(f"{self.name} is closed: open another one")
        self.wake()

    # -- the thread

    def run(self) -> None:
        """Deliver until the outbox is closed and empty."""
        failures = 0
        try:
            while not self._is_over():
                has_messages, began = not self.outbox.is_empty, time.monotonic()
                has_connected = self._deliver(has_messages=has_messages, is_repeated=failures > 0)
                if has_connected and time.monotonic() - began >= _STEADY_S:
                    failures = 0
                    continue
                pause_s = _IDLE_PAUSES.delay_s(failures, chance())
                if failures and not has_connected:  # also for messages: each would be another refused login
                    self._sleep(min(pause_s, _LONGEST_PAUSE_S))
                if has_connected or not has_messages:
                    self._rest(pause_s)
                failures += 1
        except _AbortedError:
            pass
        finally:
            self.begin_to_close()
            self.outbox.fail(_failed(ConnectionLostError(f"{self.name} was closed")), waiting=True)
            self._ended.set()
            self._waker.close()

    def _is_over(self) -> bool:
        return self._aborted.is_set() or (self.outbox.closed is not None and self.outbox.is_empty)

    def _deliver(self, *, has_messages: bool, is_repeated: bool) -> bool:
        """Deliver until it fails or nothing is left; return whether it has connected."""
        retries = self._retries if has_messages else replace(self._retries, retry_first_connection=False)
        rows = self._make_rows()
        delivery = self._delivery = self._make_delivery(retries, outcomes=rows)
        try:
            drive(delivery.connect(), self._do)
            self.is_ready = True
            drive(delivery.serve(rows), self._do)
        except _AbortedError:
            raise
        except RabbitChxError as cause:
            if self.is_ready and not isinstance(cause, UnreachableError):  # of a message that was sent
                cause = ConnectionLostError(str(cause), exchange=cause.exchange, reply_code=cause.reply_code)
            left = self.outbox.fail(_failed(cause)) if has_messages or self.is_ready else 0
            if left:
                _log.warning("%s: %s; %s with this error", self.name, cause, plural(left, "message"))
            elif not is_repeated:
                _log.warning("%s: %s", self.name, cause)
        except Exception as cause:  # noqa: BLE001  # the next messages must be served
            _log.exception("%s: an error of the library", self.name)
            self.outbox.fail(_failed(ConnectionLostError(f"{self.name}: {type(cause).__name__}: {cause}")))
        finally:
            was_ready, self.is_ready = self.is_ready, False
            self._republished += delivery.tally.republished + delivery.tally.retried
            self._delivery = None
            self._close_connection()
        return was_ready

    def _do(self, step: Step) -> Connection | None:
        self.outbox.expire(_EXPIRED)
        if self._aborted.is_set():
            raise _AbortedError
        if isinstance(step, Poll):
            assert self._connection is not None  # a delivery opens it first
            left_s = max(self.outbox.left_s(), _SHORTEST_POLL_S)
            self._connection.poll(min(step.wait_s, left_s), step.until_open)
        elif isinstance(step, Open):
            self._close_connection()
            # No attempt outlasts the limits of a message.
            timeout_s = min(step.settings.connection_timeout_s, max(self.outbox.left_s(), _SHORTEST_S))
            settings = replace(step.settings, connection_timeout_s=timeout_s)
            self._connection = Connection(settings, waker=self._waker)
            self._connections += 1
            return self._connection
        elif isinstance(step, Close):
            self._close_connection()
        elif isinstance(step, Sleep):
            self._sleep(step.seconds)
        return None

    def _sleep(self, seconds: float) -> None:
        """Wait without a connection, and let messages expire in time."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            if self._aborted.wait(min(left_s, _SHORTEST_S)):
                raise _AbortedError
            self.outbox.expire(_EXPIRED)

    def _rest(self, seconds: float) -> None:
        """Wait without a connection until there is a message."""
        if self.outbox.sleep():
            self._waker.wait(seconds)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Bulk:
    """Runs the calls of `publish_many`, one after the other, in a thread of its own.

    Args:
        name: the publisher, for errors.
        make: opens a publisher; its argument is the function for the progress.
    """

    def __init__(self, name: str, make: Callable[..., Publisher]) -> None:
        self._name = name
        self._make = make
        self._publisher: Publisher | None = None  # as long as it works
        self._thread = ThreadPoolExecutor(1, "rabbit_chx bulk publisher")
        self._is_closed = False
        self._given_up: ConnectionLostError | None = None  # for the call that runs

    def call(self, *columns: Any) -> Future[PublishReport]:
        """Begin a call; it is cancelled only before its turn. A span of the caller is that of its rows."""
        try:
            return self._thread.submit(contextvars.copy_context().run, self._publish, *columns)
        except RuntimeError as cause:
            raise InputError(
                f"{self._name} is closed, or has no thread ({cause}): open another one"
            ) from None

    def close(self, timeout_s: float) -> None:
        """Wait for the calls, for a limited time, and close the connection; then the calls end with an error at their next step."""
        try:
            ended = self._thread.submit(self._end)
        except RuntimeError:  # closed before
            return
        self._thread.shutdown(wait=False)
        try:
            ended.result(min(timeout_s, threading.TIMEOUT_MAX))
        except TimeoutError:
            self._given_up = ConnectionLostError(f"{self._name} was closed before all messages were answered")
            self._is_closed = True

    def _publish(
        self,
        keys: Column,
        bodies: Column,
        properties: PropertyColumns | None,
        exchanges: Iterable[str | None] | None,
    ) -> PublishReport:
        if self._is_closed:
            raise InputError(f"{self._name} is closed: open another one")
        publisher = self._publisher = self._publisher or self._make(progress=self._look)
        try:
            return publisher.publish_many(keys, bodies, properties=properties, exchanges=exchanges)
        except BaseException:  # the next call has another connection
            self._end()
            raise

    def _look(self, _report: PublishReport) -> None:
        given_up, self._given_up = self._given_up, None
        if given_up is not None:
            raise given_up

    def _end(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()


def _failed(cause: RabbitChxError) -> ErrorFor:
    """Return the error of messages after a failure: of those that were not sent, it has the type of the failure."""

    def error(message: Message) -> RabbitChxError:
        about: dict[str, Any] = {"exchange": cause.exchange, "reply_code": cause.reply_code}
        if not message.is_sent:
            return type(cause)(f"the message was not sent: {cause}", **about)
        unknown = UnknownOutcomeError(f"the message may be in a queue: {cause}", **about)
        unknown.__cause__ = cause
        return unknown

    return error


_EXPIRED = _failed(
    ConnectionLostError(
        "the broker has not answered it within reconnect_timeout_s + confirm_timeout_s + blocked_timeout_s"
    )
)

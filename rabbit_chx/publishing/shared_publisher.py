"""The publisher that threads and event loops share: a connection for single messages, and one for bulk, each with a thread of its own.

*Roles.* A `SharedPublisher` submits messages to its `Outbox`; a `Worker` in a daemon thread executes the steps of a `Delivery` over a
blocking connection. The worker does not refer to the publisher, so that a publisher that nobody closes is collected.

*Bulk.* `_Bulk` calls a `Publisher` in another thread. It opens it for the first call, keeps it, and replaces it after an error.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Self, Unpack

from rabbit_chx.checks import MAX_SHORTSTR, check_seconds
from rabbit_chx.errors import BufferFullError, ConnectionLostError, InputError, MismatchError
from rabbit_chx.options import documented, options_of, takes
from rabbit_chx.publishing.batches import DEFAULT_EXCHANGE, Column, name_columns
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.publishing.encoder import MessageProperties, PropertyColumns, one_as_bytes
from rabbit_chx.publishing.options import CommonOptions, Retries, SharedOptions
from rabbit_chx.publishing.outbox import (
    Message,
    Outbox,
    OutboxRows,
    SharedStats,
    Unread,
    UnreadErrors,
    is_in_callback,
)
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.publishing.publisher import Publisher, PublisherBase
from rabbit_chx.publishing.worker import Worker
from rabbit_chx.retry import jitter
from rabbit_chx.tracing import TRACED_BY, UNTRACED, publisher_span


@documented(SharedOptions)
class SharedPublisher(PublisherBase):
    """Publishes for any number of threads and event loops: single messages over one connection, which a thread of its own serves.

    Each message has its own outcome, and no message gets the error of another. What is submitted while the last write is under way is
    written next, together. The messages of one thread, or of one event loop, are sent in the order of their submission. Delivery is at least
    once, as in `Publisher`. Many messages at once are faster with `publish_many`, which has a connection of its own.

    The constructor starts the thread, which connects; it does not wait. The publisher lives as long as the process: a lost connection is
    replaced, and an outage beyond `reconnect_timeout_s` is the error of the messages of that time only. Leaving the ``with`` block, where
    synchronous code publishes by `submit` only, or the ``async with`` block waits for the outcomes, as `close` does. At the exit of the interpreter the open messages get up to 5 s; a warning
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
        limits = options.limits
        retries = _adapt_retries(options.retries)
        if self._read_ring is not None:
            self._route_by(self._read_ring())

        self._block_s = options.block_s
        self._constant = self._builder.properties.constant
        self._own_exchange = DEFAULT_EXCHANGE if self._builder.routing else self.exchange.encode()
        longest_s = options.retries.reconnect_timeout_s + limits.confirm_timeout_s + limits.blocked_timeout_s
        self._outbox = Outbox(limits.max_in_flight, limits.max_in_flight_bytes, longest_s, time.monotonic)
        self._worker = Worker(
            self._guard.name,
            self._outbox,
            partial(OutboxRows, self._outbox, self._builder.batch_rows, options.linger_s),
            partial(
                Delivery,
                self._targets,
                self._encoder_for,
                limits,
                clock=time.monotonic,
                jitter=jitter,
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
        self._bulk = _Bulk(self._guard.name, partial(Publisher, **bulk))
        self._unread = UnreadErrors(self._guard.name)
        self._worker.start()

    def __enter__(self) -> Self:
        self.publish = _only_in_a_loop(self.publish)  # type: ignore[method-assign]
        self.publish_many = _only_in_a_loop(self.publish_many)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def submit(
        self,
        key: str | bytes,
        body: str | bytes,
        *,
        exchange: str | None = None,
        **properties: Unpack[MessageProperties],
    ) -> Future[None]:
        """Submit a message, and return at once. While the buffer is full, wait for at most `block_s` seconds.

        The future is done when the broker has confirmed the message. An error that nobody asks it for is logged, at most one line per kind of
        error and ten seconds. It cannot be cancelled. Its callbacks run in the publisher's thread:
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
            - RowError: its headers do not fit into a frame of the broker. It was not sent.
            - Another BrokerRefusedError: the broker closes the channel or the connection over it, or refuses the login.
            - UnknownOutcomeError: it was sent and not answered in time. It may be in a queue.
            - UnreachableError: there was no connection in time. It was not sent.

        Raises:
            BufferFullError: the buffer stayed full.
            InputError: the publisher is closed, or belongs to another process, or there is no such message property.
            RowError: the message cannot be sent: the type or the size of a value.
        """
        self._guard.check()
        future = _Outcome(self._worker.thread, self._unread)
        future.set_running_or_notify_cancel()  # nobody can recall a message
        with publisher_span(self.exchange, exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            message = self._message(key, body, exchange, properties, trace, future=future)
            is_queued, is_asleep = self._outbox.submit(message)
            if is_asleep:
                self._worker.wake()
            if not is_queued:
                self._wait_for_room(message)
        return future

    async def publish(
        self,
        key: str | bytes,
        body: str | bytes,
        *,
        exchange: str | None = None,
        **properties: Unpack[MessageProperties],
    ) -> None:
        """Publish a message, and wait until the broker has confirmed it. `key`, `body`, `exchange` and `properties` are as in `submit`.

        A cancelled call does not cancel the message, unless it still waits for room; its error is then logged, as that of a future.

        Raises:
            RabbitChxError: as of the future that `submit` returns, or of `submit`.
        """
        self._guard.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with publisher_span(self.exchange, exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            message = self._message(key, body, exchange, properties, trace, future=future, loop=loop)
            message.on_unread = self._unread.hold
            is_queued, is_asleep = self._outbox.submit(message)
            if is_asleep:  # once for all tasks of this round of the loop: the thread would begin with the first message alone
                loop.call_soon(self._worker.wake)
            if is_queued:
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
        """Publish `keys`, `bodies`, `properties` and `exchanges` as `Publisher.publish_many`, and wait until every message is answered.

        A `Publisher` with the arguments of this one sends them, in a thread and over a connection of its own; an iterator is read in that
        thread. Calls take turns, and each has the report and the error of its own messages. `stats` does not count them. Between these messages
        and messages of `submit` and `publish` there is no order.

        A cancelled call does not stop its messages, unless it still waits for its turn: those that follow are sent, too.

        Returns:
            The counts of these messages.

        Raises:
            PublishError: a message is not confirmed; `report` has the counts, `__cause__` the reason.
            UnreachableError: there was no connection in time. Nothing was sent.
            BrokerRefusedError: the broker refuses user, password or vhost. Nothing was sent.
            InputError: the publisher is closed, or belongs to another process.
        """
        self._guard.check()
        return await asyncio.wrap_future(self._bulk.call(keys, bodies, properties, exchanges))

    def _message(
        self,
        key: str | bytes,
        body: str | bytes,
        exchange: str | None,
        properties: Mapping[str, Any],
        trace: Mapping[str, str],
        *,
        future: Future[None] | asyncio.Future[None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Message:
        content = self._constant
        route = self._own_exchange
        try:
            if properties or trace or exchange is not None or self._builder.routing is not None:
                own = {name: [value] for name, value in properties.items()}
                exchanges = None if exchange is None else [exchange]
                columns = name_columns([key], [body], own, exchanges, keep_order=self._keep_order)
                rows = self._builder.with_trace(trace).rows(columns, 0)
                key = rows.keys[0]
                body = rows.bodies[0]
                if rows.properties:
                    content = rows.properties[0]
                if rows.exchanges:
                    route = rows.exchanges[0]
            else:
                key = one_as_bytes(key, "routing key", MAX_SHORTSTR)
                body = one_as_bytes(body, "body")
        except InputError as cause:
            raise type(cause)(str(cause).removeprefix("row 0: "), exchange=cause.exchange) from None

        return Message(key, body, content, route, future, time.monotonic(), loop)

    def _wait_for_room(self, message: Message) -> None:
        assert message.has_room is not None  # set by the outbox for a message that waits
        # A callback of a future must not wait for the thread that runs it, and nobody for a lock of their own thread.
        must_not_wait = (
            threading.current_thread() is self._worker.thread or self._outbox.is_held_by_current_thread
        )
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
            f"{self._guard.name} has {stats.in_flight:,} unanswered messages of {stats.in_flight_bytes:,} bytes, which is the limit, for "
            f"{waited_s:.3g} s: publish less, or raise max_in_flight, max_in_flight_bytes or block_s",
            exchange=self.exchange,
        )

    def healthy(self) -> bool:
        """Return True if there is a connection, and the broker does not block it."""
        return self._guard.is_this_process and self._worker.is_healthy

    def stats(self) -> SharedStats:
        """Return the counts of messages since the start, and the latencies of the last minute.

        Raises:
            InputError: the publisher belongs to another process.
        """
        self._guard.check()
        return self._worker.stats()

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait until every message has its outcome, for at most `timeout_s` seconds, and close the connections.

        Messages without an outcome then get an UnknownOutcomeError, or a ConnectionLostError if they were not sent; a call of
        `publish_many` gets a PublishError. Later calls raise InputError. In a forked process it does nothing.

        Raises:
            MismatchError: with ``routing="client"`` and a function for the ring, the ring has changed.
        """
        check_seconds("timeout_s", timeout_s)
        if not self._guard.is_this_process:
            return
        is_first = self._outbox.closed is None
        deadline = time.monotonic() + timeout_s
        self._worker.close(timeout_s)
        self._bulk.close(max(0.0, deadline - time.monotonic()))
        self._unread.flush()
        if is_first and self._read_ring is not None and self._builder.routing is not None:
            problem = self._builder.routing.compare(self._read_ring())
            if problem is not None:
                raise MismatchError(problem, exchange=self.exchange)

    def __del__(self) -> None:
        outbox = getattr(self, "_outbox", None)
        worker = getattr(self, "_worker", None)
        if outbox is None or worker is None or outbox.closed is not None or not self._guard.is_this_process:
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


def _only_in_a_loop(publish: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that refuses calls where no event loop runs: its coroutine would be dropped, and send nothing without an error."""

    def call(*args: Any, **named: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise InputError(
                f"{publish.__name__} has to be awaited, and no event loop runs here: call submit(key, body).result(), or publish_many of a "
                "Publisher; in an event loop, open this one by 'async with'"
            ) from None
        return publish(*args, **named)

    return call


class _Outcome(Future[None]):
    """The future of a message, for which the thread that completes it cannot wait. `close` completes what is left in its own thread."""

    _mark: Unread | None = None

    def __init__(self, completed_by: threading.Thread, errors: UnreadErrors) -> None:
        super().__init__()
        self._completed_by = completed_by
        self._errors = errors

    def set_exception(self, exception: BaseException | None) -> None:
        """Set the error, for which somebody has to ask."""
        if exception is not None:
            self._mark = self._errors.hold(exception)
        super().set_exception(exception)

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome, and raise its error; an InputError in a callback that would wait for itself."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the traceback has this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, and return its error; an InputError in a callback that would wait for itself."""
        self._check()
        error = super().exception(timeout)
        if self._mark is not None:
            self._mark.read()
        return error

    def _check(self) -> None:
        is_awaited = is_in_callback() or threading.current_thread() is self._completed_by
        if is_awaited and not self.done():
            raise InputError(
                "a callback of a future waits for the outcome of another message, which waits for the callback: wait in a thread of your "
                "own, or add a callback to the other future"
            )


def _adapt_retries(given: Retries) -> Retries:
    """Return the retries of each delivery. After a close over a message there is another connection in any case."""
    retries = replace(given, retry_first_connection=True, nack_retries=given.nack_retries or 0)
    if given.reconnects:
        return retries
    return replace(retries, reconnect_timeout_s=sys.float_info.min, max_reconnects=None)


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
        """Begin a call; it is cancelled only before its turn. A span of the caller is that of its messages."""
        try:
            return self._thread.submit(contextvars.copy_context().run, self._publish, *columns)
        except RuntimeError as cause:
            raise InputError(f"{self._name} is closed, or has no thread ({cause}): open another") from None

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
        given_up = self._given_up
        self._given_up = None
        if given_up is not None:
            raise given_up

    def _end(self) -> None:
        publisher = self._publisher
        self._publisher = None
        if publisher is not None:
            publisher.close()

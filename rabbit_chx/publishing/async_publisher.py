"""Publish in bulk, confirmed, on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self

from rabbit_chx.connection.asyncio_connection import AsyncConnection
from rabbit_chx.errors import BrokerRefusedError, InputError, PublishError, RabbitChxError
from rabbit_chx.publishing.batches import AnyColumn, AnyProperties, Columns
from rabbit_chx.publishing.delivery import Close, Open, Poll, Step, Steps, drive_async
from rabbit_chx.publishing.publish_report import PublishReport, Tally
from rabbit_chx.publishing.publisher_base import PublisherBase


class AsyncPublisher(PublisherBase):
    """`Publisher` on asyncio: the same arguments and the same guarantees.

    The constructor does not connect: ``async with`` does, or the first use. Several tasks may use one publisher at a time.
    They share one event loop; in another one, and in a forked process, a call raises InputError. Their batches take turns, `report` and
    `flush` concern the rows of all tasks, and `publish_many` returns the report that
    counts the last of its rows, whichever task flushed them.

    A call that is cancelled leaves the publisher usable and its counts true: ``report.rows`` says how many rows were
    handed over before, these stay on their way, and the next `flush` waits for them.

    Args:
        url: the broker's AMQP URI, or settings. Several are tried in order, the next one after each loss.
        exchange: the exchange to publish to; it must exist.
        routing: ``"exchange"``, or ``"client"`` to send each message straight to the queue that the ring names, through the
            default exchange: several times as fast, and without the exchange's alternate exchange and permissions. The
            consumer then sees the queue's name as the routing key. docs/publishing.md says what else changes.
        ring: with ``routing="client"`` the exchange's ring as it was read from the broker, or a function that reads it, with
            `Broker.ring` or `Broker.exchange`; for an `AsyncPublisher` it may be async. A function is called again by each
            flush, and a ring that differs is an error.
        max_in_flight: the window: messages that are sent and not yet answered. 1,000 is enough near the broker; over a
            network use messages per second times seconds of a round trip.
        max_in_flight_bytes: the same in bytes of their frames. A batch that alone is larger is sent alone.
        mandatory: whether the broker returns messages that no queue takes; else they are lost without notice.
        persistent: whether durable queues keep the messages over a restart of the broker (delivery mode 2).
        content_type: the content type of every message.
        properties: other properties of every message, by name (``app_id``, ``headers``, ...).
        on_unroutable: ``"raise"``, or ``"report"`` to only count returned messages.
        confirm_timeout_s: the longest time without a confirm and without a byte of a message on its way, in seconds, not
            counting blocks. After it the connection is replaced, once; the second time is an error.
        blocked_timeout_s: the longest time for which the broker may block publishers, in seconds; 0 fails at once. Blocks
            count together, unless there is a confirm or a byte of a message between them.
        reconnect_timeout_s: how long to try to connect again, in seconds after the loss. Each answer of the broker for a
            message starts this time again. 0 does not reconnect.
        max_reconnects: a further bound: failed attempts in a row. An attempt tries each URL once. None for no such bound;
            0 does not reconnect.
        retry_first_connection: whether the first connection is retried for that time, too; else it fails at once.
        nack_retries: how often a message that the broker refused is sent again while no other is confirmed.
        backoff_s: seconds before the first attempt of either kind; each further one waits twice as long, at most 5 s.
        keep_order: whether a refused message is an error at once, so that no later one overtakes it. This holds for first
            copies; docs/publishing.md says how a later copy may arrive behind newer messages.
        progress: called with the report so far, at most four times a second, after each reconnect, and last with the
            report that ends a flush or is in an error. What it raises ends the call of the publisher.
        connection_name: the name that the management UI shows for the connection.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument cannot be used.

    Example::

        async with AsyncPublisher("amqp://localhost", exchange="orders") as publisher:
            report = await publisher.publish_many(keys, bodies)
    """

    def _start(self) -> None:
        self._connection: AsyncConnection | None = None  # present or last
        self._lock = asyncio.Lock()  # tasks take turns
        self._reading = asyncio.Lock()  # the first task reads the ring, for all

    def _check_loop(self) -> None:
        self._owner.check(asyncio.get_running_loop())

    async def __aenter__(self) -> Self:
        self._check_loop()
        try:
            await self._take_ring()
            await self._run(self._delivery.connect())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None and self.report.rows:
                await self.flush()
        finally:
            await self.close()

    async def publish_many(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        *,
        properties: AnyProperties | None = None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None = None,
    ) -> PublishReport:
        """Publish as `Publisher.publish_many`, where a column may be an async iterable as well.

        Args:
            keys: routing keys: a list, an Arrow array, or any iterable or async iterable of str (UTF-8) or bytes.
            bodies: one body for each key, in the same forms.
            properties: by property name a column with one value for each key; None is the publisher's own value, or nothing.
            exchanges: one exchange name for each key; None is the publisher's own exchange.

        Returns:
            The counts of these rows (and of those sent before with `send`, or by other tasks, and not flushed).

        Raises:
            PublishError: not every row is confirmed; `report` has the counts, `__cause__` the reason.
        """
        self._check_loop()
        tallies = await self._hand_over(keys, bodies, properties, exchanges)
        report = await self.flush()
        for tally in tallies:  # another task may have flushed these rows, and met what became of them
            error, report = tally.error, tally.final or report
            if error is not None and (self._ring_changed is not None or not self._is_success(report)):
                raise PublishError(str(error), report, exchange=self.exchange) from error
        return report

    async def send(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        *,
        properties: AnyProperties | None = None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None = None,
    ) -> None:
        """Hand over as `Publisher.send`, where a column may be an async iterable as well.

        Args:
            keys: routing keys, as in `publish_many`.
            bodies: one body for each key.
            properties: by property name a column with one value for each key.
            exchanges: one exchange name for each key.

        Raises:
            PublishError: AMQP cannot carry a row, or the connection cannot go on.
        """
        self._check_loop()
        await self._hand_over(keys, bodies, properties, exchanges)

    async def _hand_over(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        properties: AnyProperties | None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None,
    ) -> list[Tally]:
        """Send the rows.

        Returns:
            The tallies that count these rows, oldest first. They are several where other tasks flush between two batches.
        """
        tallies: list[Tally] = []
        try:
            await self._take_ring()
            columns = Columns.of(keys, bodies, properties, exchanges)
            coming = columns.async_batches(self._defaults, self._batch_rows, self._delivery.tally.rows)
            async with contextlib.aclosing(coming) as batches:
                async for rows in batches:
                    await self._run(self._delivery.submit(rows))
                    if self._delivery.tally not in tallies[-1:]:
                        tallies.append(self._delivery.tally)
        except (InputError, BrokerRefusedError) as cause:
            with contextlib.suppress(RabbitChxError):  # learn what became of the rows before it
                await self._run(self._delivery.drain())
            raise self._error(cause) from cause
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return tallies

    async def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: not every row is confirmed.
        """
        self._check_loop()
        try:
            await self._run(self._delivery.drain(), then=self._compare_ring)
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finished(self._delivery.finish())

    async def _compare_ring(self) -> None:
        if self._read_ring is not None and self.report.rows:
            self._compare(await self._ring_now())

    async def _take_ring(self) -> None:
        """Read the ring, if it is to be read and nobody has.

        Raises:
            RabbitChxError: it cannot be read, or rows cannot be routed by it.
        """
        if self._read_ring is not None:
            async with self._reading:
                if self._defaults.routing is None:
                    self._take(await self._ring_now())

    async def _ring_now(self) -> object:
        assert self._read_ring is not None  # noqa: S101  # its callers know
        ring = await asyncio.to_thread(self._read_ring)  # it may take a second
        return await ring if inspect.isawaitable(ring) else ring

    async def close(self) -> None:
        """Close the connection. Rows that were not flushed may or may not have arrived. In a forked process it does nothing."""
        if not self._owner.is_this_process:
            return
        self._check_loop()
        self._delivery.close()
        await self._close_connection()

    async def _run(self, steps: Steps, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do every step of an operation. A task that is cancelled is never in the middle of a step's work.

        Args:
            steps: the operation.
            then: is awaited behind it, before another task has its turn.

        Raises:
            RabbitChxError: the operation raises it, or `then`.
        """
        async with self._lock:
            await drive_async(steps, self._do)
            if then is not None:
                await then()

    async def _do(self, step: Step) -> AsyncConnection | None:
        if isinstance(step, Poll):
            assert self._connection is not None  # noqa: S101  # a delivery opens it first
            await self._connection.poll(step.wait_s, step.until_open)
        elif isinstance(step, Open):
            await self._close_connection()
            self._connection = await AsyncConnection.connect(step.settings)
            return self._connection
        elif isinstance(step, Close):
            await self._close_connection()
        else:
            await asyncio.sleep(step.seconds)
        return None

    async def _close_connection(self) -> None:
        if self._connection is not None:
            await self._connection.close()

"""The publisher on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from rabbit_chx.connection.asyncio_connection import AsyncConnection
from rabbit_chx.errors import BrokerRefusedError, InputError, PublishError, RabbitChxError
from rabbit_chx.publishing.batches import AnyColumn, AnyProperties, named_columns
from rabbit_chx.publishing.delivery import Close, Open, Poll, Step, Steps, drive_async
from rabbit_chx.publishing.publish_report import PublishReport, Tally
from rabbit_chx.publishing.publisher_base import PublisherBase, same_arguments
from rabbit_chx.tracing import TRACED_BY, UNTRACED, publisher_span


class AsyncPublisher(PublisherBase):
    """`Publisher` on asyncio. It has the same arguments and guarantees; `ring` may be an async function.

    The constructor does not connect; ``async with`` or the first use does. Several tasks may use one publisher. They share one event loop;
    in another event loop or a forked process, a call raises InputError. Their batches alternate. `report` and `flush` cover the rows of all
    tasks. `publish_many` returns the report that counts the last of its rows, whichever task flushed them.

    A cancelled call leaves the publisher usable and its counts correct: ``report.rows`` is the number of rows submitted before. These rows
    are still delivered, and the next `flush` waits for them.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument is invalid.

    Example::

        async with AsyncPublisher("amqp://localhost", exchange="orders") as publisher:
            report = await publisher.publish_many(keys, bodies)
    """

    @same_arguments(PublisherBase.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        try:
            super().__init__(*arguments, **options)
        finally:
            del arguments, options  # as of `Publisher`
        self._connection: AsyncConnection | None = None  # current or last
        self._lock = asyncio.Lock()  # one operation at a time
        self._reading = asyncio.Lock()  # the first task reads the ring for all tasks

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
        """Publish `keys`, `bodies`, `properties` and `exchanges` as `Publisher.publish_many`; columns may be async iterables.

        Returns:
            The counts of these rows, and of rows that `send` or other tasks submitted before without a flush.

        Raises:
            PublishError: a row is not confirmed; `report` has the counts, `__cause__` the reason.
        """
        self._check_loop()
        with publisher_span(self.exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            tallies = await self._submit(keys, bodies, properties, exchanges, trace)
            report = await self.flush()
        for tally in tallies:  # another task may have flushed these rows and got their error
            error, report = tally.error, tally.final or report
            if error is not None and (self._ring_changed is not None or not self._is_success(report)):
                raise PublishError(
                    str(error), report, exchange=error.exchange, reply_code=error.reply_code
                ) from error
        return report

    async def send(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        *,
        properties: AnyProperties | None = None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None = None,
    ) -> None:
        """Submit `keys`, `bodies`, `properties` and `exchanges` as `Publisher.send`; columns may be async iterables.

        Raises:
            PublishError: AMQP cannot carry a row, or the connection failed.
        """
        self._check_loop()
        with publisher_span(self.exchange) if TRACED_BY in sys.modules else UNTRACED as trace:
            await self._submit(keys, bodies, properties, exchanges, trace)

    async def _submit(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        properties: AnyProperties | None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None,
        trace: Mapping[str, str],
    ) -> list[Tally]:
        """Send the rows, and return their tallies, oldest first: several if other tasks flush between two batches."""
        tallies: list[Tally] = []
        try:
            await self._take_ring()
            columns = named_columns(keys, bodies, properties, exchanges)
            coming = self._defaults.traced(trace).async_batches_of(columns, self._delivery.tally.rows)
            async with contextlib.aclosing(coming) as batches:
                async for rows in batches:
                    await self._run(self._delivery.submit(rows))
                    if self._delivery.tally not in tallies[-1:]:
                        tallies.append(self._delivery.tally)
        except (InputError, BrokerRefusedError) as cause:
            with contextlib.suppress(RabbitChxError):  # get the confirms of the rows before it
                await self._run(self._delivery.drain())
            raise self._error(cause) from cause
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return tallies

    async def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: a row is not confirmed.
        """
        self._check_loop()
        try:
            await self._run(self._delivery.drain(), then=self._compare_ring)
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finish(self._delivery.finish())

    async def _compare_ring(self) -> None:
        if self._read_ring is not None and self.report.rows:
            self._compare(await self._ring_now())

    async def _take_ring(self) -> None:
        if self._read_ring is not None:
            async with self._reading:
                if self._defaults.routing is None:
                    self._take(await self._ring_now())

    async def _ring_now(self) -> object:
        assert self._read_ring is not None  # checked by the callers
        ring = await asyncio.to_thread(self._read_ring)  # reading may take a second
        return await ring if inspect.isawaitable(ring) else ring

    async def close(self) -> None:
        """Close the connection. Rows that were not flushed may or may not have arrived. In a forked process it does nothing."""
        if not self._owner.is_this_process:
            return
        self._check_loop()
        self._delivery.close()
        await self._close_connection()

    async def _run(self, steps: Steps, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Execute an operation, and await `then` before another task may begin one. A cancellation never interrupts a step."""
        async with self._lock:
            await drive_async(steps, self._do)
            if then is not None:
                await then()

    async def _do(self, step: Step) -> AsyncConnection | None:
        if isinstance(step, Poll):
            assert self._connection is not None  # a delivery opens it first
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

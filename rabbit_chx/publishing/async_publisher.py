"""The publisher on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
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
    in another event loop or a forked process, a call raises InputError. Calls of `publish_many` take turns: each has the report and the error
    of its own rows. Rows of `send` and of cancelled calls are reported by `flush`, whichever task calls it. For single messages,
    `SharedPublisher` is faster.

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
        self._turns = asyncio.Lock()  # one report at a time
        self._in_turn: asyncio.Task[Any] | None = None
        self._senders: set[asyncio.Task[Any] | None] = set()  # whose rows the current report has
        self._aside: list[Tally] = []  # reports for the next `flush`

    def _check_loop(self) -> None:
        self._owner.check_in_loop()

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
            if exc is None and (self.report.rows or self._aside):
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
            The counts of these rows, and of rows that `send` submitted before in this task without a flush.

        Raises:
            PublishError: a row is not confirmed; `report` has the counts, `__cause__` the reason.
        """
        self._check_loop()
        with publisher_span(self.exchange, exchanges) if TRACED_BY in sys.modules else UNTRACED as trace:
            async with self._turn():
                await self._set_aside()
                await self._submit(keys, bodies, properties, exchanges, trace)
                return self._finish(await self._drained())

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
            PublishError: AMQP cannot carry a row, or the connection failed. If the report has rows of other tasks, too, the next `flush`
                repeats it.
        """
        self._check_loop()
        with publisher_span(self.exchange, exchanges) if TRACED_BY in sys.modules else UNTRACED as trace:
            await self._submit(keys, bodies, properties, exchanges, trace)

    async def _submit(
        self,
        keys: AnyColumn,
        bodies: AnyColumn,
        properties: AnyProperties | None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None,
        trace: Mapping[str, str],
    ) -> None:
        try:
            await self._take_ring()
            columns = named_columns(keys, bodies, properties, exchanges)
            coming = self._defaults.traced(trace).async_batches_of(columns, self._delivery.tally.rows)
            async with contextlib.aclosing(coming) as batches:
                async for rows in batches:
                    async with self._turn():
                        if len(self._senders) < 2:  # one other is enough to know of
                            self._senders.add(asyncio.current_task())
                        await self._run(self._delivery.submit(rows))
        except RabbitChxError as cause:
            async with self._turn():
                if isinstance(cause, (InputError, BrokerRefusedError)):
                    with contextlib.suppress(RabbitChxError):  # get the confirms of the rows before it
                        await self._run(self._delivery.drain())
                raise self._error(cause) from cause

    async def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush, except rows of `publish_many`.

        Raises:
            PublishError: a row is not confirmed.
        """
        self._check_loop()
        async with self._turn():
            tallies = [*self._aside, await self._drained()]
            self._aside = []
        if len(tallies) == 1:
            return self._finish(tallies[0])
        return self._finish_all(tallies)

    def _finish_all(self, tallies: list[Tally]) -> PublishReport:
        """Return the sum of the reports; raise the first error with it."""
        report, error = PublishReport(), None
        for tally in tallies:
            try:
                report += self._finish(tally)
            except PublishError as cause:
                report, error = report + cause.report, error or cause
        if error is not None:
            raise PublishError(
                str(error), report, exchange=error.exchange, reply_code=error.reply_code
            ) from error
        return report

    async def _drained(self) -> Tally:
        """Wait until every row is answered, and end the current report."""
        try:
            await self._run(self._delivery.drain(), then=self._compare_ring)
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        self._senders.clear()
        return self._delivery.finish()

    def _error(self, why: object) -> PublishError:
        """Return the error with the report of its rows. If it has rows of other tasks, too, the next `flush` reports them all."""
        tally, is_shared = self._delivery.tally, bool(self._senders - {asyncio.current_task()})
        self._senders.clear()
        error = super()._error(why)
        if is_shared:
            self._aside.append(tally)
        return error

    async def _set_aside(self) -> None:
        """End the current report, if it has rows of other tasks, and keep it for the next `flush`."""
        if self._delivery.tally.rows and self._senders - {asyncio.current_task()}:
            self._aside.append(await self._drained())

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until no other task has its turn. An iterator of columns may call the publisher again."""
        task = asyncio.current_task()
        if self._in_turn is task:
            yield
            return
        async with self._turns:
            self._in_turn = task
            try:
                yield
            finally:
                self._in_turn = None

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

    def _abandon(self) -> None:
        if self._connection is not None:
            self._connection.abandon()

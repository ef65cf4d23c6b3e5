"""Publish in bulk, confirmed, on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from rabbit_chx.connection.asyncio_connection import AsyncConnection
from rabbit_chx.errors import BrokerRefusedError, InputError, PublishError, RabbitChxError
from rabbit_chx.publishing.drivers import Open, Turn
from rabbit_chx.publishing.publisher_base import BulkPublisher, columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from rabbit_chx.publishing.drivers import Step, Steps
    from rabbit_chx.publishing.publish_report import PublishReport
    from rabbit_chx.publishing.tally import Tally

__all__ = ["AsyncPublisher"]


class AsyncPublisher(BulkPublisher):
    """`Publisher` on asyncio: the same arguments and the same guarantees.

    It connects in ``async with``, or when it is first used. Several tasks may use one at a time: each of their batches
    waits for the window in turn, `report` and `flush` concern the rows of all of them, and `publish_many` returns the
    report that counts the last of its rows, whichever task flushed them.

    A call that is cancelled leaves the publisher usable and its counts true: ``report.rows`` says how many rows were
    handed over before, these stay on their way, and the next `flush` waits for them.

    Args: those of `BulkPublisher`.

    Raises:
        InputError: an argument cannot be.

    Example::

        async with AsyncPublisher("amqp://localhost", exchange="orders") as publisher:
            report = await publisher.publish_many(keys, bodies)
    """

    def _begin(self) -> None:
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._run(self._delivery.opening())
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
        keys: Iterable[str | bytes] | AsyncIterable[str | bytes],
        bodies: Iterable[str | bytes] | AsyncIterable[str | bytes],
        *,
        properties: Mapping[str, Iterable[Any] | AsyncIterable[Any]] | None = None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None = None,
    ) -> PublishReport:
        """Publish rows and wait until the broker has answered for every one.

        Args:
            keys: routing keys: a list, an Arrow array, or any iterable, async or not, of str (UTF-8) or bytes.
            bodies: as many bodies, likewise.
            properties: by property name (``message_id``, ``headers``, ...) a column of as many values;
                None stands for the publisher's own value, or for none.
            exchanges: as many exchange names; None stands for the publisher's own exchange.

        Returns:
            The counts of these rows (and of those sent before with `send`, or by other tasks, and not flushed).

        Raises:
            PublishError: not every row is confirmed; `report` has the counts, `__cause__` the reason.
        """
        tallies = await self._hand_over(keys, bodies, properties, exchanges)
        report = await self.flush()
        for tally in tallies:  # another task may have flushed these rows, and met what became of them
            error, report = tally.error, tally.final or report
            if error is not None and not self._is_success(report):
                raise PublishError(str(error), report, exchange=self.exchange) from error
        return report

    async def send(
        self,
        keys: Iterable[str | bytes] | AsyncIterable[str | bytes],
        bodies: Iterable[str | bytes] | AsyncIterable[str | bytes],
        *,
        properties: Mapping[str, Iterable[Any] | AsyncIterable[Any]] | None = None,
        exchanges: Iterable[str | None] | AsyncIterable[str | None] | None = None,
    ) -> None:
        """Hand rows to the connection, as fast as the window allows; `flush` waits for their confirms.

        Args: those of `publish_many`.

        Raises:
            PublishError: a row that AMQP cannot carry, or the connection cannot go on.
        """
        await self._hand_over(keys, bodies, properties, exchanges)

    async def _hand_over(
        self, keys: object, bodies: object, properties: Mapping[str, object] | None, exchanges: object
    ) -> list[Tally]:
        """`send`; the tallies that count these rows, oldest first: more than one where other tasks flush meanwhile."""
        tallies: list[Tally] = []
        try:
            columns = columns_of(keys, bodies, properties, exchanges)
            async with contextlib.aclosing(self._async_batches(columns)) as batches:
                async for rows in batches:
                    await self._run(self._delivery.handing_over(rows))
                    if self._delivery.tally not in tallies[-1:]:
                        tallies.append(self._delivery.tally)
        except (InputError, BrokerRefusedError) as cause:
            with contextlib.suppress(RabbitChxError):  # learn what became of the rows before it
                await self._run(self._delivery.draining())
            raise self._error(cause) from cause
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return tallies

    async def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: not every row is confirmed.
        """
        try:
            await self._run(self._delivery.draining())
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finished()

    async def close(self) -> None:
        """Close the connection. Rows that were not flushed may or may not have arrived."""
        self._delivery.close()
        if self._connection is not None:
            await self._connection.close()

    async def _run(self, steps: Steps[None]) -> None:
        """Do what the operation asks for, step by step."""
        async with self._lock:
            with contextlib.closing(steps):
                try:
                    step = next(steps)
                    while True:
                        try:
                            answer = await self._do(step)
                        except RabbitChxError as cause:
                            step = steps.throw(cause)
                        else:
                            step = steps.send(answer)
                except StopIteration:
                    return

    async def _do(self, step: Step) -> AsyncConnection | None:
        if isinstance(step, Turn):
            assert self._connection is not None  # noqa: S101  # the delivery has opened it
            await self._connection.turn(step.wait_s, step.enough)
        elif isinstance(step, Open):
            if self._connection is not None:
                await self._connection.close()
            self._connection = await AsyncConnection.open(step.settings)
            if self._delivery.failure is not None:  # another task has closed us meanwhile
                await self._connection.close()
                raise self._delivery.failure
            return self._connection
        else:
            await asyncio.sleep(step.seconds)
        return None

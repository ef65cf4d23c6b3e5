"""Publish in bulk, confirmed, over blocking calls."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import BrokerRefusedError, InputError, RabbitChxError
from rabbit_chx.publishing.drivers import Open, Turn
from rabbit_chx.publishing.publisher_base import BulkPublisher, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from rabbit_chx.publishing.drivers import Step, Steps
    from rabbit_chx.publishing.publish_report import PublishReport

__all__ = ["Publisher"]


class Publisher(BulkPublisher):
    r"""Publishes many messages over one connection, and knows of each whether the broker has it.

    Every message is confirmed by the broker; by default it is persistent, and `mandatory`, so that one
    that no queue would take is counted and not lost in silence (an alternate exchange of the exchange
    takes such messages instead, and they count as confirmed). Delivery is at least once: what is not
    answered when the connection is lost is sent again over a new one. Leaving the ``with`` block waits for what
    was sent. Not to be used by two threads at a time.

    Args: those of `BulkPublisher`.

    Raises:
        InputError: an argument cannot be.
        UnreachableError: nobody answers there.
        BrokerRefusedError: the broker refuses user, password or vhost.

    Example::

        with Publisher("amqp://localhost", exchange="orders") as publisher:
            report = publisher.publish_many(keys, bodies, properties={"message_id": ids})

    With a line that shows how far it is::

        def show(report):
            print(f"\r{report.confirmed:,} confirmed", end="", flush=True)


        with Publisher("amqp://localhost", exchange="orders", progress=show) as publisher:
            publisher.publish_many(keys, bodies)
    """

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._run(self._delivery.opening())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None and self.report.rows:
                self.flush()
        finally:
            self.close()

    def publish_many(
        self,
        keys: Iterable[str | bytes],
        bodies: Iterable[str | bytes],
        *,
        properties: Mapping[str, Iterable[Any]] | None = None,
        exchanges: Iterable[str | None] | None = None,
    ) -> PublishReport:
        """Publish rows and wait until the broker has answered for every one.

        Args:
            keys: routing keys: a list, an Arrow array, or any iterable of str (UTF-8) or bytes.
            bodies: as many bodies, likewise.
            properties: by property name (``message_id``, ``headers``, ...) a column of as many values;
                None stands for the publisher's own value, or for none.
            exchanges: as many exchange names; None stands for the publisher's own exchange.

        Returns:
            The counts of these rows (and of those sent before with `send` and not flushed).

        Raises:
            PublishError: not every row is confirmed; `report` has the counts, `__cause__` the reason.
        """
        self.send(keys, bodies, properties=properties, exchanges=exchanges)
        return self.flush()

    def send(
        self,
        keys: Iterable[str | bytes],
        bodies: Iterable[str | bytes],
        *,
        properties: Mapping[str, Iterable[Any]] | None = None,
        exchanges: Iterable[str | None] | None = None,
    ) -> None:
        """Hand rows to the connection, as fast as the window allows; `flush` waits for their confirms.

        Args: those of `publish_many`.

        Raises:
            PublishError: a row that AMQP cannot carry, or the connection cannot go on.
        """
        try:
            columns = columns_of(keys, bodies, properties, exchanges)
            for rows in self._batches(columns):
                self._run(self._delivery.handing_over(rows))
        except (InputError, BrokerRefusedError) as cause:
            with contextlib.suppress(RabbitChxError):  # learn what became of the rows before it
                self._run(self._delivery.draining())
            raise self._error(cause) from cause
        except RabbitChxError as cause:
            raise self._error(cause) from cause

    def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: not every row is confirmed.
        """
        try:
            self._run(self._delivery.draining())
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finished()

    def close(self) -> None:
        """Close the connection. Rows that were not flushed may or may not have arrived."""
        self._delivery.close()
        if self._connection is not None:
            self._connection.close()

    def _run(self, steps: Steps[None]) -> None:
        """Do what the operation asks for, step by step."""
        with self._lock, contextlib.closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        answer = self._do(step)
                    except RabbitChxError as cause:
                        step = steps.throw(cause)
                    else:
                        step = steps.send(answer)
            except StopIteration:
                return
            except RabbitChxError:
                raise
            except BaseException as cause:  # Ctrl-C, or what another signal's handler raised
                if cause is not self._delivery.objection:
                    self._delivery.interrupted(cause)
                raise

    def _do(self, step: Step) -> Connection | None:
        if isinstance(step, Turn):
            assert self._connection is not None  # noqa: S101  # the delivery has opened it
            self._connection.turn(step.wait_s, step.enough)
        elif isinstance(step, Open):
            if self._connection is not None:
                self._connection.close()
            self._connection = Connection(step.settings, self._lock)
            if self._delivery.failure is not None:  # a signal handler has closed us meanwhile
                self._connection.close()
                raise self._delivery.failure
            return self._connection
        else:
            time.sleep(step.seconds)
        return None

"""Publish in bulk, confirmed, over blocking calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.connection.owner import one_thread
from rabbit_chx.errors import BrokerRefusedError, InputError, RabbitChxError
from rabbit_chx.publishing.batches import Column, PropertyColumns, named_columns
from rabbit_chx.publishing.delivery import Close, Open, Poll, Step, Steps, drive
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.publishing.publisher_base import PublisherBase


class Publisher(PublisherBase):
    r"""Publishes many messages over one connection, and knows of each whether the broker has it.

    Every message is confirmed by the broker. By default it is persistent, and `mandatory`: a message that no queue takes is counted and not
    lost in silence. (An alternate exchange of the exchange takes such messages instead, and they count as confirmed.) Delivery is at least
    once: what is not answered when the connection is lost is sent again over a new one.

    The constructor connects. Leaving the ``with`` block waits for what was sent. A publisher is for one thread at a time: a second thread
    gets an InputError while a call runs. So does a forked process. A publisher cannot be pickled.

    Args:
        url: the broker's AMQP URI, or settings. Several are tried in order, the next one after each loss.
        exchange: the exchange to publish to; it must exist.
        routing: ``"exchange"``, or ``"client"`` to send each message straight to the queue that the ring names, through the default
            exchange: several times as fast, and without the exchange's alternate exchange and permissions. The consumer then sees the
            queue's name as the routing key. docs/publishing.md says what else changes.
        ring: with ``routing="client"`` the exchange's ring as it was read from the broker, or a function that reads it, with `Broker.ring`
            or `Broker.exchange`; for an `AsyncPublisher` it may be async. A function is called again by each flush, and a ring that differs
            is an error.
        max_in_flight: the window: messages that are sent and not yet answered. 1,000 is enough near the broker; over a network use messages
            per second times seconds of a round trip.
        max_in_flight_bytes: the same in bytes of their frames. A batch that alone is larger is sent alone.
        mandatory: whether the broker returns messages that no queue takes; else they are lost without notice.
        persistent: whether durable queues keep the messages over a restart of the broker (delivery mode 2).
        content_type: the content type of every message.
        properties: other properties of every message, by name (``app_id``, ``headers``, ...).
        on_unroutable: ``"raise"``, or ``"report"`` to only count returned messages.
        confirm_timeout_s: the longest time without a confirm and without a byte of a message on its way, in seconds, not counting blocks.
            After it the connection is replaced, once; the second time is an error.
        blocked_timeout_s: the longest time for which the broker may block publishers, in seconds; 0 fails at once. Blocks count together,
            unless there is a confirm or a byte of a message between them.
        reconnect_timeout_s: how long to try to connect again, in seconds after the loss. Each answer of the broker for a message starts
            this time again. 0 does not reconnect.
        max_reconnects: a further bound: failed attempts in a row. An attempt tries each URL once. None for no such bound; 0 does not
            reconnect.
        retry_first_connection: whether the first connection is retried for that time, too; else it fails at once.
        nack_retries: how often a message that the broker refused is sent again while no other is confirmed.
        backoff_s: seconds before the first attempt of either kind; each further one waits twice as long, at most 5 s.
        keep_order: whether a refused message is an error at once, so that no later one overtakes it. This holds for first copies;
            docs/publishing.md says how a later copy may arrive behind newer messages.
        progress: called with the report so far, at most four times a second, after each reconnect, and last with the report that ends a
            flush or is in an error. What it raises ends the call of the publisher.
        connection_name: the name that the management UI shows for the connection.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument cannot be used.
        UnreachableError: nobody answers at any of the URLs.
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

    def _start(self) -> None:
        if self._read_ring is not None:
            self._take(self._read_ring())
        self._connection: Connection | None = None  # present or last
        self._lock = threading.RLock()  # the connection's own thread waits for it
        self._run(self._delivery.connect())

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

    @one_thread
    def publish_many(
        self,
        keys: Column,
        bodies: Column,
        *,
        properties: PropertyColumns | None = None,
        exchanges: Iterable[str | None] | None = None,
    ) -> PublishReport:
        """Publish rows and wait until the broker has answered for every row.

        Args:
            keys: routing keys: a list, an Arrow array, or any iterable of str (UTF-8) or bytes.
            bodies: one body for each key, in the same forms.
            properties: by property name (``message_id``, ``headers``, ...) a column with one value for each key; None is the publisher's
                own value, or nothing.
            exchanges: one exchange name for each key; None is the publisher's own exchange.

        Returns:
            The counts of these rows (and of those sent before with `send` and not flushed).

        Raises:
            PublishError: not every row is confirmed; `report` has the counts, `__cause__` the reason.
        """
        self._send(keys, bodies, properties, exchanges)
        return self._flush()

    @one_thread
    def send(
        self,
        keys: Column,
        bodies: Column,
        *,
        properties: PropertyColumns | None = None,
        exchanges: Iterable[str | None] | None = None,
    ) -> None:
        """Submit rows as fast as the window allows; `flush` waits for their confirms.

        `keys`, `bodies`, `properties` and `exchanges` are as in `publish_many`.

        Raises:
            PublishError: AMQP cannot carry a row, or the connection cannot go on.
        """
        self._send(keys, bodies, properties, exchanges)

    @one_thread
    def flush(self) -> PublishReport:
        """Wait until every row sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: not every row is confirmed.
        """
        return self._flush()

    def close(self) -> None:
        """Close the connection. Rows that were not flushed may or may not have arrived. In a forked process it does nothing."""
        if self._owner.is_this_process:
            self._close()

    @one_thread
    def _close(self) -> None:
        self._delivery.close()
        self._close_connection()

    def _send(
        self,
        keys: Column,
        bodies: Column,
        properties: PropertyColumns | None,
        exchanges: Iterable[str | None] | None,
    ) -> None:
        try:
            columns = named_columns(keys, bodies, properties, exchanges)
            for rows in self._defaults.batches_of(columns, self._delivery.tally.rows):
                self._run(self._delivery.submit(rows))
        except (InputError, BrokerRefusedError) as cause:
            with contextlib.suppress(RabbitChxError):  # learn what became of the rows before it
                self._run(self._delivery.drain())
            raise self._error(cause) from cause
        except RabbitChxError as cause:
            raise self._error(cause) from cause

    def _flush(self) -> PublishReport:
        try:
            self._run(self._delivery.drain())
            if self._read_ring is not None and self.report.rows:
                self._compare(self._read_ring())
        except RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finished(self._delivery.finish())

    def _run(self, steps: Steps) -> None:
        """Carry out an operation."""
        with self._lock:
            try:
                drive(steps, self._do)
            except RabbitChxError:
                raise
            # Ctrl-C, or what another signal's handler raises, in the middle of a step.
            except BaseException as cause:
                self._delivery.interrupt(cause)
                raise

    def _do(self, step: Step) -> Connection | None:
        if isinstance(step, Poll):
            assert self._connection is not None  # noqa: S101  # a delivery opens it first
            self._connection.poll(step.wait_s, step.until_open)
        elif isinstance(step, Open):
            self._close_connection()
            self._connection = Connection(step.settings, self._lock)
            return self._connection
        elif isinstance(step, Close):
            self._close_connection()
        else:
            time.sleep(step.seconds)
        return None

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()

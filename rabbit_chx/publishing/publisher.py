"""The blocking publisher."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import read_secretly
from rabbit_chx.connection.blocking_connection import FINALIZER_S, Connection, Guarded, UsageGuard, one_thread
from rabbit_chx.connection.failures import unknown_outcome
from rabbit_chx.connection.tokens import with_credentials
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.publishing.batches import (
    BATCH_ROWS,
    DEFAULT_EXCHANGE,
    ClientRouting,
    Column,
    RowBuilder,
    check_for_copies,
    name_columns,
)
from rabbit_chx.publishing.delivery import Close, Delivery, Open, Poll, Step, Steps, drive
from rabbit_chx.publishing.encoder import Encoder, Properties, PropertyColumns, exchange_name
from rabbit_chx.publishing.options import CommonOptions, PublishOptions, Target
from rabbit_chx.publishing.publish_report import (
    PublishReport,
    Returned,
    Tally,
    refusal_error,
    unroutable_remedy,
)
from rabbit_chx.retry import jitter
from rabbit_chx.tracing import TRACED_BY, UNTRACED, publisher_span

# -- What `Publisher` and `SharedPublisher` make of their options, alike

_PERSISTENT = 2
_TRANSIENT = 1


class PublisherBase(Guarded):
    """A publisher without its connection. The constructor validates the options, and does no I/O."""

    def __init__(self, options: CommonOptions) -> None:
        exchange = self.exchange = options.exchange
        targets = with_credentials(read_secretly(_targets, options.url), options.credentials)
        check_options(options)
        if options.routing == "exchange" and options.ring is not None:
            raise errors.InputError(
                "a ring is given, and routing is 'exchange': pass routing='client', or no ring"
            )

        self._guard = UsageGuard(f"the {type(self).__name__} of exchange {exchange!r:.80}")
        if options.connection_name is not None:
            targets = tuple(replace(target, connection_name=options.connection_name) for target in targets)
        self._targets = targets
        self._keep_order = options.retries.keep_order
        properties = options.properties or {}
        shared = Properties(
            {
                "delivery_mode": _PERSISTENT if options.persistent else _TRANSIENT,
                "content_type": options.content_type,
                **properties,
            }
        )
        name = exchange_name(exchange)

        if options.routing == "client":
            name = DEFAULT_EXCHANGE
            check_for_copies([properties.get("headers")])

        # Half a window, so that it never empties; smaller batches cost more CPU and gain little.
        batch_rows = max(1, min(BATCH_ROWS, options.limits.max_in_flight // 2))
        self._builder = RowBuilder(exchange, shared, batch_rows)
        self._encoder_for = partial(Encoder, name, shared.constant, mandatory=options.mandatory)
        self._read_ring = options.ring if callable(options.ring) else None
        if options.routing == "client" and self._read_ring is None:
            self._route_by(options.ring)

    def _route_by(self, ring: object) -> None:
        self._builder = replace(self._builder, routing=ClientRouting(self.exchange, ring))


def _targets(url: Target | Sequence[Target]) -> tuple[ConnectionSettings, ...]:
    targets = url if isinstance(url, (list, tuple)) else (url,)
    if not targets:
        raise errors.InputError("url is an empty list: pass one AMQP URI, or several")
    return tuple(map(ConnectionSettings.of, targets))


_log = logging.getLogger(__name__)


@documented(PublishOptions)
class Publisher(PublisherBase):
    r"""Publishes many messages over one connection, and tracks the confirm of each. For single messages use `SharedPublisher`.

    Every message is confirmed by the broker. By default it is persistent, and `mandatory`: an unroutable message is counted. (If the
    exchange has an alternate exchange, that one gets such messages, and they count as confirmed.) Delivery is at least once: messages
    without an answer at the loss of a connection are sent again over a new one.

    The constructor connects. Leaving the ``with`` block waits for the confirms. One thread at a time may use a publisher: a second thread
    gets an InputError during a call, and so does a forked process. A publisher cannot be pickled.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument is invalid.
        UnreachableError: no URL has a listening broker.
        BrokerRefusedError: the broker refuses user, password or vhost.

    Example::

        with Publisher("amqp://localhost", exchange="orders") as publisher:
            report = publisher.publish_many(keys, bodies, properties={"message_id": ids})

    With a progress line::

        def show(report):
            print(f"\r{report.confirmed:,} confirmed", end="", flush=True)

        with Publisher("amqp://localhost", exchange="orders", progress=show) as publisher:
            publisher.publish_many(keys, bodies)
    """

    @takes(PublishOptions)
    def __init__(self, options: PublishOptions) -> None:
        super().__init__(options)
        self._on_unroutable = options.on_unroutable
        self._progress = options.progress
        self._delivery = Delivery(
            self._targets,
            self._encoder_for,
            options.limits,
            options.retries,
            clock=time.monotonic,
            jitter=jitter,
            progress=options.progress,
            exchange=self.exchange,
        )
        self._connection: Connection | None = None  # current or last
        self._lock = threading.RLock()  # the connection's own thread waits for it
        if self._read_ring is not None:
            self._route_by(self._read_ring())
        self._run(self._delivery.connect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if error is None and self.report.rows:
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
        """Publish messages and wait until the broker has answered every message.

        Args:
            keys: routing keys: a list, an Arrow array, or any iterable of str (UTF-8) or bytes.
            bodies: one body for each key, in the same forms.
            properties: by property name (``message_id``, ``headers``, ...) a column with one value for each key; None is the publisher's
                own value, if any.
            exchanges: one exchange name for each key; None is the publisher's own exchange.

        Returns:
            The counts of these messages, and of messages that `send` submitted before without a flush.

        Raises:
            PublishError: a message is not confirmed; `report` has the counts, `__cause__` the reason.
        """
        with publisher_span(self.exchange, exchanges) if TRACED_BY in sys.modules else UNTRACED as trace:
            self._send(keys, bodies, properties, exchanges, trace)
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
        """Submit messages as fast as the window allows; `flush` waits for their confirms.

        `keys`, `bodies`, `properties` and `exchanges` are as in `publish_many`.

        Raises:
            PublishError: AMQP cannot carry a message, or the connection failed.
        """
        with publisher_span(self.exchange, exchanges) if TRACED_BY in sys.modules else UNTRACED as trace:
            self._send(keys, bodies, properties, exchanges, trace)

    @one_thread
    def flush(self) -> PublishReport:
        """Wait until every message sent so far is answered, and report on those since the last flush.

        Raises:
            PublishError: a message is not confirmed.
        """
        return self._flush()

    def close(self) -> None:
        """Close the connection. Messages that were not flushed may or may not have arrived. In a forked process it does nothing."""
        if self._guard.is_this_process:
            self._close()

    @one_thread
    def _close(self) -> None:
        self._delivery.close()
        self._close_connection()

    def __del__(self) -> None:
        delivery = getattr(self, "_delivery", None)
        if (
            delivery is None
            or not delivery.is_connected
            or delivery.failure
            or not self._guard.is_this_process
        ):
            return
        rows = f": {delivery.report} since the last flush" if delivery.tally.rows else ""
        what = f"{type(self).__name__} of exchange {self.exchange!r} was not closed{rows}; call flush() and close(), or use it in a with block"
        warnings.warn(what, ResourceWarning, stacklevel=2, source=self)
        if self._connection is not None:
            self._connection.close(FINALIZER_S)

    @property
    def report(self) -> PublishReport:
        """The current counts since the last flush or error."""
        return self._delivery.report

    def __repr__(self) -> str:
        if not hasattr(self, "_delivery"):  # an argument was refused
            return f"<{type(self).__name__}: not opened>"
        state = "closed" if self._delivery.failure else str(self.report)
        return f"<{type(self).__name__} exchange={self.exchange!r} at {self._delivery.where}: {state}>"

    def _send(
        self,
        keys: Column,
        bodies: Column,
        properties: PropertyColumns | None,
        exchanges: Iterable[str | None] | None,
        trace: Mapping[str, str],
    ) -> None:
        try:
            columns = name_columns(keys, bodies, properties, exchanges, keep_order=self._keep_order)
            for rows in self._builder.with_trace(trace).batches_of(columns, self._delivery.tally.rows):
                self._run(self._delivery.submit(rows))
        except (errors.InputError, errors.BrokerRefusedError) as cause:
            with contextlib.suppress(errors.RabbitChxError):  # get the confirms of the rows before it
                self._run(self._delivery.drain())
            raise self._error(cause) from cause
        except errors.RabbitChxError as cause:
            raise self._error(cause) from cause

    def _flush(self) -> PublishReport:
        try:
            self._run(self._delivery.drain())
            if self._read_ring is not None and self.report.rows:
                self._compare(self._read_ring())
        except errors.RabbitChxError as cause:
            raise self._error(cause) from cause
        return self._finish(self._delivery.finish())

    def _compare(self, ring: object) -> None:
        assert self._builder.routing is not None  # read before the first row
        problem = self._builder.routing.compare(ring)
        if problem is not None:
            changed = errors.MismatchError(problem, exchange=self.exchange)
            self._delivery.failure = self._delivery.failure or changed
            raise changed

    def _finish(self, tally: Tally) -> PublishReport:
        report = tally.final
        assert report is not None  # `finish` has set it
        may_return = self._on_unroutable == "report"
        if (refusal := _find_refusal(tally, report, may_return=may_return)) is not None:
            further = f"; {tally.closed - 1:,} further messages failed like this" if tally.closed > 1 else ""
            raise self._publish_error(tally, report, f"{refusal}{further}") from refusal
        if report.unknown > (tally.returned_in_doubt if may_return else 0):
            raise self._publish_error(tally, report, "an operation was interrupted")
        if self._progress is not None and report.rows:
            self._progress(report)
        return report

    def _error(self, why: object) -> errors.PublishError:
        """Return the error of an operation, with the report of its messages, and begin a new report."""
        tally = self._delivery.finish()
        assert tally.final is not None  # `finish` has set it
        return self._publish_error(tally, tally.final, why)

    def _publish_error(self, tally: Tally, report: PublishReport, why: object) -> errors.PublishError:
        cause = tally.closes[0] if tally.closes and not tally.nacked else why
        exchange = self.exchange
        code = None
        if isinstance(cause, errors.RabbitChxError):
            exchange = cause.exchange or exchange
            code = cause.reply_code
        error = errors.PublishError(
            f"exchange {self.exchange!r}: {why}; {report}", report, exchange=exchange, reply_code=code
        )
        tally.error = error
        if self._progress is not None and report.rows:
            try:
                self._progress(report)
            except Exception:  # noqa: BLE001  # raised, it would hide the error
                _log.exception("progress failed, too")
        return error

    def _run(self, steps: Steps) -> None:
        with self._lock:
            try:
                drive(steps, self._do)
            except errors.RabbitChxError:
                raise
            # Ctrl-C, or the exception of another signal handler, during a step.
            except BaseException as cause:
                self._delivery.interrupt(cause)
                raise

    def _do(self, step: Step) -> Connection | None:
        if isinstance(step, Poll):
            assert self._connection is not None  # a delivery opens it first
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


def _find_refusal(tally: Tally, report: PublishReport, *, may_return: bool) -> errors.RabbitChxError | None:
    """Return the error of messages that the broker refused or, unless they may be, returned; None if there are none."""
    in_doubt = tally.refused_in_doubt + (0 if may_return else tally.returned_in_doubt)
    if tally.nacked:
        error: errors.RabbitChxError = refusal_error(report)
    elif tally.closes:
        error = tally.closes[0]
    elif report.returned + tally.returned_in_doubt and not may_return:
        error = errors.UnroutableError(_unroutable(tally, report.returned))
    else:
        return None
    return unknown_outcome(error, f"{in_doubt:,} of these messages") if in_doubt else error


def _unroutable(tally: Tally, returned: int) -> str:
    in_doubt = tally.returned_in_doubt
    sentence = f"no queue took {returned + in_doubt:,} of the messages"
    therefore = "" if in_doubt else ", so no queue has them"
    if (first := tally.returned_sample) is None:
        return f"{sentence}{therefore}"
    key = Returned.of(first).key
    sentence += f" (reply code {first.code}, {first.text}; one has the key {key!r})"
    return f"{sentence}{therefore}: {unroutable_remedy(first)}"

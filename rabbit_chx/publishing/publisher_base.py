"""What both publishers share: arguments, columns, reports and errors."""

from __future__ import annotations

import random
import time
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing.batches import BATCH_ROWS, async_batches, batches
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.publishing.encoder import Encoder, exchange_name
from rabbit_chx.publishing.limits import Limits, Retries
from rabbit_chx.publishing.properties import Properties, check_name
from rabbit_chx.publishing.publish_report import NACK
from rabbit_chx.publishing.rows import Rows, as_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence

    from rabbit_chx.publishing.batches import Batch
    from rabbit_chx.publishing.publish_report import PublishReport

__all__ = ["BulkPublisher", "Target", "columns_of"]

Target: TypeAlias = "str | ConnectionSettings"

_PERSISTENT = 2
_TRANSIENT = 1


class BulkPublisher:
    """Publishes many messages, and knows of each whether the broker has it.

    Args:
        url: an AMQP URI, or settings; or several, which are tried in this order.
        exchange: the exchange to publish to; it must be there.
        max_in_flight: messages sent and not yet confirmed. 1,000 is enough near the broker; over a
            network take rate times round trip.
        max_in_flight_bytes: the same in bytes.
        mandatory: whether the broker shall return what it cannot route.
        persistent: whether queues shall keep the messages over a restart (delivery mode 2).
        content_type: of all bodies.
        properties: other properties that all messages have, by name (``app_id``, ``headers``, ...).
        on_unroutable: ``"raise"``, or ``"report"`` where returned messages are no error.
        confirm_timeout_s: seconds without any progress, be it a byte on its way, until the connection is given up.
        blocked_timeout_s: seconds for which the broker may ask publishers to wait.
        reconnect_timeout_s: seconds for which to try to connect again after a loss; an answer of the broker for a
            message renews them. 0 gives up at once. An attempt tries each URL once, beginning with the next.
        max_reconnects: failed attempts in a row, as a further bound; None for none, 0 gives up at once.
        retry_first_connection: whether the first connection has the same time; else it fails at once.
        nack_retries: how often a message that the broker refused is sent again while no other is confirmed.
        backoff_s: seconds before the first attempt of either kind; each further one waits twice as long, at most 5 s.
        keep_order: no message may overtake one that was handed over before; a refused one is then an error at once.
            This is said of first copies: docs/publishing.md tells how a later one may come behind newer messages.
        progress: called with the report so far, at most four times a second, after each reconnect, and last with the
            report that ends a flush or is in an error. What it raises ends the call of the publisher.
        connection_name: shown by the management page.

    Attributes:
        exchange: the exchange's name.

    Raises:
        InputError: an argument cannot be.
    """

    def __init__(
        self,
        url: Target | Sequence[Target],
        exchange: str,
        *,
        max_in_flight: int = Limits.max_in_flight,
        max_in_flight_bytes: int = Limits.max_in_flight_bytes,
        mandatory: bool = True,
        persistent: bool = True,
        content_type: str | None = None,
        properties: Mapping[str, Any] | None = None,
        on_unroutable: Literal["raise", "report"] = "raise",
        confirm_timeout_s: float = Limits.confirm_timeout_s,
        blocked_timeout_s: float = Limits.blocked_timeout_s,
        reconnect_timeout_s: float = Retries.reconnect_timeout_s,
        max_reconnects: int | None = Retries.max_reconnects,
        retry_first_connection: bool = Retries.retry_first_connection,
        nack_retries: int = Retries.nack_retries,
        backoff_s: float = Retries.backoff_s,
        keep_order: bool = False,
        progress: Callable[[PublishReport], None] | None = None,
        connection_name: str | None = None,
    ) -> None:
        if on_unroutable not in ("raise", "report"):
            raise InputError(f"on_unroutable is {on_unroutable!r}: give 'raise' or 'report'")
        name = exchange_name(exchange)
        self.exchange = exchange
        self._exchange = name
        self._on_unroutable = on_unroutable
        # Half a window, so that it never runs dry; smaller batches cost the client more CPU and win little.
        self._batch_rows = max(1, min(BATCH_ROWS, max_in_flight // 2))
        self._properties = Properties(
            {
                "delivery_mode": _PERSISTENT if persistent else _TRANSIENT,
                "content_type": content_type,
                **(properties or {}),
            }
        )
        constant = self._properties.constant
        self._delivery = Delivery(
            _targets(url, connection_name),
            lambda frame_max: Encoder(name, constant, mandatory=mandatory, frame_max=frame_max),
            Limits(max_in_flight, max_in_flight_bytes, confirm_timeout_s, blocked_timeout_s),
            Retries(
                reconnect_timeout_s=reconnect_timeout_s,
                max_reconnects=max_reconnects,
                retry_first_connection=retry_first_connection,
                nack_retries=nack_retries,
                backoff_s=backoff_s,
                keep_order=keep_order,
            ),
            clock=time.monotonic,
            chance=random.random,
            progress=progress,
        )
        self._begin()

    def _begin(self) -> None:
        """All arguments are good."""

    @property
    def report(self) -> PublishReport:
        """What has become of the rows since the last flush or error, as known now."""
        return self._delivery.report

    def __repr__(self) -> str:
        state = "closed" if self._delivery.failure else str(self.report)
        return f"<{type(self).__name__} exchange={self.exchange!r} at {self._delivery.where}: {state}>"

    # -- rows

    def _batches(self, columns: Mapping[str, Any]) -> Iterator[Rows]:
        """The columns as batches of rows that AMQP can carry.

        Raises:
            InputError: they cannot be; of a RowError, the message names the row.
        """
        first_row = self._delivery.tally.rows
        for batch in batches(columns, self._batch_rows):
            yield self._rows(columns, batch, first_row)
            first_row += len(batch[0])

    async def _async_batches(self, columns: Mapping[str, Any]) -> AsyncGenerator[Rows, None]:
        """`_batches`, where a column may be an async iterable as well."""
        first_row = self._delivery.tally.rows
        async with aclosing(async_batches(columns, self._batch_rows)) as coming:
            async for batch in coming:
                yield self._rows(columns, batch, first_row)
                first_row += len(batch[0])

    def _rows(self, names: Iterable[str], batch: Batch, first_row: int) -> Rows:
        keys = as_bytes(batch[0], "routing key", first_row, MAX_SHORTSTR)
        bodies = as_bytes(batch[1], "body", first_row)
        if len(batch) == 2:
            return Rows(keys, bodies)
        columns = dict(islice(zip(names, batch, strict=True), 2, None))
        exchanges = columns.pop("exchanges", None)
        return Rows(
            keys,
            bodies,
            self._properties.of_rows(columns, first_row) if columns else None,
            self._exchange_names(exchanges, first_row) if exchanges is not None else None,
        )

    def _exchange_names(self, names: Sequence[str | None], first_row: int) -> Sequence[bytes]:
        filled = [self._exchange if name is None else name for name in names]
        return as_bytes(filled, "exchange", first_row, MAX_SHORTSTR)

    # -- what came of them

    def _finished(self) -> PublishReport:
        """The report of a flush, which begins a new one.

        Raises:
            PublishError: not every row is confirmed.
        """
        report = self.report
        if report.nacked:
            raise self._error(self._delivery.refusal())
        if report.returned and self._on_unroutable == "raise":
            raise self._error(_unroutable(report))
        if report.unknown:
            raise self._error("an operation was broken off in the middle")
        self._delivery.end(report, None)
        return report

    def _error(self, why: object) -> PublishError:
        self._delivery.give_up_refused()
        report = self.report
        error = PublishError(f"exchange {self.exchange!r}: {why}; {report}", report, exchange=self.exchange)
        self._delivery.end(report, error)
        return error

    def _is_success(self, report: PublishReport) -> bool:
        fine = report.confirmed + (report.returned if self._on_unroutable == "report" else 0)
        return fine == report.rows


def columns_of(
    keys: object, bodies: object, properties: Mapping[str, object] | None, exchanges: object
) -> dict[str, object]:
    """What `send` was given as columns by name: keys, bodies, and those that there are of the others.

    Raises:
        InputError: a name is no property's.
    """
    columns = {"keys": keys, "bodies": bodies}
    if exchanges is not None:
        columns["exchanges"] = exchanges
    for name, values in (properties or {}).items():
        check_name(name)
        columns[name] = values
    return columns


def _targets(url: Target | Sequence[Target], connection_name: str | None) -> tuple[ConnectionSettings, ...]:
    if url is None:
        raise InputError("url is None: give an AMQP URI, such as amqp://localhost")
    given = (url,) if isinstance(url, (str, ConnectionSettings)) else tuple(url)
    if not given:
        raise InputError("url is an empty list: give one AMQP URI, or several")
    settings = tuple(
        one if isinstance(one, ConnectionSettings) else ConnectionSettings.from_uri(one) for one in given
    )
    if connection_name is None:
        return settings
    return tuple(replace(one, connection_name=connection_name) for one in settings)


def _unroutable(report: PublishReport) -> str:
    gone = f"no queue took {report.returned:,} of the messages"
    sample = next((sample for sample in report.samples if sample.code != NACK), None)
    if sample is not None:
        gone += f" ({sample.code} {sample.text}; one has the key {sample.key!r})"
    return f"{gone}, and they are gone: bind queues to the exchange, or look for holes in its ring"

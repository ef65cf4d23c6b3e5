"""The delivery of the messages of an outbox, each with its own outcome. No I/O, no clock.

It is a `Delivery` of which one operation, `serve`, never ends by itself: it sends what is queued while confirms come in. The differences:

- A confirm, a return and a refusal are outcomes of one message. Refusals are counted per message, and end no operation.
- A return carries no delivery tag. It is compared with the open messages by exchange, key, properties and body. RabbitMQ returns messages
  in the order of their publishing: rabbitmq-server v4.3.6, rabbit_channel.erl, deliver_to_queues/3. Of two equal messages either may be the
  one that was returned; no program can tell them apart.
- A row that closes the channel or the connection gets the error of the close, and so do open rows to the same missing exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.ledger import RowLedger
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import NackedError, RabbitChxError, UnroutableError
from rabbit_chx.publishing.batches import BATCH_BYTES
from rabbit_chx.publishing.delivery import (
    Delivery,
    Poll,
    RowBatch,
    Steps,
    closing_error,
    is_of_exchange,
)
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.limits import Patience
from rabbit_chx.publishing.shared.outbox import ErrorFor, Message, Outbox

_IDLE_POLL_S = 1.0


class SharedDelivery(Delivery):
    """Messages of an outbox being delivered to the broker.

    Args:
        outbox: the messages.
        batch_rows: the most messages of a batch.
        linger_s: seconds for which a message may wait for others.
        given: the arguments of `Delivery`.
    """

    def __init__(
        self, outbox: Outbox, batch_rows: int, linger_s: float, /, *given: object, **named: object
    ) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self._outbox = outbox
        self._batch_rows = batch_rows
        self._linger_s = linger_s
        self._ledger = RowLedger[RowBatch]()
        self._returned: dict[int, Return] = {}  # by number, until they are acked
        self._returned_tag = 0  # the last one

    def serve(self) -> Steps:
        """Send messages as they are queued, until the outbox is closed and empty."""
        patience = Patience(self._limits, self._clock())
        while True:
            yield from self._wait_until(self._is_due, 0, patience)
            taken = self._outbox.take(self._batch_rows, BATCH_BYTES) if self._is_usable() else None
            if taken is not None and self._connection is not None:
                numbers, rows = taken
                self._publish(self._connection, RowBatch(rows, numbers))
            elif self._is_over():
                return

    def _is_over(self) -> bool:
        return self._outbox.closed is not None and self._outbox.is_empty

    def _is_due(self) -> bool:
        if self._is_over():
            return True
        return self._is_usable() and self._outbox.is_due(self._linger_s, self._batch_rows)

    def _is_usable(self) -> bool:
        connection = self._connection
        if connection is None or self.failure is not None or self._one_by_one:
            return False
        session = connection.session
        if session.failure is not None or connection.backlog or session.blocked is not None:
            return False
        # Messages that have expired are open here, and no longer in the outbox.
        return session.ledger.open + self._refused.rows < self._limits.max_in_flight

    def _next_poll(self, connection: OpenConnection, until_open: int) -> Poll:
        wait_s = _IDLE_POLL_S if self._outbox.is_empty else super()._next_poll(connection, until_open).wait_s
        if self._is_usable() and not self._outbox.sleep():
            wait_s = min(wait_s, self._outbox.linger_left_s(self._linger_s))
        return Poll(wait_s)

    # -- outcomes

    def _settle_and_test(self, condition: Callable[[], bool]) -> bool:
        self._settle_confirmed()
        return super()._settle_and_test(condition)

    def _settle_confirmed(self) -> None:
        ledger = self._ledger
        if not ledger.confirmed:
            return
        confirmed, ledger.confirmed = ledger.confirmed, []
        if self._returned:
            for number in self._returned.keys() & set(confirmed):
                self._settle([number], "returned", self._unroutable(self._returned.pop(number)))
        self._outbox.settle(confirmed)

    def _unroutable(self, returned: Return) -> ErrorFor:
        def error(message: Message) -> UnroutableError:
            exchange = _exchange(message.rows)
            return UnroutableError(
                f"exchange {exchange!r}: no queue took the message with the routing key {_key(message.rows)!r:.80} (reply code "
                f"{returned.code}, {returned.text}): bind queues to the exchange, or look for holes in its ring",
                exchange=exchange,
                reply_code=returned.code,
            )

        return error

    def _on_returned(self, returned: Return, properties: bytes, body: bytes) -> None:
        """Find the message that was returned."""
        ledger, after = self._ledger, self._returned_tag
        expected = (returned.exchange, returned.key, body)
        for tags, is_exact in (
            (range(after + 1, ledger.sent + 1), True),
            (range(after + 1, ledger.sent + 1), False),  # the broker may add headers: message interceptors
            (range(1, after + 1), False),
        ):
            for tag in tags:
                number = ledger.number(tag)
                if number is None or number in self._returned:
                    continue
                rows = self._outbox.rows_of(number)
                if rows is None or not rows.exchanges or not rows.properties:
                    continue
                given = (rows.exchanges[0], rows.keys[0], rows.bodies[0])
                if given == expected and not (is_exact and rows.properties[0] != properties):
                    self._returned[number] = returned
                    self._returned_tag = max(after, tag)
                    return

    def _collect_refused(self, connection: OpenConnection, now: float) -> None:
        retries = self._retries
        for batch, places in connection.session.ledger.take_refused():
            refused = batch.pick(places)
            if refused.refusals >= retries.nack_retries:
                self._settle(refused.numbers, "nacked", _nacked)
            else:
                due = now + retries.backoff.delay_s(refused.refusals, self._chance())
                self._refused.add(replace(refused, refusals=refused.refusals + 1, due=due))

    def _refuse_closing(self, cause: RabbitChxError, alone: RowBatch) -> None:
        exchanges = alone.rows.exchanges
        self._settle(alone.numbers, "nacked", _closing(cause))
        if exchanges and is_of_exchange(cause):
            others = [batch for batch in self._unsent if batch.rows.exchanges == exchanges]
            self._unsent = [batch for batch in self._unsent if batch.rows.exchanges != exchanges]
            for batch in others:
                self._settle(batch.numbers, "nacked", _closing(cause))

    def _settle(self, numbers: Iterable[int], kind: str, error_for: ErrorFor) -> None:
        self._outbox.settle(numbers, kind, error_for)

    # -- connections

    def _adopt(self, connection: OpenConnection) -> None:
        self._ledger = connection.session.ledger = RowLedger[RowBatch]()
        self._returned, self._returned_tag = {}, 0
        connection.session.on_returned = self._on_returned
        super()._adopt(connection)

    def _recover(self, cause: RabbitChxError) -> Steps:
        self._settle_confirmed()
        if self._outbox.is_empty:  # nothing is lost; the next connection has its own time
            self.failure = cause
            raise cause
        yield from super()._recover(cause)

    def _publish(self, connection: OpenConnection, batch: RowBatch) -> int:
        """Send the messages of a batch that have not expired, and return their number."""
        places = [place for place, number in enumerate(batch.numbers) if self._outbox.is_open(number)]
        return super()._publish(connection, batch.pick(places)) if places else 0


def _key(rows: Rows) -> str:
    return rows.keys[0].decode(errors="backslashreplace")


def _exchange(rows: Rows) -> str:
    return rows.exchanges[0].decode(errors="backslashreplace") if rows.exchanges else ""


def _nacked(message: Message) -> NackedError:
    exchange = _exchange(message.rows)
    return NackedError(
        f"exchange {exchange!r}: the broker refused the message with the routing key {_key(message.rows)!r:.80} (basic.nack): a queue is "
        "full and its overflow is reject-publish, or it has no majority of its nodes",
        exchange=exchange,
    )


def _closing(cause: RabbitChxError) -> ErrorFor:
    def error(message: Message) -> RabbitChxError:
        return closing_error(
            cause, f"the message with the routing key {_key(message.rows)!r:.80}", _exchange(message.rows)
        )

    return error

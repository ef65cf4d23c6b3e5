"""The messages of an outbox as messages of a delivery, each with its own outcome. No I/O, no clock.

- A confirm, a return and a refusal are outcomes of one message. Refusals are counted per message, and end no operation.
- A message whose headers do not fit into the broker's frames is not sent.
- A message of which a connection ended without an answer gets UnknownOutcomeError, if its next copy is returned or refused.
- A message that closes the channel or the connection gets the error of the close, and so do open messages to the same missing exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rabbit_chx.amqp.frames import FRAME_MAX, Return
from rabbit_chx.connection.failures import unknown_outcome
from rabbit_chx.connection.ledger import RowLedger
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import NackedError, RabbitChxError, RowError, UnroutableError
from rabbit_chx.publishing.batches import BATCH_BYTES
from rabbit_chx.publishing.closes import close_error
from rabbit_chx.publishing.encoder import longest_properties, too_large
from rabbit_chx.publishing.outcomes import RowBatch
from rabbit_chx.publishing.publish_report import unroutable_remedy
from rabbit_chx.publishing.returns import Returns
from rabbit_chx.publishing.shared.outbox import ErrorFor, Message, Outbox

_IDLE_POLL_S = 1.0


class OutboxRows:
    """The source of a delivery's messages, and what becomes of them: `Source` and `Outcomes`.

    Args:
        outbox: the messages.
        batch_rows: the most messages of a batch.
        linger_s: seconds for which a message may wait for others.
    """

    def __init__(self, outbox: Outbox, batch_rows: int, linger_s: float) -> None:
        self._outbox = outbox
        self._batch_rows = batch_rows
        self._linger_s = linger_s
        self._ledger = RowLedger[RowBatch]()
        self._returned: dict[int, Return] = {}  # by number, until they are acked
        self._in_doubt: set[int] = set()  # those of them that may be in a queue from before
        self._returns = Returns(self._ledger)
        self._longest_properties = longest_properties(FRAME_MAX)

    # -- as `Source`

    @property
    def is_over(self) -> bool:
        """True if the outbox is closed and empty."""
        return self._outbox.closed is not None and self._outbox.is_empty

    def is_due(self) -> bool:
        """Return whether enough messages are queued, or one for long enough."""
        return self._outbox.is_due(self._linger_s, self._batch_rows)

    def take(self) -> RowBatch | None:
        """Take the next messages; None without one."""
        taken = self._outbox.take(self._batch_rows, BATCH_BYTES)
        return None if taken is None else RowBatch(taken[1], taken[0])

    def idle_s(self, longest_s: float, *, may_send: bool) -> float:
        """Return the seconds of the next poll, which a submission ends."""
        wait_s = _IDLE_POLL_S if self._outbox.is_empty else longest_s
        if may_send and not self._outbox.sleep():
            wait_s = min(wait_s, self._outbox.linger_left_s(self._linger_s))
        return wait_s

    # -- as `Outcomes`

    @property
    def may_end(self) -> bool:
        """True if every message has its outcome."""
        return self._outbox.is_empty

    def attach(self, connection: OpenConnection) -> None:
        """Note the confirms and returns of this connection by message."""
        self._ledger = connection.session.ledger = RowLedger[RowBatch]()
        self._returned, self._in_doubt, self._returns = {}, set(), Returns(self._ledger)
        self._longest_properties = longest_properties(connection.session.frame_max)
        connection.session.on_returned = self._on_returned

    def settle(self) -> None:
        """Give the messages that were acked since the last call their outcome."""
        ledger = self._ledger
        if not ledger.confirmed:
            return
        confirmed = ledger.confirmed
        ledger.confirmed = []
        if self._returned:
            for number in self._returned.keys() & set(confirmed):
                is_in_doubt = number in self._in_doubt
                error_for = partial(_unroutable, self._returned.pop(number))
                self._settle([number], "returned", error_for, is_in_doubt=is_in_doubt)
        self._outbox.settle(confirmed)

    def pending(self, batch: RowBatch) -> RowBatch | None:
        """Return the messages that have not expired; those with too long headers get their error."""
        most = self._longest_properties
        sizes = map(len, batch.rows.properties or ())
        oversized = [number for number, size in zip(batch.numbers, sizes, strict=False) if size > most]
        if oversized:
            error_for = partial(_frame_error, most)
            self._settle(oversized, "nacked", error_for, is_in_doubt=batch.may_be_stored)
        indices = self._outbox.find_open(batch.numbers)
        return batch.pick(indices) if indices else None

    def refusals(self, batch: RowBatch, _acked: int) -> int:
        """Return all refusals."""
        return batch.refusals

    def refuse(self, batch: RowBatch) -> None:
        """Give messages that the broker refused too often their error."""
        self._settle(batch.numbers, "nacked", _nack_error, is_in_doubt=batch.doubt is not None)

    def close(self, closed: Sequence[RowBatch], cause: RabbitChxError, _error: RabbitChxError) -> None:
        """Give messages the error of a close, each with its own name."""
        for batch in closed:
            error_for = partial(_close_error, cause)
            self._settle(batch.numbers, "nacked", error_for, is_in_doubt=batch.may_be_stored)

    def _settle(self, numbers: Sequence[int], kind: str, error_for: ErrorFor, *, is_in_doubt: bool) -> None:
        """Give refused messages their error: if a queue may have them from before, one that says so."""
        if is_in_doubt:
            self._outbox.settle(numbers, "failed", lambda message: unknown_outcome(error_for(message)))
        else:
            self._outbox.settle(numbers, kind, error_for)

    def _on_returned(self, returned: Return, properties: bytes, body: bytes) -> None:
        """Find the message that was returned."""
        if (found := self._returns.find(returned, properties, body)) is not None:
            batch, number = found
            self._returned[number] = returned
            if batch.may_be_stored:
                self._in_doubt.add(number)


def _unroutable(returned: Return, message: Message) -> UnroutableError:
    exchange = _exchange(message)
    return UnroutableError(
        f"exchange {exchange!r}: no queue took {_named(message)} (reply code "
        f"{returned.code}, {returned.text}): {unroutable_remedy(returned)}",
        exchange=exchange,
        reply_code=returned.code,
    )


def _named(message: Message) -> str:
    return f"the message with the routing key {message.key.decode(errors='backslashreplace')!r:.80}"


def _exchange(message: Message) -> str:
    return message.exchange.decode(errors="backslashreplace")


def _nack_error(message: Message) -> NackedError:
    exchange = _exchange(message)
    return NackedError(
        f"exchange {exchange!r}: the broker rejected {_named(message)} (basic.nack): a queue is "
        "full and its overflow is reject-publish, or it has no majority of its nodes",
        exchange=exchange,
    )


def _frame_error(most: int, message: Message) -> RowError:
    return RowError(too_large(message.properties, most), exchange=_exchange(message))


def _close_error(cause: RabbitChxError, message: Message) -> RabbitChxError:
    return close_error(cause, _named(message), _exchange(message))

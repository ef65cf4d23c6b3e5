"""Which message the broker returned. A return carries no delivery tag. No I/O, no clock."""

from __future__ import annotations

from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.ledger import Ledger
from rabbit_chx.publishing.outcomes import RowBatch


class Returns:
    """Finds the returned messages of one connection among its open ones.

    Exchange, key, properties and body are compared. RabbitMQ returns messages in the order of their publishing: rabbitmq-server v4.3.6,
    rabbit_channel.erl, deliver_to_queues/3. Of two equal messages either may be the one that was returned; no program can tell them apart.
    """

    def __init__(self, ledger: Ledger[RowBatch]) -> None:
        self._ledger = ledger
        self._last = 0  # the highest tag of a returned message
        self._found: dict[int, tuple[RowBatch, int]] = {}  # by tag, with the index in the batch

    def find(self, returned: Return, properties: bytes, body: bytes) -> tuple[RowBatch, int] | None:
        """Return the batch of a returned message, and its number; None if no open message is equal."""
        ledger = self._ledger
        if len(self._found) > 2 * ledger.open + 100:
            self._found = {tag: row for tag, row in self._found.items() if ledger.is_open(tag)}
        for after, is_exact in (
            (self._last, True),
            (self._last, False),  # the broker may add headers: message interceptors
            (0, False),
        ):
            for tag, batch, index in ledger.find_open(after):
                rows = batch.rows
                if (
                    tag not in self._found
                    and rows.bodies[index] == body
                    and rows.keys[index] == returned.key
                    # Messages without their own exchange or properties have those of the publisher.
                    and (rows.exchanges is None or rows.exchanges[index] == returned.exchange)
                    and (not is_exact or rows.properties is None or rows.properties[index] == properties)
                ):
                    self._found[tag] = batch, index
                    self._last = max(self._last, tag)
                    return batch, batch.numbers[index]
        return None

    def find_unanswered(self) -> list[tuple[RowBatch, int]]:
        """Return the returned messages without an ack, each by its batch and its number. They are sent again after a loss."""
        found = self._found.items()
        return [(batch, batch.numbers[index]) for tag, (batch, index) in found if self._ledger.is_open(tag)]

"""What a delivery and the owner of its messages tell each other: where messages come from, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.publishing.encoder import Rows

#: The doubt of messages whose connection was lost, or closed over another message behind them.
LOST = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowBatch:
    """Messages that are sent together. The ledger returns the batch with its refused and unanswered messages.

    Attributes:
        numbers: the number of each message in its report.
        refusals: refusals by the broker without a confirm of another message in between.
        due: the time of the next attempt after a refusal, in seconds of a monotonic clock.
        acked: messages that the broker had confirmed in all at the last refusal.
        closes: how often the broker closed the channel or the connection while these messages were open.
        losses: how often a connection was lost while this message was open alone.
        is_processed: whether the channel has once processed this message without closing over it; its confirm is missing.
        doubt: None unless a connection ended without an answer for these messages. Then they may be in a queue: the reply code of the close,
            which may have been over one of them or one before it, or `LOST`.
    """

    rows: Rows
    numbers: Sequence[int]
    refusals: int = 0
    due: float = 0.0
    acked: int = 0
    closes: int = 0
    losses: int = 0
    is_processed: bool = False
    doubt: int | None = None

    @property
    def may_be_stored(self) -> bool:
        """True if a queue may have these messages from before: of an exchange with several queues, also after a refusal."""
        return self.doubt is not None or self.refusals > 0

    def pick(self, indices: Sequence[int]) -> RowBatch:
        """Return the messages with these indices."""
        return replace(self, rows=self.rows.pick(indices), numbers=[self.numbers[i] for i in indices])


class Outcomes(Protocol):
    """What becomes of the messages of a delivery: a `Tally` counts them, `OutboxRows` gives each message its own outcome."""

    @property
    def may_end(self) -> bool:
        """True if a delivery need not replace a lost connection: nothing is open, and later messages have another delivery."""

    def attach(self, connection: OpenConnection) -> None:
        """Note the confirms and returns of this connection from now on. It has no message."""

    def settle(self) -> None:
        """Give the messages that were confirmed since the last call their outcome."""

    def pending(self, batch: RowBatch) -> RowBatch | None:
        """Return the messages that still wait for their outcome; None without one."""

    def refusals(self, batch: RowBatch, acked: int) -> int:
        """Return the earlier refusals of these messages that count; `acked` are the messages that the broker has confirmed in all."""

    def refuse(self, batch: RowBatch) -> None:
        """Note messages that the broker finally refused with basic.nack."""

    def close(self, closed: Sequence[RowBatch], cause: RabbitChxError, error: RabbitChxError) -> None:
        """Note messages that are not sent again after a close by the broker.

        Args:
            closed: the message that the broker closed the channel or the connection over, then those to the same refused exchange.
            cause: the close.
            error: the close, with the name of the first message.
        """


class Source(Protocol):
    """Messages that other threads hand over, which `Delivery.serve` sends."""

    @property
    def is_over(self) -> bool:
        """True if there are no messages, and never will be."""

    def is_due(self) -> bool:
        """Return whether messages wait that should be sent now."""

    def take(self) -> RowBatch | None:
        """Take the next messages; None without one."""

    def idle_s(self, longest_s: float, *, may_send: bool) -> float:
        """Return the seconds of the next poll: at most `longest_s` while messages are open, and until messages are due if they may be sent."""

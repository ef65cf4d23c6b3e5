"""Batches that are sent, and those that wait for their next attempt after the broker refused them. No clock."""

from __future__ import annotations

from dataclasses import dataclass

from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.publishing.publish_report import NACK, PublishReport
from rabbit_chx.publishing.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """A batch that is sent, for the first time or again. It is what the ledger holds for its messages.

    Attributes:
        rows: its messages.
        refusals: how often the broker refused them while it confirmed no other message.
        due: when to send them again after a refusal, in seconds of a clock that only goes forward.
        acked: how many messages the broker had confirmed when it last refused these.
    """

    rows: Rows
    refusals: int = 0
    due: float = 0.0
    acked: int = 0


class WaitingBatches:
    """Batches that wait for their next attempt. Mostly there are none.

    Attributes:
        rows: the number of rows that wait.
        body_bytes: the bytes of their bodies.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.body_bytes = 0
        self._waiting: list[Sent] = []

    def add(self, sent: Sent) -> None:
        """Let a batch wait until it is due."""
        self._waiting.append(sent)
        self.rows += len(sent.rows)
        self.body_bytes += sum(map(len, sent.rows.bodies))

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the first batch is due."""
        return max(0.0, min(sent.due for sent in self._waiting) - now)

    def take_due(self, now: float) -> list[Sent]:
        """Take out the batches that are due, oldest first."""
        due = [sent for sent in self._waiting if sent.due <= now]
        self._keep([sent for sent in self._waiting if sent.due > now])
        return due

    def take_all(self) -> list[Sent]:
        """Take out all batches, oldest first."""
        waiting = self._waiting
        self._keep([])
        return waiting

    def _keep(self, waiting: list[Sent]) -> None:
        self._waiting = waiting
        self.rows = sum(len(sent.rows) for sent in waiting)
        self.body_bytes = sum(len(body) for sent in waiting for body in sent.rows.bodies)


def refusal(report: PublishReport) -> BrokerRefusedError:
    """Return the error for rows that the broker refused for good, from the report that counts them."""
    key = next((sample.key for sample in report.samples if sample.code == NACK), "")
    return BrokerRefusedError(
        "the broker refused messages (basic.nack): a queue is full and its overflow is reject-publish, or it has no "
        f"majority of its nodes; one of them has the key {key!r}"
    )

"""Batches on their way, and those that wait for their next attempt after a refusal. No clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbit_chx.publishing.rows import Rows

__all__ = ["Refused", "Sent"]


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """A batch on its way, or on its way again; stands in the ledger.

    Attributes:
        rows: its messages.
        refusals: how often the broker refused them while it confirmed no other message.
        due: when they are to be sent again after a refusal.
        acked: how many messages it had confirmed when it refused these last.
    """

    rows: Rows
    refusals: int = 0
    due: float = 0.0
    acked: int = 0


class Refused:
    """Batches that wait for their next attempt; mostly none."""

    def __init__(self) -> None:
        self._waiting: list[Sent] = []

    def __len__(self) -> int:
        """How many rows."""
        return sum(len(sent.rows) for sent in self._waiting)

    @property
    def body_bytes(self) -> int:
        """The bytes of their bodies."""
        return sum(len(body) for sent in self._waiting for body in sent.rows.bodies)

    def add(self, sent: Sent) -> None:
        """Let a batch wait until it is due."""
        self._waiting.append(sent)

    def seconds_left(self, now: float) -> float:
        """Until the first of them is due."""
        return max(0.0, min(sent.due for sent in self._waiting) - now)

    def take_due(self, now: float) -> list[Sent]:
        """Those that are due, oldest first; they wait no longer."""
        due = [sent for sent in self._waiting if sent.due <= now]
        self._waiting = [sent for sent in self._waiting if sent.due > now]
        return due

    def take_all(self) -> list[Sent]:
        """All of them, oldest first; they wait no longer."""
        waiting, self._waiting = self._waiting, []
        return waiting

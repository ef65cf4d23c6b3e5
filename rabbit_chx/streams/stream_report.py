"""The counts of the rows that a publisher of streams was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Counts of the rows of one call. No row is both known and repaired.

    Attributes:
        rows: the rows that were given.
        confirmed: the rows that the broker has confirmed.
        streams: the rows that each stream has confirmed.
        known: of these, those whose ids the broker had before this publisher sent them, from an earlier run: they were not stored
            again.
        resent: rows sent once more, because they were unconfirmed when their connection was lost. Without a name each may be a
            duplicate.
        repaired: rows that the broker had confirmed and not stored, stored by a further reference.
        reconnects: connections opened in place of a lost one.
        seconds: from the first row to the last confirm.
    """

    rows: int = 0
    confirmed: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    known: int = 0
    resent: int = 0
    repaired: int = 0
    reconnects: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every row is confirmed."""
        return self.confirmed == self.rows

    def __str__(self) -> str:
        counts = (
            (self.known, "known from an earlier run"),
            (self.resent, "sent again after a reconnect"),
            (self.repaired, "repaired"),
        )
        parts = [f"{self.confirmed:,} of {self.rows:,} rows confirmed"]
        return ", ".join(parts + [f"{count:,} {what}" for count, what in counts if count])

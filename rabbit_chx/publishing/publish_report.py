"""The counts of the rows that a publisher was given."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from rabbit_chx.amqp.frames import Return

#: The reply code of a refused message among the samples; a basic.nack has none of its own.
NACK = 0


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that came back because no queue takes it, or that the broker refused for good.

    Attributes:
        key: its routing key as text; bytes that are not UTF-8 are escapes.
        code: the reply code; 312 is NO_ROUTE, and 0 is a refusal (basic.nack).
        text: the broker's words.
    """

    key: str
    code: int
    text: str

    @classmethod
    def of(cls, returned: Return) -> Returned:
        """Return the value for people.

        Args:
            returned: the basic.return; bytes of its key that are not UTF-8 become escapes.
        """
        return cls(returned.key.decode(errors="backslashreplace"), returned.code, returned.text)


@dataclass(frozen=True, slots=True)
class PublishReport:
    """Counts of rows: ``confirmed + returned + nacked + unknown == rows``.

    Attributes:
        rows: rows that were handed to the connection.
        confirmed: rows that the broker acked and did not return.
        returned: rows that the broker acked and routed to no queue: they are gone.
        nacked: rows that the broker refused each time they were sent; a full queue does that, for example.
        unknown: rows that were not answered before the end; each may be in a queue, or not.
        retried: messages sent once more, because the broker had refused them.
        republished: messages sent once more, because their connection was lost before they were answered. Each may
            be a duplicate. A row may be sent more often than twice.
        reconnects: connections opened in place of a lost connection.
        bytes_sent: bytes of AMQP frames for these rows.
        seconds: from the first row until now, or until `flush` had the last answer.
        blocked_seconds: of these, how long the broker had asked publishers to wait (connection.blocked).
        samples: the first few returned messages and a message that was refused for good, without their bodies.
    """

    rows: int = 0
    confirmed: int = 0
    returned: int = 0
    nacked: int = 0
    unknown: int = 0
    retried: int = 0
    republished: int = 0
    reconnects: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0
    blocked_seconds: float = 0.0
    samples: tuple[Returned, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether every row is confirmed."""
        return self.confirmed == self.rows

    def __add__(self, other: PublishReport) -> PublishReport:
        """Return the sums of all counts and seconds, and the samples of both."""
        total: dict[str, Any] = {
            count.name: getattr(self, count.name) + getattr(other, count.name) for count in fields(self)
        }
        return PublishReport(**total)

    def __str__(self) -> str:
        if not self.rows:
            return "nothing was published"
        parts = [f"{self.confirmed:,} of {self.rows:,} rows confirmed"]
        parts += [
            f"{count:,} {what}"
            for count, what in (
                (self.returned, "returned as unroutable"),
                (self.nacked, "refused (nack)"),
                (self.unknown, "unknown"),
                (self.retried, "sent again after a refusal"),
                (self.republished, "sent again after a reconnect"),
            )
            if count
        ]
        return ", ".join(parts)

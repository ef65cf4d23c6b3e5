"""The counts of the rows that a publisher was given: as a report, and while they are counted over several connections."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import PublishError
from rabbit_chx.publishing.encoder import Rows

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
        """Return the sample of the basic.return `returned`."""
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
        republished: messages sent once more, because their connection was lost before they were answered. Each may be a duplicate. A row
            may be sent more often than twice.
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


class Tally:
    """Counts from one flush to the next.

    Attributes:
        rows: rows that were handed over.
        first_row_at: when the first of them was, in seconds of a clock that only goes forward; None before it.
        nacked: rows that were refused for good.
        retried: messages sent again after a refusal.
        republished: messages sent again over a new connection.
        reconnects: connections opened in place of a lost connection.
        blocked_s: seconds for which the broker asked publishers to wait.
        final: the report that ended these counts; None until then.
        error: the error that was raised with it, or None.
    """

    def __init__(self) -> None:
        self.final: PublishReport | None = None
        self.error: PublishError | None = None
        self.rows = 0
        self.first_row_at: float | None = None
        self.nacked = 0
        self.retried = 0
        self.republished = 0
        self.reconnects = 0
        self.blocked_s = 0.0
        self._samples: list[Return] = []
        # Of the connections that are lost:
        self._confirmed = 0
        self._returned = 0
        self._bytes_sent = 0
        # Of the present connection, as it was when these counts began:
        self._acked_before = 0
        self._returned_before = 0
        self._bytes_before = 0

    def refuse(self, rows: Rows) -> None:
        """Count rows that the broker refused for good."""
        if not self.nacked:
            self._samples.append(Return(NACK, "refused (basic.nack)", rows.keys[0]))
        self.nacked += len(rows)

    def attach(self, connection: OpenConnection) -> None:
        """Count from now on what happens on this connection."""
        self._acked_before = connection.session.ledger.acked
        self._returned_before = connection.session.returned
        self._bytes_before = connection.bytes_sent
        connection.session.samples = self._samples

    def detach(self, connection: OpenConnection) -> None:
        """Keep the counts of a connection that is lost; its open rows are sent again.

        A return carries no delivery tag. So if a message came back and its ack was lost, only their number is known. It is taken off the
        confirms of this connection, which may then be too few, and are never too many.
        """
        acked, returned = self._counts_on(connection)
        self._confirmed += max(0, acked - returned)
        self._returned += min(acked, returned)
        self._bytes_sent += connection.bytes_sent - self._bytes_before

    def report(self, connection: OpenConnection | None, now: float) -> PublishReport:
        """Return the counts as known now."""
        acked, returned = self._counts_on(connection) if connection else (0, 0)
        # The broker acks a returned message right after it; that ack may not be here yet.
        confirmed = self._confirmed + max(0, acked - returned)
        returned += self._returned
        return PublishReport(
            rows=self.rows,
            confirmed=confirmed,
            returned=returned,
            nacked=self.nacked,
            retried=self.retried,
            unknown=self.rows - confirmed - returned - self.nacked,
            republished=self.republished,
            reconnects=self.reconnects,
            bytes_sent=self._bytes_sent + (connection.bytes_sent - self._bytes_before if connection else 0),
            seconds=now - self.first_row_at if self.first_row_at is not None else 0.0,
            blocked_seconds=self.blocked_s,
            samples=tuple(Returned.of(sample) for sample in self._samples),
        )

    def _counts_on(self, connection: OpenConnection) -> tuple[int, int]:
        session = connection.session
        return session.ledger.acked - self._acked_before, session.returned - self._returned_before

"""The counts of one report, over all the connections that its rows took."""

from __future__ import annotations

from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.link import Link
from rabbit_chx.errors import PublishError
from rabbit_chx.publishing.publish_report import NACK, PublishReport, Returned
from rabbit_chx.publishing.rows import Rows


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

    def take_up(self, link: Link | None) -> None:
        """Count from now on what happens on this connection."""
        if link is None:
            return
        self._acked_before = link.answered - link.nacked
        self._returned_before = link.returned
        self._bytes_before = link.bytes_sent
        link.samples = self._samples

    def leave(self, link: Link) -> None:
        """Keep the counts of a connection that is lost; its open rows are sent again.

        A return carries no delivery tag. So if a message came back and its ack was lost, only their number is known.
        It is taken off the confirms of this connection, which may then be too few, and are never too many.
        """
        acked, returned = self._counts_on(link)
        self._confirmed += max(0, acked - returned)
        self._returned += min(acked, returned)
        self._bytes_sent += link.bytes_sent - self._bytes_before

    def report(self, link: Link | None, now: float) -> PublishReport:
        """Return the counts as known now.

        Args:
            link: the present connection; None between two.
            now: the time, in seconds of a clock that only goes forward.
        """
        acked, returned = self._counts_on(link) if link else (0, 0)
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
            bytes_sent=self._bytes_sent + (link.bytes_sent - self._bytes_before if link else 0),
            seconds=now - self.first_row_at if self.first_row_at is not None else 0.0,
            blocked_seconds=self.blocked_s,
            samples=tuple(Returned.of(sample) for sample in self._samples),
        )

    def _counts_on(self, link: Link) -> tuple[int, int]:
        return link.answered - link.nacked - self._acked_before, link.returned - self._returned_before

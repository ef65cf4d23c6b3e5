"""The counts of the messages given to a publisher: the report, and the tally over several connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import BrokerRefusedError, PublishError, RabbitChxError
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.outcomes import RowBatch
from rabbit_chx.publishing.returns import Returns
from rabbit_chx.words import with_counts

#: The reply code of a refused message among the samples; a basic.nack has none of its own.
NACK = 0
#: The most positions of a report.
MOST_FAILED = 10_000


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that is unroutable, or that the broker finally refused.

    Attributes:
        key: its routing key as text; bytes that are not UTF-8 are escapes.
        code: the reply code; 312 is NO_ROUTE, and 0 is a refusal (basic.nack).
        text: the broker's text.
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
    """Counts of messages: ``confirmed + returned + nacked + unknown == rows``.

    Attributes:
        rows: messages given to the connection.
        confirmed: messages that the broker acked and did not return.
        returned: messages that the broker acked and routed to no queue: they are lost.
        nacked: messages that the broker refused each time, for example because of a full queue, or since they close the channel.
        unknown: messages without an answer before the end, and those that were returned or refused after a connection had ended without an
            answer for them; each may or may not be in a queue.
        retried: messages sent again after a refusal.
        republished: messages sent again because their connection was lost before the answer. Each may be a duplicate. A message may be sent
            more than twice.
        reconnects: connections opened in place of a lost connection.
        bytes_sent: bytes of AMQP frames for these messages.
        seconds: from the first message until now, or until the last answer of `flush`.
        blocked_seconds: the part of `seconds` for which the broker blocked publishers (connection.blocked).
        samples: the first few returned messages and a refused message, without their bodies.
        rows_failed: the positions of the messages that are not confirmed, from 0, in order: in the call, or among all messages of `send`
            since the last flush. At most 10,000; there are more if it is shorter than ``rows - confirmed``. While messages are open, only
            those that are returned or refused.
        distinct_keys: 1 if all messages have the same routing key, and 0 without messages; None if there are more keys, which are not counted. A
            hash exchange routes one key to one queue. With routing in the client these are the names of queues.
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
    rows_failed: tuple[int, ...] = field(default=(), repr=False)
    distinct_keys: int | None = field(default=None, compare=False)

    @property
    def complete(self) -> bool:
        """True if every message is confirmed."""
        return self.confirmed == self.rows

    def __add__(self, other: PublishReport) -> PublishReport:
        total: dict[str, Any] = {
            count.name: getattr(self, count.name) + getattr(other, count.name)
            for count in fields(self)
            if count.name not in ("rows_failed", "distinct_keys")
        }
        failed = (*self.rows_failed, *(self.rows + row for row in other.rows_failed))[:MOST_FAILED]
        # Two reports with one key each may have the same key or not.
        distinct = self.distinct_keys if not other.rows else None if self.rows else other.distinct_keys
        return PublishReport(**total, rows_failed=failed, distinct_keys=distinct)

    def __str__(self) -> str:
        if not self.rows:
            return "nothing was published"
        counts = (
            (self.returned, "returned as unroutable"),
            (self.nacked, "nacked"),
            (self.unknown, "unknown"),
            (self.retried, "resent after a nack"),
            (self.republished, "sent again after a reconnect"),
        )
        return with_counts(f"{self.confirmed:,} of {self.rows:,} messages confirmed", counts)


def unroutable_remedy(returned: Return) -> str:
    """Return what to do about a message that no queue took. The exchange with an empty name routes to the queue that the key names."""
    if returned.exchange:
        return "bind queues to the exchange, or look for holes in its ring"
    queue = returned.key.decode(errors="backslashreplace")
    return f"queue {queue!r:.80} does not exist: check its name and the vhost, or declare it again if it was deleted"


def refusal_error(report: PublishReport) -> BrokerRefusedError:
    """Return the error for messages that the broker refused too often."""
    key = next((sample.key for sample in report.samples if sample.code == NACK), "")
    return BrokerRefusedError(
        "the broker rejected messages (basic.nack): a queue is full and its overflow is reject-publish, or it has no "
        f"majority of its nodes; one of them has the key {key!r}"
    )


class Tally:
    """Counts from one flush to the next.

    Attributes:
        closes: the errors of messages that closed the channel or the connection.
        closed: the number of these messages, and of others to an exchange that refuses every message.
        refused_exchanges: these exchanges.
        returned_in_doubt: returned messages that may be in a queue from before.
        refused_in_doubt: the same of `nacked` and `closed`.
        key: the routing key of all messages; None before the first message, and after messages with several keys.
        first_row_at: the time of the first message, in seconds of a monotonic clock; None before it.
        final: the report that ended these counts, or None.
        error: the error that was raised with it, or None.
    """

    def __init__(self) -> None:
        self.final: PublishReport | None = None
        self.error: PublishError | None = None
        self.closes: list[RabbitChxError] = []
        self.closed = 0
        self.refused_exchanges: set[bytes] = set()
        self.returned_in_doubt = 0
        self.refused_in_doubt = 0
        self._failed: set[int] = set()
        self._returns: Returns | None = None  # of the current connection
        self.rows = 0
        self.key: bytes | None = None
        self.first_row_at: float | None = None
        self.nacked = 0
        self.retried = 0
        self.republished = 0
        self.reconnects = 0
        self.blocked_s = 0.0
        self._samples: list[Return] = []
        # Of lost connections:
        self._confirmed = 0
        self._returned = 0
        self._bytes_sent = 0
        # Of the current connection when these counts began:
        self._acked_before = 0
        self._returned_before = 0
        self._bytes_before = 0

    @property
    def returned_sample(self) -> Return | None:
        """One of the returned messages."""
        return next((sample for sample in self._samples if sample.code != NACK), None)

    # -- as `Outcomes`

    may_end = False

    def settle(self) -> None:
        """Do nothing: the session counts confirms."""

    def pending(self, batch: RowBatch) -> RowBatch:
        """Return all messages."""
        return batch

    def refusals(self, batch: RowBatch, acked: int) -> int:
        """Return the refusals since the broker last confirmed another message."""
        return batch.refusals if acked == batch.acked else 0

    def refuse(self, batch: RowBatch) -> None:
        """Count messages that the broker finally refused."""
        if not self.nacked:
            self._samples.append(Return(NACK, "refused (basic.nack)", batch.rows.keys[0]))
        self.nacked += len(batch.rows)
        if batch.doubt is not None:
            self.refused_in_doubt += len(batch.rows)
        self.fail(batch.numbers)

    def close(self, closed: Sequence[RowBatch], cause: RabbitChxError, error: RabbitChxError) -> None:
        """Count messages that are not sent again; `error` names the first one and its `cause`."""
        self._samples.append(Return(cause.reply_code or NACK, str(cause), closed[0].rows.keys[0]))
        self.closes.append(error)
        for batch in closed:
            self.closed += len(batch.rows)
            if batch.may_be_stored:
                self.refused_in_doubt += len(batch.rows)
            self.fail(batch.numbers)

    # -- counts

    def fail(self, numbers: Iterable[int]) -> None:
        """Keep the positions of messages that are not confirmed."""
        self._failed.update(islice(numbers, MOST_FAILED - len(self._failed)))

    def _on_returned(self, returned: Return, properties: bytes, body: bytes) -> None:
        found = self._returns.find(returned, properties, body) if self._returns is not None else None
        if found is not None:
            batch, number = found
            self.returned_in_doubt += batch.may_be_stored
            self.fail([number])

    def count(self, rows: Rows) -> None:
        """Count messages that are about to be sent."""
        keys = rows.keys
        if len(keys) and (self.key is not None or not self.rows):
            key = keys[0] if self.key is None else self.key
            is_one = keys[-1] == key and keys.count(key) == len(keys)
            self.key = key if is_one else None
        self.rows += len(rows)

    def accepts(self, rows: Rows) -> bool:
        """Return whether no message is for an exchange that refuses every message."""
        return not (self.refused_exchanges and rows.exchanges) or self.refused_exchanges.isdisjoint(
            rows.exchanges
        )

    def find_accepted(self, rows: Rows) -> Sequence[int]:
        """Return the indices of the messages for other exchanges."""
        if self.accepts(rows):
            return range(len(rows))
        assert rows.exchanges is not None  # `accepts` is True without
        return [index for index, name in enumerate(rows.exchanges) if name not in self.refused_exchanges]

    def attach(self, connection: OpenConnection) -> None:
        """Count the events of this connection from now on."""
        self._acked_before = connection.session.ledger.acked
        self._returned_before = connection.session.returned
        self._bytes_before = connection.bytes_sent
        connection.session.samples = self._samples
        self._returns = Returns(connection.session.ledger)
        connection.session.on_returned = self._on_returned

    def detach(self, connection: OpenConnection) -> None:
        """Keep the counts of a lost connection; its open messages are sent again, also those that were returned and not acked."""
        for batch, number in self._find_unanswered():
            self.returned_in_doubt -= batch.may_be_stored
            self._failed.discard(number)
        acked, returned = self._counts_on(connection)
        self._confirmed += max(0, acked - returned)
        self._returned += min(acked, returned)
        self._bytes_sent += connection.bytes_sent - self._bytes_before

    def report(self, connection: OpenConnection | None, now: float) -> PublishReport:
        """Return the current counts."""
        acked, returned = self._counts_on(connection) if connection else (0, 0)
        confirmed = self._confirmed + max(0, acked - returned)
        # The broker acks a returned message right after it; that ack may arrive later.
        returned += (
            self._returned + len(self._find_unanswered() if connection else ()) - self.returned_in_doubt
        )
        nacked = self.nacked + self.closed - self.refused_in_doubt
        return PublishReport(
            rows=self.rows,
            confirmed=confirmed,
            returned=returned,
            nacked=nacked,
            retried=self.retried,
            unknown=self.rows - confirmed - returned - nacked,
            republished=self.republished,
            reconnects=self.reconnects,
            bytes_sent=self._bytes_sent + (connection.bytes_sent - self._bytes_before if connection else 0),
            seconds=now - self.first_row_at if self.first_row_at is not None else 0.0,
            blocked_seconds=self.blocked_s,
            samples=tuple(Returned.of(sample) for sample in self._samples),
            rows_failed=tuple(sorted(self._failed)),
            distinct_keys=0 if not self.rows else None if self.key is None else 1,
        )

    def _counts_on(self, connection: OpenConnection) -> tuple[int, int]:
        """Return the acks on a connection, and how many of them are those of returned messages."""
        session = connection.session
        returned = session.returned - self._returned_before - len(self._find_unanswered())
        return session.ledger.acked - self._acked_before, returned

    def _find_unanswered(self) -> list[tuple[RowBatch, int]]:
        return self._returns.find_unanswered() if self._returns is not None else []

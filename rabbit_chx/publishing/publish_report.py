"""The counts of the messages given to a publisher: the report, and the tally over several connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Protocol

from rabbit_chx import errors
from rabbit_chx.amqp.frames import Return
from rabbit_chx.connection.session import Ledger, OpenConnection
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.text import with_counts

# -- What a delivery and the owner of its messages tell each other: where messages come from, and what becomes of them

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


class DeliveryOutcomes(Protocol):
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

    def close(
        self, closed: Sequence[RowBatch], cause: errors.RabbitChxError, error: errors.RabbitChxError
    ) -> None:
        """Note messages that are not sent again after a close by the broker.

        Args:
            closed: the message that the broker closed the channel or the connection over, then those to the same refused exchange.
            cause: the close.
            error: the close, with the name of the first message.
        """


class MessageSupply(Protocol):
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


# -- Closes by the broker that are about a message: what they concern, and the error of the message. Pure functions


def describe_row(batch: RowBatch) -> str:
    """Return the number and the routing key of a message, for an error."""
    key = batch.rows.keys[0].decode(errors="backslashreplace")
    return f"row {batch.numbers[0]} (routing key {key!r:.80})"


def close_error(cause: errors.RabbitChxError, what: str, exchange: str) -> errors.BrokerRefusedError:
    """Return the error for a message, `what`, that closed the channel or the connection: of the type of the close, if it tells more.

    A publish compares nothing with the properties of an exchange or a queue, so its 406 is about the message.
    """
    is_telling = isinstance(cause, errors.BrokerRefusedError) and type(cause) not in (
        errors.BrokerRefusedError,
        errors.MismatchError,
    )
    kind = type(cause) if is_telling else errors.ChannelClosedError
    message = f"{what}, sent to exchange {exchange!r:.80}: {cause}"
    return kind(message, exchange=exchange, reply_code=cause.reply_code)  # type: ignore[return-value]  # checked above


def find_named(
    cause: errors.RabbitChxError, rows: Sequence[RowBatch], passed: AbstractSet[bytes | None]
) -> int | None:
    """Return the index of the message that closed the channel, if the text of the close names one; all are single, in order.

    `passed` are the exchanges that have taken a message on this connection. A message to another exchange closes the channel if it is the
    first one to it. If an exchange is deleted later, the close may be over any message to it: only the last one is surely in no queue.
    A channel asks for a permission once (rabbit_channel.erl, check_topic_authorisation/5), and the limit of a body does not change.
    """
    named = [index for index, batch in enumerate(rows) if _names_row(cause, batch.rows)]
    if not named:
        return None
    exchanges = rows[named[0]].rows.exchanges
    is_deleted = is_of_exchange(cause) and exchanges is not None and exchanges[0] in passed
    return named[-1 if is_deleted else 0]


def _names_row(cause: errors.RabbitChxError, row: Rows) -> bool:
    """Return whether the text of a close names this message: its exchange and key, or the size of its body.

    rabbitmq-server v4.3.6, rabbit_channel.erl: check_resource_access/4, check_topic_authorisation/5 and check_msg_size/3.
    """
    text = str(cause)
    if cause.reply_code == 406:
        return f"message size {len(row.bodies[0])} is larger" in text
    if row.exchanges is None or cause.reply_code not in (403, 404):
        return False
    exchange = row.exchanges[0].decode(errors="replace")
    key = row.keys[0].decode(errors="replace")
    return f"exchange '{exchange}' " in text and (is_of_exchange(cause) or f"topic '{key}' " in text)


def is_close(cause: errors.RabbitChxError) -> bool:
    """Return whether the broker closed the channel or the connection, and may have done so because of a message."""
    return cause.reply_code is not None and not isinstance(cause, errors.ConnectionLostError)


def is_of_exchange(cause: errors.RabbitChxError) -> bool:
    """Return whether a close concerns every message to the exchange: it is missing, internal, or not permitted."""
    return cause.reply_code == 404 or (cause.reply_code == 403 and "access to topic" not in str(cause))


# -- Which message the broker returned. A return carries no delivery tag. No I/O, no clock


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
                if tag in self._found or rows.bodies[index] != body or rows.keys[index] != returned.key:
                    continue
                # Messages without their own exchange or properties have those of the publisher.
                has_exchange = rows.exchanges is None or rows.exchanges[index] == returned.exchange
                has_properties = rows.properties is None or rows.properties[index] == properties
                if has_exchange and (has_properties or not is_exact):
                    self._found[tag] = batch, index
                    self._last = max(self._last, tag)
                    return batch, batch.numbers[index]

        return None

    def find_unanswered(self) -> list[tuple[RowBatch, int]]:
        """Return the returned messages without an ack, each by its batch and its number. They are sent again after a loss."""
        found = self._found.items()
        return [(batch, batch.numbers[index]) for tag, (batch, index) in found if self._ledger.is_open(tag)]


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
        if not other.rows:
            distinct = self.distinct_keys
        elif not self.rows:
            distinct = other.distinct_keys
        else:
            distinct = None  # two reports with one key each may have the same key or not
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


def refusal_error(report: PublishReport) -> errors.BrokerRefusedError:
    """Return the error for messages that the broker refused too often."""
    key = next((sample.key for sample in report.samples if sample.code == NACK), "")
    return errors.BrokerRefusedError(
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
        self.error: errors.PublishError | None = None
        self.closes: list[errors.RabbitChxError] = []
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

    # -- as `DeliveryOutcomes`

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

    def close(
        self, closed: Sequence[RowBatch], cause: errors.RabbitChxError, error: errors.RabbitChxError
    ) -> None:
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
            distinct_keys=self._distinct_keys(),
        )

    def _distinct_keys(self) -> int | None:
        if not self.rows:
            return 0
        return None if self.key is None else 1

    def _counts_on(self, connection: OpenConnection) -> tuple[int, int]:
        """Return the acks on a connection, and how many of them are those of returned messages."""
        session = connection.session
        returned = session.returned - self._returned_before - len(self._find_unanswered())
        return session.ledger.acked - self._acked_before, returned

    def _find_unanswered(self) -> list[tuple[RowBatch, int]]:
        return self._returns.find_unanswered() if self._returns is not None else []

"""The delivery of messages over all connections: sending, retries and time limits. No I/O, no clock.

An operation (`Delivery.connect`, `submit`, `drain`, `serve`) is a generator of steps, which a publisher executes with `drive`. What becomes
of the messages is passed to the `DeliveryOutcomes`: counts, or an outcome for each message.

- **Window.** A batch is sent if the window has room for it. The window holds the open messages: sent and not confirmed, or refused and waiting.
- **Poll.** A waiting operation polls the connection until its condition is true. After each poll, `ProgressTimeout` raises an error if
  nothing progresses or the broker blocks for too long.
- **Refusal.** The broker may refuse single messages (basic.nack). They leave the ledger, wait in `_refused`, and are sent again on the same
  connection. A message that is refused too often is counted as nacked, and then the operation ends with an error.
- **Outage.** Any error of a poll ends the connection. If another connection may succeed, the messages in the ledger move to `_unsent` and are
  sent first on the next connection, in their order. An `Outage` lasts until the broker confirms a message again, and limits the time for
  attempts. An error that ends it is kept as `failure`, and every later operation raises it.
- **Messages that close the connection.** The broker closes a channel or a connection over some messages: an exchange is missing, a body is too large,
  a header makes it fail (541). Such a message is refused: it is counted, named by `Tally.closes`, and not sent again. If the broker's text does
  not name the message, and after two losses without a confirm in between, all open messages are suspect. They are isolated: sent one by one, while
  new messages wait. The next message follows the confirm of the one before, or, where a confirm takes longer than a second, the answer to a probe
  behind it: the channel has processed the message then. So slow confirms delay nobody else, but another close repeats the messages without a
  confirm. A message that is alone at a close is refused: no other is open, or the channel has processed all others. A loss without a close
  of the broker never refuses a message; if the outage ends in a failure, the error names the message that was alone.
- **Doubt.** A message whose connection ended without an answer may be in a queue, whatever becomes of its next copy (`RowBatch.doubt`).
  A channel processes its messages in order, so a close leaves no doubt about the message that it is over and those behind it. If the text
  of a close names an exchange, it is over the first message to it, unless the exchange has taken a message on this connection: behind the
  first one to each exchange is a probe. If the broker closes in the same way over a message alone, that one was the cause the first time, too.
- **Interruption.** Ctrl-C may interrupt a step; then `interrupt` ends the delivery, and only the report remains. An operation that is closed
  between two steps leaves a consistent state, from which the next operation continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.connection.failures import interruption, use_after_close_error
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.errors import ConnectionLostError, RabbitChxError, UnreachableError
from rabbit_chx.publishing.encoder import Encoder, Rows
from rabbit_chx.publishing.options import Limits, Outage, ProgressTimeout, Retries
from rabbit_chx.publishing.publish_report import (
    LOST,
    DeliveryOutcomes,
    MessageSupply,
    PublishReport,
    RowBatch,
    Tally,
    close_error,
    describe_row,
    find_named,
    is_close,
    is_of_exchange,
    refusal_error,
)

# -- The steps of an operation of a delivery, which a publisher executes with `drive`


class Open(NamedTuple):
    """Close the current connection, if any, and open another; the answer is the connection."""

    settings: ConnectionSettings


class Close(NamedTuple):
    """Close the current connection."""


class Poll(NamedTuple):
    """Send queued frames, and receive frames for at most `wait_s` seconds.

    Attributes:
        until_open: wait until at most this many messages are open or the broker refuses one; None for one round.
    """

    wait_s: float
    until_open: int | None = None


class Sleep(NamedTuple):
    """Wait some seconds without a connection."""

    seconds: float


Step: TypeAlias = Open | Close | Poll | Sleep
Steps: TypeAlias = Generator[Step, OpenConnection | None, None]


def drive(steps: Steps, do: Callable[[Step], OpenConnection | None]) -> None:
    """Execute the steps of an operation. A RabbitChxError of `do` is thrown into the operation; any other exception closes it."""
    with closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = do(step)
                except RabbitChxError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return


_log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.25
_LONGEST_POLL_S = _PROGRESS_EVERY_S  # so that progress is reported in time
#: Rows that close the connection before an operation ends with an error: each costs two connections.
_MOST_CLOSES = 10
#: A confirm that takes longer, in seconds, is not awaited before the next suspect row is sent.
_SLOW_CONFIRM_S = 1.0


class RefusedBatches:
    """Batches that wait for their next attempt; usually none."""

    def __init__(self) -> None:
        self.rows = 0
        self.body_bytes = 0
        self._waiting: list[RowBatch] = []

    def add(self, batch: RowBatch) -> None:
        """Add a batch until it is due."""
        self._waiting.append(batch)
        self.rows += len(batch.rows)
        self.body_bytes += sum(map(len, batch.rows.bodies))

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the first batch is due."""
        return max(0.0, min(batch.due for batch in self._waiting) - now)

    def take_due(self, now: float) -> list[RowBatch]:
        """Remove and return the batches that are due, oldest first."""
        due = [batch for batch in self._waiting if batch.due <= now]
        self._keep([batch for batch in self._waiting if batch.due > now])
        return due

    def take_all(self) -> list[RowBatch]:
        """Remove and return all batches, oldest first."""
        waiting = self._waiting
        self._keep([])
        return waiting

    def _keep(self, waiting: list[RowBatch]) -> None:
        self._waiting = waiting
        self.rows = sum(len(batch.rows) for batch in waiting)
        self.body_bytes = sum(len(body) for batch in waiting for body in batch.rows.bodies)


class Delivery:
    """Messages being delivered to the broker.

    Args:
        targets: the brokers; each attempt begins with the one after the last.
        encoder: returns the encoder for a connection's largest frame, in bytes.
        clock: returns seconds of a monotonic clock.
        jitter: returns random numbers from 0 to 1, for the backoff.
        progress: called periodically with the current report; None for no progress.
        exchange: the exchange, for log records.
        outcomes: what becomes of the messages; None to count them in `tally`.

    Attributes:
        failure: the error that every later operation raises, or None.
        tally: the counts of the next report.
    """

    def __init__(
        self,
        targets: Sequence[ConnectionSettings],
        encoder: Callable[[int], Encoder],
        limits: Limits,
        retries: Retries,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        progress: Callable[[PublishReport], None] | None = None,
        exchange: str = "",
        outcomes: DeliveryOutcomes | None = None,
    ) -> None:
        self.failure: RabbitChxError | None = None
        self._exchange = exchange
        self._log_fields = {"exchange": exchange}
        self._refused = RefusedBatches()
        self.tally = Tally()
        self._given_outcomes = outcomes
        self._targets = targets
        self._target = 0
        self._encoder_for = encoder
        self._limits = limits
        self._retries = retries
        self._clock = clock
        self._jitter = jitter
        self._progress = progress
        self._next_progress = 0.0
        self._connection: OpenConnection | None = None
        self._encoder: Encoder | None = None
        self._frame_max = 0
        self._unsent: list[RowBatch] = []  # to send again: open when their connection was lost, oldest first
        # `_unsent` has single rows, all suspect; the next is sent once the last is known to be harmless.
        self._isolating = False
        self._sent_alone_at = 0.0  # when the last of them was sent
        self._confirms_slowly = False  # one of them was not confirmed within `_SLOW_CONFIRM_S`
        self._acked_at_close = 0  # when the broker closed a connection first, with the rows that are suspect
        self._acked = 0  # on lost connections
        self._progress_error: BaseException | None = None  # the last one that `progress` raised
        self._outage: Outage | None = None  # it is over once the broker confirms a message

    # -- operations

    def connect(self) -> Steps:
        """Open the first connection."""
        began = self._clock()
        try:
            yield from self._connect_to_any(0)
        except RabbitChxError as cause:
            if not (self._retries.retry_first_connection and is_transient(cause)):
                raise
            self._outage = Outage(self._retries, cause, began)
            yield from self._reconnect(self._outage)

    def _checked_encoder(self, rows: Rows) -> Encoder | None:
        """Return the encoder of the connection, if it can encode the next rows."""
        if self._encoder is not None:
            self._encoder.check(rows, self.tally.rows)
        return self._encoder

    def submit(self, rows: Rows) -> Steps:
        """Queue messages when the window has room for them."""
        tally = self.tally
        wire = b""
        encoder = None
        sent = rows
        size = count = 0
        accepted: Sequence[int] = ()

        # Wait for room, and encode again if a new connection has negotiated smaller frames, or an exchange was refused.
        while (
            encoder is None
            or encoder is not self._encoder
            or (tally.refused_exchanges and not tally.accepts(sent))
        ):
            yield from self._wait_until(self._is_connected, 0)
            encoder = self._checked_encoder(rows)
            if tally.refused_exchanges:
                accepted = tally.find_accepted(rows)
                sent = rows.pick(accepted)
            size = len(rows)
            count = len(sent)
            wire = encoder.encode(sent) if encoder else b""
            has_room = partial(self._has_room, count, len(wire), encoder)
            yield from self._wait_until(has_room, self._limits.max_in_flight - count)

        if tally.nacked:
            raise refusal_error(self.report)
        if len(tally.closes) >= _MOST_CLOSES:
            raise tally.closes[0]

        assert self._connection is not None  # `_has_room` requires it
        batch = RowBatch(rows, range(tally.rows, tally.rows + size))
        tally.count(rows)
        if count < size:
            tally.closed += size - count
            tally.fail(batch.numbers[row] for row in set(range(size)).difference(accepted))
        if tally.first_row_at is None:
            tally.first_row_at = self._clock()
        if count < size:
            batch = batch.pick(accepted)
            if not count:
                return
        self._write(self._connection, batch, wire)
        try:
            yield Poll(0)
        except RabbitChxError as cause:
            yield from self._recover(cause)

        self._report_progress()

    def drain(self) -> Steps:
        """Wait until every message is answered."""
        yield from self._wait_until(self._is_drained, 0)

    def serve(self, source: MessageSupply) -> Steps:
        """Send messages as they come, while others are open, until `source` is over."""
        timeout = ProgressTimeout(self._limits, self._clock())

        def is_due() -> bool:
            return source.is_over or (self._may_send() and source.is_due())

        def next_poll(connection: OpenConnection) -> Poll:
            longest_s = self._next_poll(connection, 0).wait_s
            return Poll(source.idle_s(longest_s, may_send=self._may_send()))

        while True:
            yield from self._wait_until(is_due, 0, timeout, next_poll)
            batch = source.take() if self._may_send() else None
            if batch is not None and self._connection is not None:
                self._publish(self._connection, batch)
            elif source.is_over:
                return

    def close(self) -> None:
        """End the delivery: every later operation raises an error."""
        self.failure = self.failure or use_after_close_error(self.where)

    def interrupt(self, cause: BaseException) -> None:
        """End the delivery after an interruption such as Ctrl-C. An error that `progress` raised is not an interruption."""
        if cause is not self._progress_error:
            self.failure = self.failure or interruption(self.where, cause)

    @property
    def where(self) -> str:
        """The current address, without its password."""
        return self._targets[self._target].masked_url

    @property
    def report(self) -> PublishReport:
        """The current counts of the messages since the last `finish`."""
        return self.tally.report(self._connection, self._clock())

    def finish(self) -> Tally:
        """Return the counts with their final report, and begin new counts. Refused messages that still wait are given up."""
        tally = self.tally
        if self._refused.rows:
            self._give_up_refused()
        if tally.rows:  # else what is open is of an earlier report, which an error has ended
            for batch in self._find_open():
                tally.fail(batch.numbers)
        tally.final = tally.report(self._connection, self._clock())
        self.tally = Tally()
        if self._connection is not None:
            self.tally.attach(self._connection)
        return tally

    def _find_open(self) -> list[RowBatch]:
        """Return the messages without an answer."""
        parts = self._connection.session.ledger.find_unanswered() if self._connection is not None else []
        return [*(batch.pick(indices) for batch, indices in parts), *self._unsent]

    # -- conditions

    @property
    def _outcomes(self) -> DeliveryOutcomes:
        return self._given_outcomes or self.tally

    @property
    def is_connected(self) -> bool:
        """True if a connection is open, or was when it was used last."""
        return self._connection is not None

    def _is_connected(self) -> bool:
        return self.is_connected

    def _has_room(self, messages: int, size: int, encoder: Encoder | None) -> bool:
        """Return True if the window has room for a batch, or if waiting is pointless."""
        if self.tally.nacked or self._encoder is not encoder:
            return True  # it ends with an error, or must be encoded again
        connection = self._writable()
        limits = self._limits
        refused = self._refused
        if connection is None:
            return False
        ledger = connection.session.ledger
        open_ = ledger.open + refused.rows
        return not open_ or (
            open_ + messages <= limits.max_in_flight
            and ledger.open_bytes + refused.body_bytes + size <= limits.max_in_flight_bytes
        )

    def _may_send(self) -> bool:
        """Return whether the window has room for a message of `serve`. Messages that have expired are open here, and no longer at their source."""
        connection = self._writable()
        return (
            connection is not None
            and connection.session.ledger.open + self._refused.rows < self._limits.max_in_flight
        )

    def _writable(self) -> OpenConnection | None:
        """Return the connection, if new messages may be written to it now."""
        connection = self._connection
        if connection is None or self.failure is not None or self._isolating or connection.backlog:
            return None
        session = connection.session
        return connection if session.failure is None and session.blocked is None else None

    def _is_drained(self) -> bool:
        open_ = self._connection.session.ledger.open if self._connection else 0
        return not open_ and not self._refused.rows and not self._unsent

    # -- waiting

    def _wait_until(
        self,
        condition: Callable[[], bool],
        until_open: int,
        timeout: ProgressTimeout | None = None,
        next_poll: Callable[[OpenConnection], Poll] | None = None,
    ) -> Steps:
        """Poll until a condition is true; it is false while more than `until_open` messages are open. `timeout` may be of earlier waits."""
        while not self._settle_and_test(condition):
            if self.failure is not None:
                raise self.failure
            connection = self._connection
            if connection is None:
                yield from self._reconnect(self._outage) if self._outage else self.connect()
                continue
            try:
                yield next_poll(connection) if next_poll else self._next_poll(connection, until_open)
                # Usually the first poll is enough, and no `ProgressTimeout` is created.
                if timeout is not None or not self._settle_and_test(condition):
                    timeout = timeout or ProgressTimeout(self._limits, self._clock())
                    self.tally.blocked_s += timeout.check(connection, self._clock())
            except RabbitChxError as cause:
                yield from self._recover(cause)
            self._report_progress()

    def _settle_and_test(self, condition: Callable[[], bool]) -> bool:
        """Settle confirms, send the next suspect message, collect and resend refused messages; then return whether the condition is true."""
        if self._given_outcomes is not None:  # a tally has nothing to settle, and this is done for each batch
            self._given_outcomes.settle()
        connection = self._connection
        if self._isolating and connection is not None and self._is_next_due(connection):
            self._send_next(connection)
        if connection is not None and (connection.session.ledger.refused or self._refused.rows):
            self._settle_refused(connection, self._clock())
        return condition()

    def _next_poll(self, connection: OpenConnection, until_open: int) -> Poll:
        """Return the poll that ends when the window may have room, or when a refused batch is due."""
        if self._isolating:
            # Where confirms are slow, until the answer to the probe.
            return Poll(_LONGEST_POLL_S, None if self._confirms_slowly else 0)
        if not self._refused.rows:
            return Poll(_LONGEST_POLL_S, until_open)
        wait_s = _LONGEST_POLL_S
        if connection.session.blocked is None:  # while blocked, nothing is retried
            wait_s = min(wait_s, self._refused.seconds_left(self._clock()))
        return Poll(wait_s, until_open - self._refused.rows)  # they are open, but not in the ledger

    def _report_progress(self, *, at_once: bool = False) -> None:
        if self._progress is None:
            return
        now = self._clock()
        if at_once or now >= self._next_progress:
            self._next_progress = now + _PROGRESS_EVERY_S
            try:
                self._progress(self.report)
            except BaseException as cause:
                self._progress_error = cause
                raise

    # -- messages that the broker refused

    def _settle_refused(self, connection: OpenConnection, now: float) -> None:
        """Collect the refused messages, and resend those that are due, after all suspect messages."""
        session = connection.session
        if session.ledger.refused:
            self._collect_refused(connection, now)
        if self._refused.rows and not self._isolating and session.failure is None and session.blocked is None:
            for batch in self._refused.take_due(now):
                self.tally.retried += self._publish(connection, batch)

    def _collect_refused(self, connection: OpenConnection, now: float) -> None:
        retries = self._retries
        ledger = connection.session.ledger
        acked = self._acked + ledger.acked
        for batch, indexes in ledger.take_refused():
            refused = batch.pick(indexes)
            refusals = self._outcomes.refusals(refused, acked)
            if refusals >= retries.repeats:
                self._outcomes.refuse(refused)
            else:
                due = now + retries.backoff.delay_s(refusals, self._jitter())
                self._refused.add(replace(refused, refusals=refusals + 1, due=due, acked=acked))
        if self.tally.nacked:
            self._give_up_refused()  # the operation ends with an error in any case

    def _give_up_refused(self) -> None:
        for batch in self._refused.take_all():
            self._outcomes.refuse(batch)

    def _publish(self, connection: OpenConnection, batch: RowBatch) -> int:
        """Send the messages of a batch that still wait for their outcome, and return their number."""
        assert self._encoder is not None  # `_adopt` has set it
        pending = self._outcomes.pending(batch)
        if pending is None:
            return 0
        self._write(connection, pending, self._encoder.encode(pending.rows))
        return len(pending.rows)

    def _write(self, connection: OpenConnection, batch: RowBatch, wire: bytes) -> None:
        """Queue encoded messages, and a probe behind the first one to each exchange."""
        session = connection.session
        exchanges = batch.rows.exchanges
        rows = len(batch.rows)
        assert self._encoder is not None  # it has encoded them
        if exchanges is None or session.marks.issuperset(exchanges):
            session.publish(wire, rows, batch)
            return
        start = 0
        for index, exchange in enumerate(exchanges):
            if exchange not in session.marks or index + 1 == rows:
                part = batch.pick(range(start, index + 1))
                session.publish(self._encoder.encode(part.rows), len(part.rows), part)
                start = index + 1
            if exchange not in session.marks:
                session.probe(exchange)

    # -- lost connections

    def _recover(self, cause: RabbitChxError) -> Steps:
        self._outcomes.settle()
        if self._outcomes.may_end:  # nothing is lost; the next connection has its own time
            self.failure = cause
            raise cause

        connection = self._connection
        unanswered: list[RowBatch] = []
        is_last_alone = False
        if connection is not None:
            connection.session.fail(cause)
            self._settle_refused(connection, self._clock())
            ledger = connection.session.ledger
            if ledger.answered or not ledger.open:
                self._outage = None  # the last outage was over
            unanswered = [batch.pick(indexes) for batch, indexes in ledger.find_unanswered()]
            if self._isolating:
                is_last_alone = connection.session.probes > 0 and ledger.is_last_open
                unanswered = self._mark_processed(unanswered, is_last_alone=is_last_alone)

        outage = self._outage = self._outage or Outage(self._retries, cause, self._clock())
        is_over_a_row = self._retries.reconnects and self._is_over_a_row(cause, unanswered)
        if not (outage.is_recoverable(cause) or is_over_a_row):
            self.failure = outage.end_error(cause)
            raise self.failure

        if connection is not None:
            outage.losses += bool(unanswered)
            if not is_over_a_row:
                unanswered = [replace(batch, doubt=LOST) for batch in unanswered]
            self._take_back(connection, unanswered)
            self._suspect(
                cause,
                unanswered,
                connection.session.passed,
                by_broker=is_over_a_row,
                is_last_alone=is_last_alone,
            )

        _log.warning(
            "%s; reconnecting, %d messages are unconfirmed",
            cause,
            sum(len(batch.rows) for batch in self._unsent),
            extra=self._log_fields,
        )
        outage = self._outage or outage
        yield from self._reconnect(outage, at_once=is_over_a_row and not outage.retry.attempts)

    def _take_back(self, connection: OpenConnection, unanswered: list[RowBatch]) -> None:
        """Move the open messages of the lost connection to `_unsent`, before those that wait."""
        self._unsent = unanswered + self._unsent
        self._acked += connection.session.ledger.acked
        self.tally.detach(connection)
        self._connection = None

    # -- rows that close the connection

    def _is_over_a_row(self, cause: RabbitChxError, unanswered: list[RowBatch]) -> bool:
        """Return whether the broker closed the connection, perhaps over one of its open messages, and not over all of them."""
        if not is_close(cause) or not unanswered:
            return False
        is_shared = all(batch.rows.exchanges is None for batch in unanswered)
        is_over_all = is_shared and is_of_exchange(cause)
        return not is_over_all

    def _mark_processed(self, unanswered: list[RowBatch], *, is_last_alone: bool) -> list[RowBatch]:
        """Return the suspect messages, of which all but perhaps the last were processed; a message that is processed first is progress."""
        processed = unanswered[: len(unanswered) - is_last_alone]
        if not all(batch.is_processed for batch in processed):
            self._outage = None
        marked = [replace(batch, is_processed=True, losses=0) for batch in processed]
        return marked + unanswered[len(processed) :]

    def _suspect(
        self,
        cause: RabbitChxError,
        unanswered: list[RowBatch],
        passed: AbstractSet[bytes | None],
        *,
        by_broker: bool,
        is_last_alone: bool,
    ) -> None:
        """Refuse the message that closed the connection, or send the messages one by one to find it.

        `passed` are the exchanges that have taken a message. `is_last_alone`: the others were processed.
        """
        assert self._outage is not None  # `_recover` has set it
        lost = sum(len(batch.rows) for batch in unanswered)
        was_isolating = self._isolating
        has_closed_before = was_isolating and any(batch.closes for batch in unanswered)
        if by_broker and not has_closed_before:
            self._acked_at_close = self._acked
        if by_broker or (lost and self._outage.losses >= 2):
            self._isolating = True
            self._unsent = [batch.pick([index]) for batch in self._unsent for index in range(len(batch.rows))]

        alone = lost - 1 if lost == 1 or is_last_alone else None
        for index, batch in enumerate(self._unsent[:lost]):
            if alone in (None, index):
                closes = batch.closes if was_isolating else 0  # those of an earlier isolation are over
                self._unsent[index] = replace(
                    batch, closes=closes + by_broker, losses=batch.losses + (alone == index)
                )

        if not by_broker:
            return

        named = find_named(cause, self._unsent[:lost], passed)
        closer = alone if named is None else named
        self._doubt(cause, closer, lost, was_isolating=was_isolating)
        if named is not None:
            # Others may be missing, too: each close would send all neighbours again.
            refused = self._unsent[named].rows.exchanges
            others = {
                name
                for batch in self._unsent
                for name in batch.rows.exchanges or ()
                if batch.rows.exchanges != refused
            }
            self._isolating = was_isolating or (is_of_exchange(cause) and not others <= passed)
        elif alone is not None and self._is_refused(cause, self._unsent[alone]):
            named = alone

        if named is not None:
            # The close that left a doubt about this message and those behind it was over this one.
            self._unsent[named:] = [
                replace(batch, doubt=None) if batch.doubt == cause.reply_code else batch
                for batch in self._unsent[named:]
            ]
            self._refuse_closing(cause, self._unsent.pop(named))
            self._outage = Outage(self._retries, cause, self._clock())

    def _doubt(self, cause: RabbitChxError, closer: int | None, lost: int, *, was_isolating: bool) -> None:
        """Note which of the first `lost` messages may be in a queue after a close: those before the one that it was over."""
        for index, batch in enumerate(self._unsent[:lost]):
            if closer is None and not was_isolating and batch.doubt is None:
                self._unsent[index] = replace(batch, doubt=cause.reply_code)
            elif closer is None or index < closer:
                self._unsent[index] = replace(batch, doubt=LOST)

    def _is_refused(self, cause: RabbitChxError, alone: RowBatch) -> bool:
        """Return whether a close over a message that was open alone is final: the broker works otherwise, or the message was tried three times."""
        works = self._acked > self._acked_at_close
        return not is_transient(cause) or alone.closes >= (2 if works else 3)

    def _refuse_closing(self, cause: RabbitChxError, alone: RowBatch) -> None:
        """Give up a message that closed the connection. If no message to its exchange is accepted, give up the others, too."""
        exchanges = alone.rows.exchanges
        error = close_error(
            cause, describe_row(alone), exchanges[0].decode() if exchanges else self._exchange
        )
        closed = [alone]
        if exchanges and is_of_exchange(cause):
            self.tally.refused_exchanges.add(exchanges[0])
            closed += [batch for batch in self._unsent if batch.rows.exchanges == exchanges]
            self._unsent = [batch for batch in self._unsent if batch.rows.exchanges != exchanges]
        self._outcomes.close(closed, cause, error)

    def _is_next_due(self, connection: OpenConnection) -> bool:
        """Return whether the last suspect message was confirmed, or was processed where confirms are slow."""
        session = connection.session
        if session.ledger.open and self._clock() - self._sent_alone_at >= _SLOW_CONFIRM_S:
            self._confirms_slowly = True
        return not session.ledger.open or (self._confirms_slowly and not session.probes)

    def _send_next(self, connection: OpenConnection) -> None:
        """Send the next suspect message, and a probe behind it."""
        if self._unsent and (
            connection.session.failure is not None or connection.session.blocked is not None
        ):
            return
        while self._unsent:
            sent = self._publish(connection, self._unsent.pop(0))
            if sent:  # else it has expired
                self.tally.republished += sent
                connection.session.probe()
                self._sent_alone_at = self._clock()
                return
        self._isolating = self._confirms_slowly = False

    def _reconnect(self, outage: Outage, *, at_once: bool = False) -> Steps:
        """Connect again; `at_once`, after the first close over a message, without a pause before the first attempt: the broker works."""
        while True:
            wait_s = 0.0 if at_once else outage.retry.wait_s(self._clock(), self._jitter())
            if wait_s is None:
                break

            at_once = False
            yield Sleep(wait_s)
            outage.retry.attempts += 1
            try:
                yield from self._connect_to_any(self._target + 1)
            except RabbitChxError as cause:
                if not is_transient(cause):
                    self.failure = outage.end_error(cause)
                    raise self.failure from cause
                outage.last = cause
                _log.info("%s", cause, extra=self._log_fields)
            else:
                self._report_progress(at_once=True)
                return

        self.failure = outage.give_up_error(self._clock())
        suspect = None
        if self._isolating:
            suspect = next((batch for batch in self._unsent if batch.losses > 1), None)
        if suspect is not None:
            self.failure = ConnectionLostError(
                f"{self.failure}; {describe_row(suspect)} was sent alone, and the connection was lost each time ({suspect.losses})"
            )

        raise self.failure

    def _connect_to_any(self, first: int) -> Steps:
        """Try each target once, beginning with this one."""
        problems: list[RabbitChxError] = []
        for i in range(len(self._targets)):
            target = (first + i) % len(self._targets)
            try:
                yield from self._connect_to(target)
            except RabbitChxError as cause:
                if not is_transient(cause):
                    raise
                problems.append(cause)
            else:
                return
        if len(problems) == 1:
            raise problems[0]
        raise UnreachableError("; ".join(map(str, problems)))

    def _connect_to(self, target: int) -> Steps:
        connection = yield Open(self._targets[target])
        assert connection is not None  # the answer to this step
        if self.failure is not None:  # a signal handler or another task has closed the delivery
            yield Close()
            raise self.failure
        self._target = target
        self._adopt(connection)

    def _adopt(self, connection: OpenConnection) -> None:
        """Use this connection; send the open messages of the last connection first."""
        self._connection = connection
        self.tally.attach(connection)
        if self._given_outcomes is not None:
            self._given_outcomes.attach(connection)
        if self._encoder is not None:  # not the first connection
            self.tally.reconnects += 1
        if connection.session.frame_max != self._frame_max:
            self._frame_max = connection.session.frame_max
            self._encoder = self._encoder_for(self._frame_max)
        if self._isolating:
            self._send_next(connection)
            return
        unsent = self._unsent
        self._unsent = []
        for batch in unsent:
            self.tally.republished += self._publish(connection, batch)

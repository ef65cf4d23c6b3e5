"""What becomes of rows over all connections: which are sent, which are sent again, and when to give up.

How it works. There is no socket and no clock here. An operation (`opening`, `handing_over`, `draining`) is a generator of
steps, which a publisher does: so the blocking and the asyncio publisher make the same decisions.

*Window.* A batch is sent when it fits beside the rows that are open: sent and not answered, or refused and waiting.
*Turn.* An operation that has to wait yields one turn of the connection after the other until it is done. `Patience` looks at
the connection after each turn, and raises where nothing moves or the broker blocks for too long.
*Retry.* The broker refuses single messages (basic.nack). They leave the ledger, wait in `_refused`, and are sent again on the
same connection; a row that is refused too often is counted as nacked, and then the operation ends with an error.
*Outage.* Any error of a turn ends the connection. Where another one may do better, the rows that are still in its ledger
move to `_unsent`, and are sent first on the next connection, in their order. An `Outage` lasts until the broker answers for
a message again, and bounds how long to try. An error that ends it is kept as `failure`, and every later operation raises it.
*Interruption.* An operation that is closed between two steps leaves all of this whole, and the next one goes on from there
(a cancelled task). Ctrl-C may come anywhere: then `interrupted` ends everything, and only the report remains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.connection.failures import closed_connection, interruption
from rabbit_chx.connection.link import Link
from rabbit_chx.errors import RabbitChxError, UnreachableError
from rabbit_chx.publishing.encoder import Encoder
from rabbit_chx.publishing.limits import Limits, Outage, Patience, Retries
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.publishing.refusals import Sent, WaitingBatches, refusal
from rabbit_chx.publishing.rows import Rows
from rabbit_chx.publishing.tally import Tally

_log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.25
_LONG_TURN_S = _PROGRESS_EVERY_S  # so that progress is told in time


class Open(NamedTuple):
    """Close the present connection, if any, and open a connection there; the answer is its `Link`."""

    settings: ConnectionSettings


class Close(NamedTuple):
    """Close the present connection."""


class Turn(NamedTuple):
    """Send what is queued, and receive what comes.

    Attributes:
        wait_s: seconds to wait at most.
        until_open: wait until no more messages than this are open or the broker refuses one; None for one round.
    """

    wait_s: float
    until_open: int | None = None


class Sleep(NamedTuple):
    """Wait without a connection; the time is in seconds."""

    seconds: float


Step: TypeAlias = Open | Close | Turn | Sleep
Steps: TypeAlias = Generator[Step, Any, None]


class Delivery:
    """Rows on their way to the broker.

    Args:
        targets: the brokers to connect to; each attempt begins with the one after the last.
        encoder: returns the encoder for a connection's largest frame, in bytes.
        limits: the bounds of the window and of the waits.
        retries: how often to try again.
        clock: returns seconds that only go forward.
        chance: returns random numbers from 0 to 1.
        progress: is called now and then with the report so far; None for nobody.

    Attributes:
        failure: why nothing can be sent any more, or None.
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
        chance: Callable[[], float],
        progress: Callable[[PublishReport], None] | None = None,
    ) -> None:
        self.failure: RabbitChxError | None = None
        self.tally = Tally()
        self._targets = targets
        self._target = 0
        self._encoder_for = encoder
        self._limits = limits
        self._retries = retries
        self._clock = clock
        self._chance = chance
        self._progress = progress
        self._next_progress = 0.0
        self._link: Link | None = None
        self._encoder: Encoder | None = None
        self._frame_max = 0
        self._unsent: list[Sent] = []  # open when their connection was lost, oldest first
        self._refused = WaitingBatches()
        self._acked = 0  # on connections that are lost
        self._objection: BaseException | None = None  # what `progress` raised last
        self._outage: Outage | None = None  # it is over once the broker answers

    # -- operations

    def opening(self) -> Steps:
        """Open the first connection.

        Raises:
            RabbitChxError: no target could be connected to, and another attempt is not wanted or would not help.
        """
        began = self._clock()
        try:
            yield from self._connect(0)
        except RabbitChxError as cause:
            if not (self._retries.retry_first_connection and is_transient(cause)):
                raise
            self._outage = Outage(self._retries, cause, began)
            yield from self._reconnect(self._outage)

    def handing_over(self, rows: Rows) -> Steps:
        """Queue rows as soon as the window has room for them.

        Raises:
            RabbitChxError: the connection cannot go on, or the broker refuses messages for good.
        """
        tally, messages = self.tally, len(rows.keys)
        wire, encoder = b"", None
        while encoder is None or encoder is not self._encoder:  # a new connection may want smaller frames
            yield from self._until(self._is_connected, 0)
            encoder = self._encoder
            wire = encoder.encode(rows) if encoder else b""
            room = partial(self._has_room, messages, len(wire), encoder)
            yield from self._until(room, self._limits.max_in_flight - messages)
        if tally.nacked:
            raise refusal(self.report)
        assert self._link is not None  # noqa: S101  # there is room on it
        tally.rows += messages
        if tally.first_row_at is None:
            tally.first_row_at = self._clock()
        self._link.publish(wire, messages, Sent(rows))
        try:
            yield Turn(0)
        except RabbitChxError as cause:
            yield from self._recover(cause)
        self._tell()

    def draining(self) -> Steps:
        """Wait until every row is answered.

        Raises:
            RabbitChxError: the connection cannot go on.
        """
        yield from self._until(self._is_drained, 0)

    def close(self) -> None:
        """Send nothing any more."""
        self.failure = self.failure or closed_connection(self.where)

    def interrupted(self, cause: BaseException) -> None:
        """End all sending after an interruption, such as Ctrl-C. What `progress` raised is no interruption."""
        if cause is not self._objection:
            self.failure = self.failure or interruption(self.where, cause)

    @property
    def where(self) -> str:
        """The address in use, without its password."""
        return self._targets[self._target].masked_url

    @property
    def report(self) -> PublishReport:
        """What has become of the rows since the last `end`, as known now."""
        return self.tally.report(self._link, self._clock())

    def end(self) -> Tally:
        """Return the counts of these rows with their last report, and begin new counts.

        Rows that the broker refused and that still wait are given up.
        """
        tally = self.tally
        if self._refused.rows:
            self._give_up_refused()
        tally.final = tally.report(self._link, self._clock())
        self.tally = Tally()
        self.tally.take_up(self._link)
        return tally

    # -- what a wait is for

    def _is_connected(self) -> bool:
        return self._link is not None

    def _has_room(self, messages: int, size: int, encoder: Encoder | None) -> bool:
        """Return whether there is room for a batch, or no more need to wait for it."""
        if self.tally.nacked or self._encoder is not encoder:
            return True  # it ends with an error, or has to be encoded again
        link, limits, refused = self._link, self._limits, self._refused
        if link is None or self.failure is not None or link.failure is not None:
            return False
        if link.backlog or link.blocked is not None:
            return False
        open_ = link.open + refused.rows
        return not open_ or (
            open_ + messages <= limits.max_in_flight
            and link.open_bytes + refused.body_bytes + size <= limits.max_in_flight_bytes
        )

    def _is_drained(self) -> bool:
        open_ = self._link.open if self._link else 0
        return not open_ and not self._refused.rows and not self._unsent

    # -- waiting

    def _until(self, done: Callable[[], bool], until_open: int) -> Steps:
        """Take turns until something is done.

        Args:
            done: whether it is.
            until_open: it cannot be done while more rows than this are open.

        Raises:
            RabbitChxError: nothing moves, and no retry is left.
        """
        patience: Patience | None = None
        while not self._is_over(done):
            if self.failure is not None:
                raise self.failure
            link = self._link
            if link is None:
                yield from self._reconnect(self._outage) if self._outage else self.opening()
                continue
            try:
                yield self._next_turn(link, until_open)
                if patience is not None or not self._is_over(done):  # mostly the first turn is enough
                    patience = patience or Patience(self._limits, self._clock())
                    self.tally.blocked_s += patience.look(link, self._clock())
            except RabbitChxError as cause:
                yield from self._recover(cause)
            self._tell()

    def _is_over(self, done: Callable[[], bool]) -> bool:
        link = self._link
        if link is not None and (link.refused or self._refused.rows):
            self._settle(link, self._clock())
        return done()

    def _next_turn(self, link: Link, until_open: int) -> Turn:
        if not self._refused.rows:
            return Turn(_LONG_TURN_S, until_open)
        wait_s = _LONG_TURN_S
        if link.blocked is None:  # a broker that blocks us gets no retries, even if they are due
            wait_s = min(wait_s, self._refused.seconds_left(self._clock()))
        return Turn(wait_s, until_open - self._refused.rows)

    def _tell(self, *, at_once: bool = False) -> None:
        if self._progress is None:
            return
        now = self._clock()
        if at_once or now >= self._next_progress:
            self._next_progress = now + _PROGRESS_EVERY_S
            try:
                self._progress(self.report)
            except BaseException as cause:
                self._objection = cause
                raise

    # -- messages that the broker refused

    def _settle(self, link: Link, now: float) -> None:
        """Collect the refused messages, and send those again that are due."""
        if link.refused:
            self._take_up_refused(link, now)
        if self._refused.rows and link.failure is None and link.blocked is None:
            for sent in self._refused.take_due(now):
                self.tally.retried += len(sent.rows)
                self._publish(link, sent)

    def _take_up_refused(self, link: Link, now: float) -> None:
        retries = self._retries
        acked = self._acked + link.acked
        for batch, places in link.take_refused():
            rows = batch.rows.pick(places)
            refusals = batch.refusals if acked == batch.acked else 0  # the broker goes on, if slowly
            if retries.keep_order or refusals >= retries.nack_retries:
                self.tally.refuse(rows)
            else:
                due = now + retries.backoff.delay_s(refusals, self._chance())
                self._refused.add(Sent(rows, refusals + 1, due, acked))
        if self.tally.nacked:
            self._give_up_refused()  # the rows end with an error anyhow

    def _give_up_refused(self) -> None:
        for sent in self._refused.take_all():
            self.tally.refuse(sent.rows)

    def _publish(self, link: Link, sent: Sent) -> None:
        assert self._encoder is not None  # noqa: S101  # it came with the link
        link.publish(self._encoder.encode(sent.rows), len(sent.rows), sent)

    # -- connections that were lost

    def _recover(self, cause: RabbitChxError) -> Steps:
        """Go on over a new connection.

        Raises:
            RabbitChxError: a new one would not help, or could not be opened.
        """
        link = self._link
        if link is not None:
            link.failure = link.failure or cause
            self._settle(link, self._clock())
            if link.answered or not link.open:
                self._outage = None  # the last outage was over
        outage = self._outage = self._outage or Outage(self._retries, cause, self._clock())
        if not outage.may_be_cured(cause):
            self.failure = outage.ended_by(cause)
            raise self.failure
        if link is not None:
            self._put_back(link)
        _log.warning(
            "%s; reconnecting, %d rows are open", cause, sum(len(sent.rows) for sent in self._unsent)
        )
        yield from self._reconnect(outage)

    def _put_back(self, link: Link) -> None:
        """Take the open rows off the lost connection."""
        self._unsent += [replace(sent, rows=sent.rows.pick(places)) for sent, places in link.left()]
        self._acked += link.acked
        self.tally.leave(link)
        self._link = None

    def _reconnect(self, outage: Outage) -> Steps:
        """Try to connect until it succeeds.

        Raises:
            RabbitChxError: there is no time left, or another attempt would not help.
        """
        while (wait_s := outage.retry.wait_s(self._clock(), self._chance())) is not None:
            yield Sleep(wait_s)
            outage.retry.attempts += 1
            try:
                yield from self._connect(self._target + 1)
            except RabbitChxError as cause:
                if not is_transient(cause):
                    self.failure = outage.ended_by(cause)
                    raise self.failure from cause
                outage.last = cause
                _log.info("%s", cause)
            else:
                self._tell(at_once=True)
                return
        self.failure = outage.given_up(self._clock())
        raise self.failure

    def _connect(self, first: int) -> Steps:
        """Try each target once.

        Args:
            first: the number of the address to begin with.

        Raises:
            RabbitChxError: a broker refuses for good, or none could be connected to.
        """
        problems: list[RabbitChxError] = []
        for i in range(len(self._targets)):
            target = (first + i) % len(self._targets)
            try:
                yield from self._open(target)
            except RabbitChxError as cause:
                if not is_transient(cause):
                    raise
                problems.append(cause)
            else:
                return
        if len(problems) == 1:
            raise problems[0]
        raise UnreachableError("; ".join(map(str, problems)))

    def _open(self, target: int) -> Steps:
        """Connect to this target.

        Raises:
            RabbitChxError: it is not reachable or refuses, or `close` was called in the meantime.
        """
        link = yield Open(self._targets[target])
        if self.failure is not None:  # a signal handler or another task has closed us
            yield Close()
            raise self.failure
        self._target = target
        self._adopt(link)

    def _adopt(self, link: Link) -> None:
        """Go on over this connection, the open rows of the last connection first."""
        self._link = link
        self.tally.take_up(link)
        if self._encoder is not None:  # it is not the first
            self.tally.reconnects += 1
        if link.frame_max != self._frame_max:
            self._frame_max = link.frame_max
            self._encoder = self._encoder_for(self._frame_max)
        unsent, self._unsent = self._unsent, []
        for sent in unsent:
            self.tally.republished += len(sent.rows)
            self._publish(link, sent)

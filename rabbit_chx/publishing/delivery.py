"""What becomes of rows over all connections: which are sent, which once more, and when to give up.

No socket and no clock here: an operation is a generator that yields `Step` by step what is to be done, so that the
blocking and the asyncio publisher run the very same decisions.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.amqp.replies import may_pass
from rabbit_chx.connection.link import InterruptedLinkError, StallError
from rabbit_chx.connection.session import closed
from rabbit_chx.errors import BrokerRefusedError, BrokerTimeoutError, RabbitChxError, UnreachableError
from rabbit_chx.publishing.drivers import Open, Sleep, Turn
from rabbit_chx.publishing.outage import Outage
from rabbit_chx.publishing.patience import Patience
from rabbit_chx.publishing.publish_report import NACK
from rabbit_chx.publishing.refusals import Refused, Sent
from rabbit_chx.publishing.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.connection.link import Link
    from rabbit_chx.errors import PublishError
    from rabbit_chx.publishing.drivers import Steps
    from rabbit_chx.publishing.encoder import Encoder
    from rabbit_chx.publishing.limits import Limits, Retries
    from rabbit_chx.publishing.publish_report import PublishReport
    from rabbit_chx.publishing.rows import Rows

__all__ = ["Delivery"]

_log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.25
_LONG_TURN_S = _PROGRESS_EVERY_S  # so that progress is told in time


class Delivery:
    """Rows on their way to the broker.

    Whoever runs the steps throws what went wrong in one of them into the generator. An operation that is
    closed before its end leaves everything in order, and the next one goes on from there.

    Args:
        targets: where to connect, in this order.
        encoder: makes the encoder for a connection's largest frame.
        limits: the bounds of the window and of the waits.
        retries: how often to try again.
        clock: seconds that only go forward.
        chance: random numbers from 0 to 1.
        progress: is told now and then how far it is; None for nobody.

    Attributes:
        failure: why nothing can be sent any more, or None.
        tally: the counts.
        objection: what `progress` raised last, or None.
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
        self.objection: BaseException | None = None
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
        self._refused = Refused()
        self._acked = 0  # on connections that are lost
        self._outage: Outage | None = None  # the last one; it is over once the broker answers

    # -- operations

    def opening(self) -> Steps[None]:
        """Open the first connection.

        Raises:
            RabbitChxError: none of the targets can be had, and another attempt is not wanted, or would not help.
        """
        began = self._clock()
        try:
            yield from self._connect(0)
        except RabbitChxError as cause:
            if not (self._retries.retry_first_connection and may_pass(cause)):
                raise
            self._outage = Outage(self._retries, cause, began)
            yield from self._reconnect(self._outage)

    def handing_over(self, rows: Rows) -> Steps[None]:
        """Queue rows as soon as the window has room for them.

        Raises:
            RabbitChxError: the connection cannot go on, or the broker refuses messages for good.
        """
        wire, encoder = b"", None
        tally = self.tally

        def room() -> bool:
            nonlocal wire, encoder
            if encoder is not self._encoder:
                encoder = self._encoder
                wire = encoder.encode(rows) if encoder else b""
            return bool(tally.nacked) or self._has_room(len(rows), len(wire))

        yield from self._until(room, self._limits.max_in_flight - len(rows))
        if tally.nacked:
            raise self.refusal()
        assert self._link is not None  # noqa: S101  # there is room on it
        tally.begin(len(rows), self._clock())
        self._link.session.publish(wire, len(rows), Sent(rows))
        yield from self._turn(0)
        self._tell()

    def draining(self) -> Steps[None]:
        """Wait until every row is answered.

        Raises:
            RabbitChxError: the connection cannot go on.
        """
        yield from self._until(lambda: not self._open_rows(), 0)

    def close(self) -> None:
        """Nothing is sent any more."""
        self.failure = self.failure or closed(self.where)

    def interrupted(self, cause: BaseException) -> None:
        """Ctrl-C or the like came in the middle of something: nothing is sent any more, lest the counts go wrong."""
        self.failure = self.failure or InterruptedLinkError(
            f"{self.where}: given up after an interruption ({type(cause).__name__}): open a new one"
        )

    @property
    def where(self) -> str:
        """The address in use without its password."""
        return self._targets[self._target].masked_url

    @property
    def report(self) -> PublishReport:
        """What has become of the rows since `start_anew`, as known now."""
        return self.tally.report(self._link, self._clock())

    def refusal(self) -> BrokerRefusedError:
        """The error for rows that were refused for good."""
        key = next((sample.key for sample in self.report.samples if sample.code == NACK), "")
        return BrokerRefusedError(
            "the broker refused messages (basic.nack): a queue is full and its overflow is reject-publish, or it has no "
            f"majority of its nodes; one of them has the key {key!r}"
        )

    def give_up_refused(self) -> None:
        """Send nothing again that the broker has refused."""
        for sent in self._refused.take_all():
            self.tally.refuse(sent.rows)

    def end(self, report: PublishReport, error: PublishError | None) -> None:
        """This was the last report of these rows; what comes from now on goes into the next."""
        self.tally.final, self.tally.error = report, error
        self.tally = Tally()
        self.tally.take_up(self._link)
        if self._progress is None or not report.rows:
            return
        try:
            self._progress(report)
        except Exception:
            if error is None:
                raise
            _log.exception("progress failed, too")  # raised, it would hide the error

    # -- the window

    def _has_room(self, messages: int, size: int) -> bool:
        link = self._link
        if self.failure is not None or link is None or link.session.failure is not None:
            return False
        session, limits = link.session, self._limits
        if link.backlog or session.blocked is not None:
            return False
        open_ = session.ledger.open + len(self._refused)
        return not open_ or (
            open_ + messages <= limits.max_in_flight
            and session.ledger.open_bytes + self._refused.body_bytes + size <= limits.max_in_flight_bytes
        )

    def _open_rows(self) -> int:
        here = self._link.session.ledger.open if self._link else 0
        return here + len(self._refused) + sum(len(sent.rows) for sent in self._unsent)

    # -- waiting

    def _until(self, done: Callable[[], bool], enough: int) -> Steps[None]:
        """Go on until `done`, as long as something moves.

        Args:
            done: whether it is.
            enough: it cannot be while more rows than this are open.

        Raises:
            RabbitChxError: nothing does, and no retry is left.
        """
        patience = Patience(self._limits, self._clock())
        while True:
            link = self._link
            if self._refused or (link is not None and link.session.ledger.refused):
                self._settle(self._clock())
            if done():
                return
            if self.failure is not None:
                raise self.failure
            if link is None:
                yield from self._reconnect(self._outage) if self._outage else self.opening()
                continue
            try:
                yield self._next_turn(enough)
                self.tally.blocked_s += patience.look(link, self._clock())
            except RabbitChxError as cause:
                yield from self._recover(cause)
            if self._progress is not None:
                self._tell()

    def _turn(self, wait_s: float) -> Steps[None]:
        try:
            yield Turn(wait_s)
        except RabbitChxError as cause:
            yield from self._recover(cause)

    def _next_turn(self, enough: int) -> Turn:
        if not self._refused:
            return Turn(_LONG_TURN_S, enough)
        wait_s = _LONG_TURN_S
        if self._link is not None and self._link.session.blocked is None:  # else none is sent, be it due
            wait_s = min(wait_s, self._refused.seconds_left(self._clock()))
        return Turn(wait_s, enough - len(self._refused))

    def _tell(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if self._progress is not None and (at_once or now >= self._next_progress):
            self._next_progress = now + _PROGRESS_EVERY_S
            try:
                self._progress(self.report)
            except BaseException as cause:
                self.objection = cause
                raise

    # -- messages that the broker refused

    def _settle(self, now: float) -> None:
        """Take up what was refused, and send again what is due."""
        link = self._link
        if link is None:
            return
        if link.session.ledger.refused:
            self._take_up_refused(link, now)
        if self._refused and link.session.failure is None and link.session.blocked is None:
            for sent in self._refused.take_due(now):
                self.tally.retried += len(sent.rows)
                self._publish(sent)

    def _take_up_refused(self, link: Link, now: float) -> None:
        parts, link.session.ledger.refused = link.session.ledger.refused, []
        retries = self._retries
        acked = self._acked + link.session.ledger.acked
        for batch, places in parts:
            rows = batch.rows.pick(places)
            refusals = batch.refusals if acked == batch.acked else 0  # the broker goes on, if slowly
            if retries.keep_order or refusals >= retries.nack_retries:
                self.tally.refuse(rows)
            else:
                due = now + retries.delay_s(refusals, self._chance())
                self._refused.add(Sent(rows, refusals + 1, due, acked))
        if self.tally.nacked:
            self.give_up_refused()  # the rows end with an error anyhow

    def _publish(self, sent: Sent) -> None:
        assert self._link is not None  # noqa: S101  # it was adopted
        assert self._encoder is not None  # noqa: S101
        self._link.session.publish(self._encoder.encode(sent.rows), len(sent.rows), sent)

    # -- connections that were lost

    def _recover(self, cause: RabbitChxError) -> Steps[None]:
        """Go on over a new connection.

        Raises:
            RabbitChxError: a new one would not help, or cannot be had.
        """
        link = self._link
        if link is not None:
            link.session.failure = link.session.failure or cause
            self._settle(self._clock())
            if link.session.ledger.answered or not link.session.ledger.open:
                self._outage = None  # the last one was over
        outage = self._outage = self._outage or Outage(self._retries, cause, self._clock())
        if not self._is_worth_a_new_connection(cause, outage):
            self.failure = outage.ended_by(cause)
            raise self.failure
        if link is not None:
            self._put_back(link)
        _log.warning(
            "%s; reconnecting, %d rows are open", cause, sum(len(sent.rows) for sent in self._unsent)
        )
        yield from self._reconnect(outage)

    def _is_worth_a_new_connection(self, cause: RabbitChxError, outage: Outage) -> bool:
        if not self._retries.reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            outage.stalls += 1
            return outage.stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return False  # it has blocked us for too long; another connection would be blocked as well
        return may_pass(cause)

    def _put_back(self, link: Link) -> None:
        """Take the open rows off the lost connection."""
        self._unsent += [
            replace(sent, rows=sent.rows.pick(places)) for sent, places in link.session.ledger.left()
        ]
        self._acked += link.session.ledger.acked
        self.tally.leave(link)
        self._link = None

    def _reconnect(self, outage: Outage) -> Steps[None]:
        """Try to connect until it succeeds.

        Raises:
            RabbitChxError: there is no time left, or another attempt would not help.
        """
        while (wait_s := outage.wait_s(self._clock(), self._chance())) is not None:
            yield Sleep(wait_s)
            outage.attempts += 1
            try:
                yield from self._connect(self._target + 1)
            except RabbitChxError as cause:
                if not may_pass(cause):
                    self.failure = outage.ended_by(cause)
                    raise self.failure from cause
                outage.last = cause
                _log.info("%s", cause)
            else:
                self._tell(at_once=True)
                return
        self.failure = outage.given_up(self._clock())
        raise self.failure

    def _connect(self, first: int) -> Steps[None]:
        """Try each target once.

        Args:
            first: the number of the one to begin with.

        Raises:
            RabbitChxError: one refuses for good, or none can be had.
        """
        problems: list[RabbitChxError] = []
        for i in range(len(self._targets)):
            target = (first + i) % len(self._targets)
            try:
                link = yield Open(self._targets[target])
            except RabbitChxError as cause:
                if not may_pass(cause):
                    raise
                problems.append(cause)
            else:
                self._target = target
                self._adopt(link)
                return
        if len(problems) == 1:
            raise problems[0]
        raise UnreachableError("; ".join(map(str, problems)))

    def _adopt(self, link: Link) -> None:
        """Go on over this connection, the open rows of the last one first."""
        self._link = link
        self.tally.take_up(link)
        if self._encoder is not None:  # it is not the first
            self.tally.reconnects += 1
        if link.session.frame_max != self._frame_max:
            self._frame_max = link.session.frame_max
            self._encoder = self._encoder_for(self._frame_max)
        unsent, self._unsent = self._unsent, []
        for sent in unsent:
            self.tally.republished += len(sent.rows)
            self._publish(sent)

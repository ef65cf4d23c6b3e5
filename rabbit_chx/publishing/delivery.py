"""What becomes of rows over all connections: which are sent, which once more, and when to give up.

No socket and no clock here: an operation is a generator that yields `Step` by step what is to be done, so that the
blocking and the asyncio publisher run the very same decisions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rabbit_chx.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.publishing.patience import InterruptedLinkError, Patience, StallError
from rabbit_chx.publishing.sent import Refused, Sent
from rabbit_chx.publishing.session import closed
from rabbit_chx.publishing.steps import Open, Sleep, Turn
from rabbit_chx.publishing.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.publishing.encoder import Encoder
    from rabbit_chx.publishing.limits import Limits, Retries
    from rabbit_chx.publishing.patience import Link
    from rabbit_chx.publishing.report import PublishReport
    from rabbit_chx.publishing.rows import Rows
    from rabbit_chx.publishing.steps import Steps

__all__ = ["REFUSED", "Delivery"]

_log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 0.25
#: The broker failed inside, is out of something, or lost its place in the protocol: a new connection may do.
_PASSING_CODES = frozenset({320, 504, 505, 506, 541})
_LONG_TURN_S = _PROGRESS_EVERY_S  # so that progress is told in time

#: What is said of rows that were refused for good.
REFUSED = (
    "the broker refused messages (basic.nack): a queue is full and its overflow is "
    "reject-publish, or it has no majority of its nodes"
)


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
        self._lost: RabbitChxError | None = None
        self._attempts = 0  # to reconnect, since the broker answered last
        self._stalls = 0

    # -- operations

    def opening(self) -> Steps[None]:
        """Open the first connection.

        Raises:
            RabbitChxError: none of the targets can be had.
        """
        problems: list[RabbitChxError] = []
        for target, settings in enumerate(self._targets):
            try:
                link = yield Open(settings)
            except UnreachableError as cause:
                problems.append(cause)
            else:
                self._target = target
                self._adopt(link)
                return
        if len(problems) == 1:
            raise problems[0]
        raise UnreachableError("; ".join(map(str, problems)))

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
            raise BrokerRefusedError(REFUSED)
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
        self.failure = self.failure or closed(self._targets[self._target].masked_url)

    def interrupted(self, cause: BaseException) -> None:
        """Ctrl-C or the like came in the middle of something: nothing is sent any more, lest the counts go wrong."""
        where = self._targets[self._target].masked_url
        self.failure = self.failure or InterruptedLinkError(
            f"{where}: given up after an interruption ({type(cause).__name__}): open a new one"
        )

    @property
    def report(self) -> PublishReport:
        """What has become of the rows since `start_anew`, as known now."""
        return self.tally.report(self._link, self._clock())

    def give_up_refused(self) -> None:
        """Send nothing again that the broker has refused."""
        self.tally.nacked += len(self._refused)
        self._refused.clear()

    def start_anew(self) -> None:
        """What comes from now on goes into the next report."""
        self.tally = Tally()
        self.tally.take_up(self._link)

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
                yield from self._reconnect() if self._lost else self.opening()
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
        wait_s = min(_LONG_TURN_S, self._refused.seconds_left(self._clock()))
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
                self._publish(sent)

    def _take_up_refused(self, link: Link, now: float) -> None:
        parts, link.session.ledger.refused = link.session.ledger.refused, []
        retries = self._retries
        for batch, places in parts:
            rows = batch.rows.pick(places)
            if retries.keep_order or batch.refusals >= retries.nack_retries:
                self.tally.nacked += len(rows)
            else:
                due = now + retries.delay_s(batch.refusals, self._chance())
                self._refused.add(Sent(rows, batch.refusals + 1, due))
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
            if link.session.ledger.answered:
                self._attempts = self._stalls = 0
        if not self._is_worth_a_new_connection(cause):
            self.failure = cause
            raise cause
        self._lost = cause
        if link is not None:
            self._put_back(link)
        _log.warning(
            "%s; reconnecting, %d rows are open", cause, sum(len(sent.rows) for sent in self._unsent)
        )
        yield from self._reconnect()

    def _is_worth_a_new_connection(self, cause: RabbitChxError) -> bool:
        if not self._retries.max_reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            self._stalls += 1
            return self._stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return False  # it has blocked us for too long; another connection would be blocked as well
        return _may_pass(cause)

    def _put_back(self, link: Link) -> None:
        """Take the open rows off the lost connection."""
        self._unsent += [
            Sent(sent.rows.pick(places), sent.refusals) for sent, places in link.session.ledger.left()
        ]
        self.tally.leave(link)
        self._link = None

    def _reconnect(self) -> Steps[None]:
        assert self._lost is not None  # noqa: S101  # why else
        lost = last = self._lost
        while self._attempts < self._retries.max_reconnects:
            yield Sleep(self._retries.delay_s(self._attempts, self._chance()))
            self._attempts += 1
            for _ in self._targets:
                self._target = (self._target + 1) % len(self._targets)
                try:
                    link = yield Open(self._targets[self._target])
                except RabbitChxError as cause:
                    if not _may_pass(cause):
                        self.failure = cause
                        raise
                    _log.info("%s", cause)
                    last = cause
                else:
                    self.tally.reconnects += 1
                    self._adopt(link)
                    self._tell(at_once=True)
                    return
        self.failure = lost
        if last is not lost:
            self.failure = ConnectionLostError(
                f"{lost}; gave up after {self._attempts} attempts to reconnect: {last}"
            )
        raise self.failure

    def _adopt(self, link: Link) -> None:
        """Go on over this connection, the open rows of the last one first."""
        self._link = link
        self.tally.take_up(link)
        if link.session.frame_max != self._frame_max:
            self._frame_max = link.session.frame_max
            self._encoder = self._encoder_for(self._frame_max)
        unsent, self._unsent = self._unsent, []
        for sent in unsent:
            self.tally.republished += len(sent.rows)
            self._publish(sent)


def _may_pass(cause: RabbitChxError) -> bool:
    """Whether another attempt may do better."""
    if isinstance(cause, InputError):
        return False
    return isinstance(cause, UnreachableError) or cause.reply_code in _PASSING_CODES

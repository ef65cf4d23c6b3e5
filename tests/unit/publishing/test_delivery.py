"""What is sent again and when, decided without socket and clock: the broker's answers and the time are scripted."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.publishing.limits import Limits, Retries
from rabbit_chx.publishing.rows import Rows
from rabbit_chx.publishing.session import Session
from rabbit_chx.publishing.steps import Open, Sleep, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rabbit_chx.publishing.report import PublishReport
    from rabbit_chx.publishing.steps import Steps

A, B = ConnectionSettings(host="a"), ConnectionSettings(host="b")


class Link:
    """A connection whose broker does as it is told."""

    backlog = False
    bytes_sent = 0

    def __init__(self, settings: ConnectionSettings) -> None:
        self.session = Session(settings)

    @property
    def bodies(self) -> list[str]:
        """What was sent over it."""
        return [text for wire in list(self.session.output)[1:] for text in wire.decode().split()]


class Encoder:
    """Writes bodies in clear."""

    def encode(self, rows: Rows) -> bytes:
        """Bodies, and a space after each."""
        return b" ".join(rows.bodies)


class Broker:
    """Runs a delivery's steps: what happens in each turn is taken from a script."""

    def __init__(
        self, script: Iterator[Callable[[Link], None]], *targets: ConnectionSettings, **retries: Any
    ) -> None:
        self.links: list[Link] = []
        self.opened: list[str] = []
        self.slept: list[float] = []
        self.refusals: list[RabbitChxError | None] = []  # to open; one for each attempt
        self.now = 0.0
        self._script = script
        encoder: Any = Encoder()
        self.delivery = Delivery(
            targets or (A,),
            lambda _: encoder,
            Limits(max_in_flight=10),
            Retries(**retries),
            clock=lambda: self.now,
            chance=lambda: 1.0,
        )

    def run(self, steps: Steps[None]) -> None:
        """Do what they ask for."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._do(step)
                except RabbitChxError as cause:
                    step = steps.throw(cause)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return

    def _do(self, step: Open | Turn | Sleep) -> Link | None:
        match step:
            case Open(settings):
                self.opened.append(settings.host)
                if self.refusals and (refusal := self.refusals.pop(0)):
                    raise refusal
                self.links.append(Link(settings))
                return self.links[-1]
            case Sleep(seconds):
                self.slept.append(seconds)
                self.now += seconds
            case Turn(wait_s):
                self.now += wait_s
                link = self.links[-1]
                if wait_s:
                    next(self._script)(link)
                if link.session.failure is not None:
                    raise link.session.failure
        return None

    def publish(self, bodies: str) -> PublishReport:
        """Hand over rows, wait until they are answered, and report."""
        texts = [body.encode() for body in bodies.split()]
        self.run(self.delivery.handing_over(Rows([b"k"] * len(texts), texts)))
        self.run(self.delivery.draining())
        return self.delivery.report


def ack(tag: int = 0, *, multiple: bool = True) -> Callable[[Link], None]:
    return lambda link: link.session.ledger.ack(tag, multiple=multiple)


def nack(*tags: int) -> Callable[[Link], None]:
    def answer(link: Link) -> None:
        for tag in tags:
            link.session.ledger.nack(tag, multiple=False)

    return answer


def returned(messages: int) -> Callable[[Link], None]:
    def answer(link: Link) -> None:
        link.session.returned += messages

    return answer


def lost(cause: RabbitChxError | None = None) -> Callable[[Link], None]:
    def answer(link: Link) -> None:
        link.session.failure = cause or ConnectionLostError("the connection was lost")

    return answer


def nothing(_: Link) -> None:
    pass


def test_exactly_the_open_rows_are_sent_again_in_order() -> None:
    broker = Broker(iter([ack(2), ack(4, multiple=False), lost(), ack()]), A, B)
    report = broker.publish("a b c d e f")
    assert [link.bodies for link in broker.links] == [["a", "b", "c", "d", "e", "f"], ["c", "e", "f"]]
    assert broker.opened == ["a", "b"]
    assert (report.rows, report.confirmed, report.republished, report.reconnects) == (6, 6, 3, 1)


def test_a_row_may_be_sent_more_often_than_twice() -> None:
    broker = Broker(iter([lost(), ack(1), lost(), ack()]))
    report = broker.publish("a b c")
    assert [link.bodies for link in broker.links] == [["a", "b", "c"], ["a", "b", "c"], ["b", "c"]]
    assert (report.confirmed, report.republished, report.reconnects) == (3, 5, 2)


def test_each_attempt_waits_twice_as_long_and_goes_through_all_targets() -> None:
    broker = Broker(iter([lost()]), A, B, max_reconnects=3, backoff_s=1.0)
    broker.run(broker.delivery.opening())
    broker.refusals = [UnreachableError("nobody answers")] * 6
    with pytest.raises(ConnectionLostError, match="was lost; gave up after 3 attempts to reconnect: nobody"):
        broker.publish("a b")
    assert broker.slept == [1.0, 2.0, 4.0]
    assert broker.opened == ["a", "b", "a", "b", "a", "b", "a"]
    report = broker.delivery.report
    assert (report.rows, report.unknown, report.reconnects) == (2, 2, 0)


def test_the_budget_is_full_again_after_an_answer() -> None:
    broker = Broker(iter([ack(1), lost(), ack(1), lost(), ack(1), lost(), ack()]), max_reconnects=1)
    assert broker.publish("a b c d").confirmed == 4
    fruitless = Broker(iter([lost(), lost()]), max_reconnects=1)
    with pytest.raises(ConnectionLostError):
        fruitless.publish("a")


@pytest.mark.parametrize(
    ("cause", "again"),
    [
        (BrokerRefusedError("541", reply_code=541), True),
        (NotFoundError("404", reply_code=404), False),
        (AccessRefusedError("403", reply_code=403), False),
        (BrokerRefusedError("406", reply_code=406), False),
        (InputError("the connection is closed"), False),
    ],
)
def test_which_ends_may_pass(cause: RabbitChxError, *, again: bool) -> None:
    broker = Broker(iter([lost(cause), ack()]))
    if again:
        assert broker.publish("a").confirmed == 1
    else:
        with pytest.raises(type(cause)):
            broker.publish("a")
        assert broker.slept == []


def test_a_refusal_at_the_door_is_final() -> None:
    broker = Broker(iter([lost()]))
    broker.run(broker.delivery.opening())
    broker.refusals = [AccessRefusedError("403", reply_code=403)]
    with pytest.raises(AccessRefusedError):
        broker.publish("a")
    with pytest.raises(AccessRefusedError):
        broker.publish("a")
    assert len(broker.opened) == 2


def test_a_stall_is_a_loss_once() -> None:
    broker = Broker(chain([nothing] * 241, [ack()]), backoff_s=0)
    assert broker.publish("a").reconnects == 1
    broker = Broker(iter([nothing] * 490), backoff_s=0)
    with pytest.raises(RabbitChxError, match="answered nothing for 60 s, and 1 messages are open"):
        broker.publish("a")
    assert len(broker.links) == 2


def test_refused_messages_are_sent_again_a_few_times() -> None:
    broker = Broker(iter([nack(2), ack(3), nothing, ack(4), ack()]), backoff_s=0.5)
    report = broker.publish("a b c")
    assert broker.links[0].bodies == ["a", "b", "c", "b"]
    assert (report.confirmed, report.nacked, report.republished) == (3, 0, 0)
    stubborn = Broker(
        chain([nack(1)], [nothing] * 2, [nack(2)], [nothing] * 4, [nack(3)]), nack_retries=2, backoff_s=0.5
    )
    report = stubborn.publish("a")
    assert (report.confirmed, report.nacked) == (0, 1)
    assert stubborn.links[0].bodies == ["a", "a", "a"]
    with pytest.raises(BrokerRefusedError, match="refused messages"):
        stubborn.publish("b")


def test_where_order_is_kept_a_refused_message_is_not_sent_again() -> None:
    broker = Broker(iter([nack(2), ack()]), keep_order=True)
    report = broker.publish("a b c")
    assert broker.links[0].bodies == ["a", "b", "c"]
    assert (report.confirmed, report.nacked, report.unknown) == (2, 1, 0)


def test_a_return_whose_ack_is_lost_is_never_a_confirm() -> None:
    broker = Broker(iter([returned(1), lost(), returned(1), ack()]))
    report = broker.publish("a b")
    assert (report.confirmed, report.returned, report.unknown) == (1, 1, 0)
    # The ack that came may be that of the returned message: so it counts as returned.
    broker = Broker(iter([returned(1), ack(2, multiple=False), lost(), returned(1), ack()]))
    report = broker.publish("a b")
    assert (report.confirmed, report.returned, report.unknown) == (0, 2, 0)


def test_an_operation_that_is_given_up_is_taken_up_by_the_next() -> None:
    broker = Broker(iter([ack(1), lost(), ack()]))
    broker.run(broker.delivery.handing_over(Rows([b"k"] * 3, [b"a", b"b", b"c"])))
    steps = broker.delivery.draining()
    step = next(steps)
    while not isinstance(step, Sleep):  # up to the backoff before the new connection
        try:
            answer = broker._do(step)
        except RabbitChxError as cause:
            step = steps.throw(cause)
        else:
            step = steps.send(answer)
    steps.close()
    assert broker.delivery.report.unknown == 2
    broker.run(broker.delivery.draining())
    assert broker.links[1].bodies == ["b", "c"]
    assert broker.delivery.report.confirmed == 3


def test_after_an_interruption_nothing_is_sent_any_more() -> None:
    broker = Broker(iter([]))
    broker.run(broker.delivery.handing_over(Rows([b"k"], [b"a"])))
    broker.delivery.interrupted(KeyboardInterrupt())
    with pytest.raises(ConnectionLostError, match=r"given up after an interruption \(KeyboardInterrupt\)"):
        broker.publish("b")
    report = broker.delivery.report
    assert (report.rows, report.unknown) == (1, 1)


answers = st.sampled_from([ack(), ack(1), ack(2, multiple=False), nack(1), nack(2), returned(1), lost()])


@given(script=st.lists(answers, max_size=25), rows=st.integers(1, 6))
def test_the_counts_always_add_up(script: list[Callable[[Link], None]], rows: int) -> None:
    def gentle(answer: Callable[[Link], None]) -> Callable[[Link], None]:
        def play(link: Link) -> None:
            ledger = link.session.ledger
            returns = link.session.returned
            if answer.__qualname__.startswith("returned") and returns >= ledger.sent - ledger.nacked:
                return  # nothing is left that could come back
            if answer.__qualname__.startswith("nack") and returns > ledger.acked:
                return  # what came back is acked, and never refused
            try:
                answer(link)
            except ValueError:  # a tag that was not sent on this connection
                ledger.ack(0, multiple=True)

        return play

    broker = Broker(chain(map(gentle, script), iter(ack, None)), max_reconnects=2, backoff_s=0.01)
    try:
        report = broker.publish(" ".join(map(str, range(rows))))
    except RabbitChxError:
        report = broker.delivery.report
    else:
        assert report.unknown == 0
    assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows <= rows
    assert min(report.confirmed, report.returned, report.nacked, report.unknown) >= 0


@pytest.mark.parametrize(
    "wrong", [{"max_reconnects": -1}, {"max_reconnects": True}, {"nack_retries": 1.5}, {"backoff_s": -1}]
)
def test_retries_that_cannot_be(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        Retries(**wrong)


def test_the_delay_is_bounded_and_varies() -> None:
    retries = Retries(backoff_s=1.0)
    assert [retries.delay_s(n, 1.0) for n in range(6)] == [1, 2, 4, 8, 16, 30]
    assert retries.delay_s(0, 0.0) == 0.5

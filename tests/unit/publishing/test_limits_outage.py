"""How long an outage is worth going on, decided without a clock, and what its end says."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import pytest
from scripted_delivery import A, B, Broker, Event, ScriptedConnection, ack, blocked, lost

from rabbit_chx import errors
from rabbit_chx.publishing.options import Limits
from rabbit_chx.publishing.steps import Open, Step

DOWN = errors.UnreachableError("nobody answers")


def connected(*script: Event, refusals: list[errors.RabbitChxError], **retries: Any) -> Broker:
    """A broker with a connection; the next attempts to connect are refused."""
    broker = Broker(script, **retries)
    broker.run(broker.delivery.connect())
    broker.refusals = [*refusals]
    return broker


def test_the_time_to_reconnect_is_counted_from_the_loss() -> None:
    broker = connected(lost(), refusals=[DOWN] * 100)
    with pytest.raises(
        errors.ConnectionLostError, match=r"was lost; gave up after 26 attempts to connect in 120 s"
    ):
        broker.publish("a")
    assert sum(broker.slept) == pytest.approx(120)
    assert max(broker.slept) == 5


def test_the_time_to_reconnect_is_renewed_by_an_answer_and_by_nothing_else() -> None:
    def later(answer: Event) -> Event:
        def play(connection: ScriptedConnection) -> None:
            broker.now += 6
            answer(connection)

        return play

    broker = Broker(
        iter([later(lost()), ack(1), later(lost()), ack(1), later(lost()), ack()]), reconnect_timeout_s=10
    )
    assert broker.publish("a b c").confirmed == 3
    broker = Broker(iter([later(lost())] * 9), reconnect_timeout_s=10)
    with pytest.raises(errors.ConnectionLostError, match="gave up after 2 attempts"):
        broker.publish("a b c")


def test_a_connection_that_had_nothing_to_do_costs_no_time() -> None:
    broker = Broker(chain([lost()], repeat(ack())), reconnect_timeout_s=10)
    for _ in range(3):
        assert broker.publish("a").unknown == 0
        broker.now += 600
        broker.connections[-1].session.failure = errors.ConnectionLostError("it went away")
    assert len(broker.connections) == 4


def test_a_publisher_at_rest_may_lose_its_connection_as_often_as_it_likes() -> None:
    """Nothing is open, and nothing is confirmed in between: the broker blocks all the time."""

    def block_and_end(connection: ScriptedConnection) -> None:
        broker.now += 6
        lost()(connection)

    broker = Broker(chain([block_and_end] * 5, repeat(ack())), reconnect_timeout_s=10)
    connect = broker.do

    def do(step: Step) -> ScriptedConnection | None:
        connection = connect(step)
        if isinstance(step, Open) and connection is not None and len(broker.connections) < 6:
            connection.session.blocked = "an alarm"
        return connection

    broker.do = do  # type: ignore[method-assign]
    assert broker.publish("a").confirmed == 1
    assert broker.now > 30
    assert len(broker.connections) == 6


@pytest.mark.parametrize("never", [{"max_reconnects": 0}, {"reconnect_timeout_s": 0}])
def test_a_lost_connection_is_final_where_that_is_wanted(never: dict[str, Any]) -> None:
    broker = Broker(iter([lost()]), **never)
    with pytest.raises(errors.ConnectionLostError):
        broker.publish("a")
    assert len(broker.opened) == 1


A_DOWN, B_DOWN = errors.UnreachableError("a is down"), errors.UnreachableError("b is down")


@pytest.mark.parametrize(
    ("targets", "refusals", "retry", "error", "says"),
    [
        ((A, B), [A_DOWN, B_DOWN, A_DOWN], False, errors.UnreachableError, "^a is down; b is down$"),
        ((A,), [A_DOWN] * 100, True, errors.ConnectionLostError, "^a is down; gave up after 26 attempts to connect in 120 s$"),
        ((A,), [A_DOWN, errors.AccessRefusedError("403", reply_code=403)], True, errors.AccessRefusedError, "403; it began with: a is down"),
        # A refusal is tried neither again nor elsewhere.
        ((A, B), [errors.AccessRefusedError("403", reply_code=403)], False, errors.AccessRefusedError, "^403$"),
        ((A, B), [errors.AccessRefusedError("403", reply_code=403)], True, errors.AccessRefusedError, "^403$"),
    ],
)  # fmt: skip
def test_the_first_connection_fails_at_once_unless_asked(
    targets: Any, refusals: Any, *, retry: bool, error: Any, says: str
) -> None:
    broker = Broker([], *targets, retry_first_connection=retry)
    broker.refusals = [*refusals]
    with pytest.raises(error, match=says):
        broker.run(broker.delivery.connect())


def test_the_first_connection_is_tried_again_on_request() -> None:
    broker = Broker([ack()], A, B, retry_first_connection=True)
    broker.refusals = [A_DOWN]
    assert broker.publish("a").reconnects == 0
    assert broker.opened == ["a", "b"]


PASSING = [
    errors.ConnectionLimitError("530 limit reached", reply_code=530),
    errors.BrokerRefusedError("541 vhost is down", reply_code=541),
]


@pytest.mark.parametrize("passing", PASSING)
def test_a_broker_that_is_full_or_still_starting_is_asked_again(passing: errors.RabbitChxError) -> None:
    assert connected(lost(), ack(), refusals=[passing] * 5).publish("a").confirmed == 1
    first = Broker(iter([ack()]), A, B)
    first.refusals = [passing]
    assert first.publish("a").confirmed == 1  # by the next URL
    assert first.opened == ["a", "b"]


def test_a_refused_reconnection_is_final_and_names_the_first_cause() -> None:
    deleted = errors.ConnectionLostError("320 user 'u' is deleted", reply_code=320)
    refused = errors.AccessRefusedError("403 login was refused", reply_code=403)
    broker = connected(lost(deleted), refusals=[refused])
    for _ in range(2):
        with pytest.raises(
            errors.AccessRefusedError,
            match=r"^403 login was refused; it began with: 320 user 'u' is deleted$",
        ) as info:
            broker.publish("a")
        assert info.value.reply_code == 403
    assert len(broker.opened) == 2


def test_a_broker_that_blocks_for_too_long_is_not_connected_to_again() -> None:
    """It would block the next connection as well."""
    broker = Broker(repeat(blocked), limits=Limits(blocked_timeout_s=5))
    with pytest.raises(errors.BrokerTimeoutError, match=r"blocked publishers \(low on memory\) for 5 s"):
        broker.publish("a")
    assert broker.opened == ["a"]

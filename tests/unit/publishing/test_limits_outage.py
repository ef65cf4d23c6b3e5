"""How long an outage is worth going on, decided without a clock, and what its end says."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import pytest
from scripted_delivery import A, B, Broker, Event, ScriptedConnection, ack, blocked, lost

from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLimitError,
    ConnectionLostError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.publishing.options import Limits
from rabbit_chx.publishing.steps import Open, Step


def test_the_time_to_reconnect_is_counted_from_the_loss() -> None:
    broker = Broker(iter([lost()]))
    broker.run(broker.delivery.connect())
    broker.refusals = [UnreachableError("nobody answers")] * 100
    with pytest.raises(ConnectionLostError, match=r"was lost; gave up after 26 attempts to connect in 120 s"):
        broker.publish("a")
    assert sum(broker.slept) == pytest.approx(120)
    assert max(broker.slept) == 5


def test_an_outage_of_a_minute_is_not_an_error() -> None:
    broker = Broker(iter([lost(), ack()]))
    broker.run(broker.delivery.connect())
    broker.refusals = [UnreachableError("nobody answers")] * 13
    assert broker.publish("a").confirmed == 1
    assert broker.now > 60


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
    with pytest.raises(ConnectionLostError, match="gave up after 2 attempts"):
        broker.publish("a b c")


def test_a_connection_that_had_nothing_to_do_costs_no_time() -> None:
    broker = Broker(chain([lost()], repeat(ack())), reconnect_timeout_s=10)
    for _ in range(3):
        assert broker.publish("a").unknown == 0
        broker.now += 600
        broker.connections[-1].session.failure = ConnectionLostError(
            "the broker went away while nobody published"
        )
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
    with pytest.raises(ConnectionLostError):
        broker.publish("a")
    assert len(broker.opened) == 1


def test_the_first_connection_fails_at_once_unless_asked() -> None:
    broker = Broker(iter([ack()]), A, B)
    broker.refusals = [
        UnreachableError("a is down"),
        UnreachableError("b is down"),
        UnreachableError("a again"),
    ]
    with pytest.raises(UnreachableError, match=r"^a is down; b is down$"):
        broker.run(broker.delivery.connect())
    patient = Broker(iter([ack()]), A, B, retry_first_connection=True)
    patient.refusals = list(broker.refusals)
    assert patient.publish("a").reconnects == 0
    assert patient.opened == ["a", "b"]
    hopeless = Broker(iter([]), retry_first_connection=True)
    hopeless.refusals = [UnreachableError("a is down")] * 100
    with pytest.raises(
        ConnectionLostError, match=r"^a is down; gave up after 26 attempts to connect in 120 s$"
    ):
        hopeless.run(hopeless.delivery.connect())
    refused = Broker(iter([]), retry_first_connection=True)
    refused.refusals = [UnreachableError("a is down"), AccessRefusedError("403", reply_code=403)]
    with pytest.raises(AccessRefusedError, match="403; it began with: a is down"):
        refused.run(refused.delivery.connect())


PASSING = [
    ConnectionLimitError("530 limit reached", reply_code=530),
    BrokerRefusedError("541 vhost is down", reply_code=541),
]


@pytest.mark.parametrize("passing", PASSING)
def test_a_broker_that_is_full_or_still_starting_is_asked_again(passing: RabbitChxError) -> None:
    broker = Broker(iter([lost(), ack()]))
    broker.run(broker.delivery.connect())
    broker.refusals = [passing] * 5
    assert broker.publish("a").confirmed == 1
    first = Broker(iter([ack()]), A, B)
    first.refusals = [passing]
    assert first.publish("a").confirmed == 1  # by the next URL
    assert first.opened == ["a", "b"]


def test_a_refused_reconnection_is_final_and_names_the_first_cause() -> None:
    deleted = ConnectionLostError("320 user 'u' is deleted", reply_code=320)
    broker = Broker(iter([lost(deleted)]))
    broker.run(broker.delivery.connect())
    broker.refusals = [AccessRefusedError("403 login was refused", reply_code=403)]
    for _ in range(2):
        with pytest.raises(
            AccessRefusedError, match=r"^403 login was refused; it began with: 320 user 'u' is deleted$"
        ) as info:
            broker.publish("a")
        assert info.value.reply_code == 403
    assert len(broker.opened) == 2


def test_a_broker_that_blocks_for_too_long_is_not_connected_to_again() -> None:
    """It would block the next connection as well."""
    broker = Broker(repeat(blocked), limits=Limits(blocked_timeout_s=5))
    with pytest.raises(BrokerTimeoutError, match=r"blocked publishers \(low on memory\) for 5 s"):
        broker.publish("a")
    assert broker.opened == ["a"]

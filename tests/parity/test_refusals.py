"""Where the mirror says that the broker closes the channel or the connection, it does; where not, not."""

from __future__ import annotations

from typing import Any

import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker
from routes.catalogue import bound
from routes.live import Stage
from routes.scenario import Message, Scenario, predict, replay

from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing
from rabbit_chx.routing.rules import EMPTY_LIST_CRASHES
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

PRECONDITION_FAILED = 406
HASH_HEADER = {"hash-header": "tenant"}


@pytest.mark.parametrize("value", [[], {}], ids=["array", "table"])
@pytest.mark.parametrize("queues", [1, 3])
def test_an_empty_array_or_table_is_routed_or_closes_the_connection_as_predicted(
    rabbit: Rabbit, value: Any, queues: int
) -> None:
    scenario = Scenario(
        "x",
        bound(*((f"q{n}", 1) for n in range(queues))),
        tuple(Message(headers={"tenant": value}) for _ in range(3)),
        arguments=HASH_HEADER,
    )
    ring = replay(scenario, rabbit.release)
    with Stage(rabbit.broker, scenario) as stage:
        if not rabbit.release.follows(EMPTY_LIST_CRASHES) or queues == 1:
            assert stage.route() == predict(scenario, ring, rabbit.release)
            rabbit.count(scenario.message_count)
            return
        with pytest.raises(ChannelClosedError) as said:
            predict(scenario, ring, rabbit.release)
        with pytest.raises(ConnectionClosedByBroker) as closed:
            stage.route()
        assert closed.value.reply_code == said.value.reply_code


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["a", 5, None])
def test_cc_that_is_not_an_array(rabbit: Rabbit, name: str, value: Any) -> None:
    scenario = Scenario("x", bound(("a", 1), ("b", 1)), (Message(headers={name: value}),))
    with pytest.raises(ChannelClosedError) as said:
        predict(scenario, replay(scenario, rabbit.release), rabbit.release)
    with Stage(rabbit.broker, scenario) as stage, pytest.raises(ChannelClosedByBroker) as closed:
        stage.route()
    assert closed.value.reply_code == said.value.reply_code


@pytest.mark.parametrize(
    "key", ["0", "-1", "+0", "1.5", "", " 1", "1 ", "1_0", "0x1", "abc", "\u0661", "10001", "-", "+"]
)
def test_weights_that_both_refuse_or_both_take(rabbit: Rabbit, key: str) -> None:
    scenario = Scenario("x", bound(("q", key)), ())
    try:
        with Stage(rabbit.broker, scenario):
            refused = False
    except ChannelClosedByBroker as closed:
        refused = closed.reply_code == PRECONDITION_FAILED
    assert refuses(rabbit, key) is refused


def refuses(rabbit: Rabbit, key: str) -> bool:
    try:
        HashRing.from_bindings([("q", key)], rabbit.release)
    except InputError:
        return True
    return False


@pytest.mark.parametrize(
    "arguments",
    [
        {"hash-header": 5},
        {"hash-header": b"tenant"},
        {"hash-header": None},
        {"hash-property": None},
        {"hash-property": "app_id"},
        {"hash-header": "tenant", "hash-property": "message_id"},
    ],
    ids=str,
)
def test_arguments_that_both_refuse(rabbit: Rabbit, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ConsistentHashExchange("x", HashRing.from_bindings([], rabbit.release), arguments)
    with pytest.raises(AMQPError), Stage(rabbit.broker, Scenario("x", (), (), arguments=arguments)):
        pass

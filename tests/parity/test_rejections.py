"""A plan rejects what the broker rejects and lists: types of exchanges and settings of plugins that are missing. And each weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from quick_rings import quick_broker

from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import RabbitChxError, TopologyError
from rabbit_chx.routing.rules import WEIGHT_IS_REFUSED
from rabbit_chx.testing import temporary_vhost
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.objects import HASH_EXCHANGE
from tests.parity.conftest import Rabbit
from tests.parity.test_arguments import Declarer, declaring

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

#: The plugins with exchanges that RabbitMQ contains, and that our brokers do not enable by themselves.
PLUGINS = (
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
    "rabbitmq_jms_topic_exchange",
    "rabbitmq_federation",
)
#: Only federation declares exchanges of the type x-federation-upstream: it is left out.
TYPES = (
    "direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random", "x-recent-history",
    "x-jms-topic", "x-delayed-message", "x-lvc", "x-nonsense", "Direct",
)  # fmt: skip
#: Settings of policies that need a plugin, and one that needs none.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"federation-upstream": "x"},
    {"federation-upstream-set": "x"},
    {"shards-per-node": 1, "routing-key": "1"},
    {"max-length": 1},
)


def is_set(api: Management, policy: PolicyDefinition) -> bool:
    body = {
        "pattern": policy.pattern,
        "definition": plain(policy.definition),
        "apply-to": policy.apply_to,
        "priority": 0,
    }
    try:
        api.put("policies", "/", policy.name, body=body)
    except RabbitChxError:
        return False
    return True


@pytest.fixture
def _all_plugins(rabbit: Rabbit) -> Iterator[None]:
    broker = quick_broker(rabbit.broker)
    broker.run("rabbitmq-plugins", "enable", "-q", *PLUGINS)
    yield
    broker.run("rabbitmq-plugins", "disable", "-q", *PLUGINS)


def refusals(live: LiveTopology, wanted: Topology) -> list[str]:
    """Return the reasons of a plan of one object to reject it."""
    return [str(refusal) for refusal in plan(wanted, live).refusals]


def read(rabbit: Rabbit) -> LiveTopology:
    with Broker(rabbit.broker.url, management_url=rabbit.broker.management_url) as broker:
        return broker.topology()


def is_made(declarer: Declarer, exchange: ExchangeDefinition) -> bool:
    def declare(channel: Any) -> None:
        arguments = plain(exchange.arguments)
        channel.exchange_declare(exchange.name, cast("Any", exchange.type), durable=True, arguments=arguments)

    accepted = declarer.accepts(declare)
    if accepted:
        declarer.channel.exchange_delete(exchange.name)
    return accepted


def wrong_exchanges(rabbit: Rabbit) -> list[tuple[str, bool, list[str]]]:
    """Return the types of exchanges that the plan rejects and the broker accepts, or the reverse."""
    live, wrong = read(rabbit), []
    with declaring(rabbit) as declarer:
        for type_ in TYPES:
            accepted = is_made(declarer, ExchangeDefinition("rejections", type_))
            ring = () if "consistent" in type_ else None
            reasons = refusals(live, Topology((ExchangeDefinition("rejections", type_, ring=ring),)))
            if accepted is bool(reasons):
                wrong.append((type_, accepted, reasons))
    return wrong


def wrong_settings(rabbit: Rabbit) -> list[tuple[dict[str, Any], bool, list[str]]]:
    assert rabbit.broker.management_url is not None
    api, live, wrong = Management(rabbit.broker.management_url), read(rabbit), []
    for settings in SETTINGS:
        policy = PolicyDefinition("rejections", "^none$", definition=settings)
        # From 4.1 on nothing shows whether the plugin for federation is there.
        if (
            rabbit.release.numbers >= (4, 1, 0)
            and "x-federation-upstream" not in live.facts.limits.exchange_types
            and any(name.startswith("federation-") for name in settings)
        ):
            continue
        accepted = is_set(api, policy)
        if accepted:
            api.delete("policies", "/", policy.name)
        reasons = [
            reason for reason in refusals(live, Topology(policies=(policy,))) if "deprecated" not in reason
        ]
        if accepted is bool(reasons):
            wrong.append((settings, accepted, reasons))
    return wrong


def test_what_is_rejected_without_plugins(rabbit: Rabbit) -> None:
    assert wrong_exchanges(rabbit) == []
    assert wrong_settings(rabbit) == []


@pytest.mark.usefixtures("_all_plugins")
def test_what_is_rejected_with_all_plugins(rabbit: Rabbit) -> None:
    assert {"x-random", "x-recent-history", "x-jms-topic"} <= read(rabbit).facts.limits.exchange_types
    assert wrong_exchanges(rabbit) == []
    assert wrong_settings(rabbit) == []


@pytest.mark.parametrize("weight", ["1", "007", "10000", "10001", "+5", "0", "-1", "", "x", "1.5"])
def test_a_weight_is_refused_where_the_broker_refuses_it(rabbit: Rabbit, weight: str) -> None:
    with (
        temporary_vhost(rabbit.broker) as vhost,
        Broker(vhost.url, management_url=vhost.management_url) as broker,
    ):
        queues = (QueueDefinition("q"),)
        wanted = Topology((ExchangeDefinition("x", HASH_EXCHANGE, ring=(RingMember("q", weight),)),), queues)
        reasons = refusals(broker.topology(), wanted)
        broker.apply(
            plan(Topology((ExchangeDefinition("x", HASH_EXCHANGE, ring=()),), queues), broker.topology())
        )
        declarer = Declarer(vhost.url)
        accepted = declarer.accepts(lambda channel: channel.queue_bind("q", "x", weight))
        declarer.connection.close()
    assert accepted is not bool(reasons), reasons


def test_a_weight_above_the_limit_is_a_mistake_of_a_file(rabbit: Rabbit) -> None:
    """The file is read for a release, without a connection; `test_a_weight_is_refused_where_the_broker_refuses_it` shows that the broker agrees."""
    text = (
        f'[[exchanges]]\nname = "x"\ntype = "{HASH_EXCHANGE}"\nring = [{{ queue = "q", weight = 10001 }}]\n'
    )
    assert Topology.from_toml(text).exchange("x") is not None
    if not rabbit.release.follows(WEIGHT_IS_REFUSED):
        Topology.from_toml(text, release=rabbit.release)
        return
    with pytest.raises(TopologyError, match=r"takes at most 10000"):
        Topology.from_toml(text, release=rabbit.release)

"""Shards of a `shards-per-node` policy: their names, their order, what is routed to them, and who consumes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_broker

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.publishing import Publisher
from rabbit_chx.routing import ModulusHashExchange
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.topology import ExchangeDefinition, PolicyDefinition, Topology, check, plan
from rabbit_chx.topology.plugin_objects import shard_names, without_shards
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

SHARDS = 12  # so that 10 and 11 stand before 2
MESSAGES = 3_000
MODULUS: Any = "x-modulus-hash"
APPEARING_TIMEOUT_S = 20.0


@pytest.fixture
def vhost(rabbit: Rabbit) -> Iterator[RunningBroker]:
    with temporary_vhost(rabbit.broker) as inside:
        yield inside


@pytest.fixture
def channel(vhost: RunningBroker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        yield connection.channel()


@pytest.fixture
def shards(rabbit: Rabbit, vhost: RunningBroker, channel: BlockingChannel) -> tuple[str, ...]:
    """The names of the shards, by the mirror, once as many queues are there."""
    assert vhost.management_url is not None
    management = Management(vhost.management_url)
    name = ConnectionSettings.from_uri(vhost.url).vhost
    policy = {"pattern": "^sharded$", "definition": {"shards-per-node": SHARDS}, "apply-to": "exchanges"}
    management.request("PUT", "policies", name, "shards", body=policy)
    channel.exchange_declare("sharded", MODULUS, durable=True)
    deadline = time.monotonic() + APPEARING_TIMEOUT_S
    while len(queues := management.request("GET", "queues", name)) < SHARDS and time.monotonic() < deadline:
        time.sleep(0.1)
    node = quick_broker(rabbit.broker).run("rabbitmqctl", "-q", "eval", "node().").strip().strip("'")
    names = shard_names("sharded", [node], SHARDS)
    assert sorted(queue["name"] for queue in queues) == sorted(names)
    return names


def publish(url: str) -> list[str]:
    keys = [f"k{number}" for number in range(MESSAGES)]
    with Publisher(url, "sharded", persistent=False) as publisher:
        publisher.publish_many(keys, map(str, range(MESSAGES)))
    return keys


def test_names_order_and_routes(
    rabbit: Rabbit, vhost: RunningBroker, channel: BlockingChannel, shards: tuple[str, ...]
) -> None:
    keys = publish(vhost.url)
    exchange = ModulusHashExchange("sharded", [(shard, "") for shard in shards], rabbit.release)
    assert exchange.destinations == shards
    found: dict[int, str] = {}
    for shard in shards:
        for _ in range(channel.queue_declare(shard, passive=True).method.message_count or 0):
            body: Any = channel.basic_get(shard, auto_ack=True)[2]
            found[int(body)] = shard
    assert [found.get(number) for number in range(MESSAGES)] == [exchange.route(key) for key in keys]
    rabbit.count(MESSAGES)


def test_consumers_of_the_pseudo_queue_share_the_shards(
    rabbit: Rabbit, vhost: RunningBroker, channel: BlockingChannel, shards: tuple[str, ...]
) -> None:
    keys = publish(vhost.url)
    taken: list[list[str]] = [[] for _ in shards]
    for mine in taken:
        channel.basic_consume("sharded", partial(_note, mine), auto_ack=True)
    deadline = time.monotonic() + APPEARING_TIMEOUT_S
    while sum(map(len, taken)) < MESSAGES and time.monotonic() < deadline:
        channel.connection.process_data_events(1)
    exchange = ModulusHashExchange("sharded", [(shard, "") for shard in shards], rabbit.release)
    expected = [[key for key in keys if exchange.route(key) == shard] for shard in shards]
    assert taken == expected  # the least consumed shard comes next, the smallest name first
    rabbit.count(MESSAGES)


def _note(taken: list[str], _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
    taken.append(method.routing_key)


@pytest.mark.parametrize("type_", [MODULUS, "x-consistent-hash"])
def test_a_topology_shards_an_exchange_and_leaves_its_shards_alone(
    rabbit: Rabbit, vhost: RunningBroker, type_: str
) -> None:
    """On 4.3.6 a policy that is there first makes the declaration of an x-consistent-hash exchange fail."""
    wanted = Topology(
        (ExchangeDefinition("sharded", type_),),
        policies=(
            PolicyDefinition("s", "^sharded$", "exchanges", {"shards-per-node": 3, "routing-key": "2"}),
        ),
        owns=("*",),
    )
    with Broker(vhost.url, vhost.management_url, vhost.ring_via) as live:
        live.apply(plan(wanted, live.topology()))
        found = live.sharding("sharded")
        assert found.nodes is not None
        assert [shard.name for shard in found.shards] == list(shard_names("sharded", found.nodes, 3))
        assert {(shard.keys, shard.messages, shard.consumers) for shard in found.shards} == {(("2",), 0, 0)}
        now = live.topology()
        assert plan(wanted, now).changes == ()
        assert check(now, wanted).sound
        assert plan(without_shards(now).as_wanted(), now).changes == ()
    rabbit.note(f"a sharded exchange of type {type_} by a topology file: {len(found.shards)} shards")

"""A sharded exchange on a real broker: declared by a topology, read, and consumed by its shards or by the exchange's own name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pika
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import through
from sharded import (
    LONGEST_S,
    LOOK_EVERY_S,
    Handled,
    applied,
    found,
    in_a_loop,
    published,
    running,
    sharded,
    until,
)
from tcp_proxy import Proxy

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.consuming import PseudoQueueConsumer, ShardConsumer
from rabbit_chx.consuming.message import ShardMessage
from rabbit_chx.errors import MismatchError, NotFoundError, PlanRefusedError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, Topology, check, plan
from rabbit_chx.topology.plugin_objects import ShardedExchange, shard_names

pytestmark = pytest.mark.broker

FILE = """
owns = ["*"]
[[exchanges]]
name = "images"
type = "x-modulus-hash"
[[policies]]
name = "shards"
pattern = "^images$"
apply_to = "exchanges"
definition = { shards-per-node = 3, routing-key = "7" }
"""


def declared(live: Broker, text: str) -> ShardedExchange:
    live.apply(plan(Topology.from_toml(text), live.topology()))
    return live.sharding("images")


def test_a_file_declares_it_and_the_plugin_makes_the_shards(
    managed: Broker, bare_channel: BlockingChannel
) -> None:
    found = declared(managed, FILE)
    assert (found.type, found.policy) == ("x-modulus-hash", "shards")
    assert (found.shards_per_node, found.routing_key) == (3, "7")
    assert found.nodes is not None
    assert [shard.name for shard in found.shards] == list(shard_names("images", found.nodes, 3))
    assert [(shard.keys, shard.messages, shard.consumers) for shard in found.shards] == [(("7",), 0, 0)] * 3
    assert found.missing == ()
    assert [finding.kind for finding in found.findings] == ["unconsumed"]
    now = managed.topology()
    assert plan(Topology.from_toml(FILE), now).changes == ()
    assert check(now, Topology.from_toml(FILE)).sound
    assert managed.exchange("images").route("k1") in {shard.name for shard in found.shards}

    bare_channel.basic_consume(found.shards[1].name, lambda *_: None)
    bare_channel.confirm_delivery()
    bare_channel.basic_publish("", found.shards[2].name, b"m")
    counted = [(shard.messages, shard.consumers) for shard in managed.sharding("images").shards]
    assert counted == [(0, 0), (0, 1), (1, 0)]
    assert {shard.messages for shard in managed.sharding("images", counts=False).shards} == {None}


HASHED = FILE.replace("x-modulus-hash", "x-consistent-hash")


def test_a_hash_exchange_under_the_policy_is_refused_beforehand(
    managed: Broker, vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    """With Khepri the broker closes the connection with 541, which the first lines hold. With Mnesia it accepts the exchange."""
    declared(managed, FILE)
    bare_channel.exchange_delete("images")
    is_accepted = managed.release.store == "mnesia"
    refused = pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="541")
    with (
        pika.BlockingConnection(pika_parameters(vhost.url)) as connection,
        nullcontext() if is_accepted else refused,
    ):
        connection.channel().exchange_declare("images", CHX, durable=True)
    bare_channel.exchange_delete("images")
    for name in [queue.name for queue in managed.topology().queues]:
        bare_channel.queue_delete(name)

    made = plan(Topology.from_toml(HASHED), managed.topology())
    if is_accepted:
        assert made.refusals == ()
        assert len(declared(managed, HASHED).shards) == 3
        return
    assert ["the policy shards shards it" in refusal.text for refusal in made.refusals] == [True]
    with pytest.raises(PlanRefusedError, match="remove the policy"):
        managed.apply(made)
    now = managed.topology()
    assert (now.exchanges, now.queues) == ((), ())
    (missing,) = check(now, Topology.from_toml(HASHED)).findings
    assert missing.fix.startswith("remove the policy shards")

    managed.apply(plan(Topology.from_toml('owns = ["shards"]'), now), allow_delete=True)
    found = declared(managed, HASHED)
    assert (found.type, found.missing) == ("x-consistent-hash", ())
    assert [shard.keys for shard in found.shards] == [("7",)] * 3


@pytest.fixture
def consumer_of(managed: Broker) -> Callable[..., ShardConsumer]:
    """Makes a consumer of the exchange `images`, which is read while the test runs."""
    return partial(ShardConsumer, exchange="images", sharding=managed.sharding, look_every_s=LOOK_EVERY_S)


@in_a_loop
async def test_all_shards_are_consumed_and_followed_also_if_they_are_made_again(
    vhost: RunningBroker, consumer_of: Callable[..., ShardConsumer]
) -> None:
    handled = Handled()
    names = await sharded(vhost, 2)
    await published(vhost.url, 0, 500)
    consumer = consumer_of(vhost.url, prefetch=20)
    async with running(consumer, handled):
        await until(lambda: handled.count == 500)
        assert handled.queues == set(names) == set(consumer.queues)
        assert all(bodies == sorted(bodies) for bodies in handled.bodies.values())
        without = Topology((), owns=("sharding: *", "shards"))
        await applied(vhost, without, allow_delete=True, allow_loss=True)
        await until(lambda: consumer.queues == ())
        names = await sharded(vhost, 4)
        await until(lambda: set(consumer.queues) == set(names))
        await published(vhost.url, 500, 500)
        await until(lambda: handled.count == 1_000)
    async with asyncio.timeout(LONGEST_S):  # a queue notices later that its consumer is gone
        while {(each.messages, each.consumers) for each in (await found(vhost)).shards} != {(0, 0)}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert sorted(body for bodies in handled.bodies.values() for body in bodies) == list(range(1_000))
    assert handled.queues == set(names)
    assert consumer.queues == ()


@in_a_loop
async def test_a_lost_connection_is_replaced(
    vhost: RunningBroker, consumer_of: Callable[..., ShardConsumer], proxy: Proxy
) -> None:
    handled = Handled()
    await sharded(vhost, 2)
    consumer = consumer_of(through(vhost.url, proxy.port))
    async with running(consumer, handled):
        await until(lambda: len(consumer.queues) == 2)
        proxy.cut()
        await published(vhost.url, 0, 100)
        await until(lambda: handled.count >= 100)
    assert {body for bodies in handled.bodies.values() for body in bodies} == set(range(100))


@in_a_loop
async def test_an_error_of_the_handler_ends_it_and_the_message_is_delivered_again(
    vhost: RunningBroker, consumer_of: Callable[..., ShardConsumer]
) -> None:
    seen: list[bool] = []

    async def fail(message: ShardMessage) -> None:
        seen.append(message.redelivered)
        raise LookupError(message.routing_key)

    await sharded(vhost, 1)
    await published(vhost.url, 0, 1)
    for _ in range(2):
        with pytest.raises(LookupError, match="k0"):
            await asyncio.wait_for(consumer_of(vhost.url).run(fail), LONGEST_S)
    assert seen == [False, True]


@in_a_loop
async def test_a_shard_without_a_consumer_is_named(
    vhost: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    handled = Handled()
    names = await sharded(vhost, 3)
    consumer = PseudoQueueConsumer(vhost.url, "images", 2, look_every_s=LOOK_EVERY_S)
    with caplog.at_level(logging.WARNING, "rabbit_chx.consuming"):
        async with running(consumer, handled):
            await until(lambda: consumer.unconsumed == names[2:])
            await published(vhost.url, 0, 100)
            images = await found(vhost)
            await until(lambda: handled.count == 100 - (images.shards[2].messages or 0))
    assert [shard.consumers for shard in images.shards] == [1, 1, 0]
    assert images.shards[2].messages
    (line,) = caplog.messages
    assert "1 of 3 shards of exchange 'images' on this node have no consumer (" + names[2] in line


@in_a_loop
async def test_a_consumer_is_added_for_each_new_shard(vhost: RunningBroker) -> None:
    handled = Handled()
    await sharded(vhost, 2)
    consumer = PseudoQueueConsumer(vhost.url, "images", look_every_s=LOOK_EVERY_S)
    async with running(consumer, handled):
        await until(lambda: len(consumer.queues) == 2)
        names = await sharded(vhost, 3)
        await until(lambda: len(consumer.queues) == 3)
        await published(vhost.url, 0, 100)
        await until(lambda: handled.count == 100)
        images = await found(vhost)
    assert {shard.name: shard.consumers for shard in images.shards} == dict.fromkeys(names, 1)
    assert handled.queues == {"images"}


@in_a_loop
async def test_what_is_not_sharded_is_refused(
    vhost: RunningBroker, consumer_of: Callable[..., ShardConsumer]
) -> None:
    await applied(vhost, Topology((ExchangeDefinition("plain"),), (QueueDefinition("queue"),)))
    for consumer, error, says in (
        (consumer_of(vhost.url, exchange="plain"), MismatchError, "no policy with shards-per-node applies"),
        (PseudoQueueConsumer(vhost.url, "plain"), NotFoundError, "exchange 'plain' has no shard on this node"),
        (PseudoQueueConsumer(vhost.url, "queue"), MismatchError, "'queue' is a queue and not a sharded exchange"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            await consumer.run(Handled())
